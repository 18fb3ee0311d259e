"""Listeners, sockets, and how much unanswered work a node takes on."""

from __future__ import annotations

from strandline.model.config_keys.key import MAX_INT, ConfigKey, Items, OneOf
from strandline.model.config_keys.key_types import CLUSTER_WIDE, PER_BROKER, integer, listing, long, string

KEYS: tuple[ConfigKey, ...] = (
    listing(
        "listeners",
        "PLAINTEXT://:9092",
        "Where this node listens, as NAME://host:port; an empty host means every interface.",
        allowed=Items(at_least_one=True),
        mode=PER_BROKER,
    ),
    listing(
        "advertised.listeners",
        None,
        "Where clients and other nodes are told to connect, if not where the node listens.",
        allowed=Items(at_least_one=True),
    ),
    string(
        "listener.security.protocol.map",
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "Which security protocol each listener name speaks.",
        mode=PER_BROKER,
    ),
    listing(
        "early.start.listeners",
        None,
        "Listeners that serve before authorization is ready; the controller's by default.",
        allowed=Items(),
    ),
    string("inter.broker.listener.name", None, "Listener that brokers use among themselves."),
    string(
        "security.inter.broker.protocol",
        "PLAINTEXT",
        "Protocol between brokers, when no inter-broker listener is named.",
        allowed=OneOf(("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")),
    ),
    integer(
        "num.network.threads",
        3,
        "Processors per listener: they frame requests and write responses.",
        at_least=1,
        mode=CLUSTER_WIDE,
    ),
    integer(
        "num.io.threads",
        8,
        "Handlers per node: how many requests are decided at the same time.",
        at_least=1,
        mode=CLUSTER_WIDE,
    ),
    integer(
        "queued.max.requests",
        500,
        "Requests that may wait for a handler before connections are no longer read.",
        at_least=1,
    ),
    long("queued.max.request.bytes", -1, "Bytes of requests that may wait for a handler; -1 sets no limit."),
    integer("socket.send.buffer.bytes", 102_400, "Send buffer of a connection's socket; -1 leaves the system's own."),
    integer(
        "socket.receive.buffer.bytes", 102_400, "Receive buffer of a connection's socket; -1 leaves the system's own."
    ),
    integer(
        "socket.request.max.bytes",
        104_857_600,
        "Largest request read from a connection; a larger one closes it.",
        at_least=1,
    ),
    integer(
        "socket.listen.backlog.size", 50, "Connections the system queues before the node accepts them.", at_least=1
    ),
    long("socket.connection.setup.timeout.ms", 10_000, "First wait for an outgoing connection to be established."),
    long(
        "socket.connection.setup.timeout.max.ms",
        30_000,
        "Longest wait for an outgoing connection, after growing with each failure.",
    ),
    long("connections.max.idle.ms", 600_000, "A connection silent for this long is closed."),
    integer(
        "connection.failed.authentication.delay.ms",
        100,
        "Pause before a connection that failed to authenticate is closed.",
        at_least=0,
    ),
    integer(
        "max.connections", MAX_INT, "Connections of the whole node at the same time.", at_least=0, mode=CLUSTER_WIDE
    ),
    integer(
        "max.connections.per.ip",
        MAX_INT,
        "Connections from one address at the same time.",
        at_least=0,
        mode=CLUSTER_WIDE,
    ),
    string(
        "max.connections.per.ip.overrides",
        "",
        "Exceptions to the limit per address, as host:count,host:count.",
        mode=CLUSTER_WIDE,
    ),
    integer(
        "max.connection.creation.rate",
        MAX_INT,
        "New connections per second for the whole node.",
        at_least=0,
        mode=CLUSTER_WIDE,
    ),
    integer(
        "max.incremental.fetch.session.cache.slots", 1_000, "Incremental fetch sessions the node remembers.", at_least=0
    ),
    integer(
        "fetch.max.bytes",
        57_671_680,
        "Most bytes that one Fetch answer carries, whatever the client asks for.",
        at_least=1_024,
    ),
    integer(
        "fetch.purgatory.purge.interval.requests", 1_000, "Parked fetches after which finished ones are swept out."
    ),
    integer(
        "producer.purgatory.purge.interval.requests", 1_000, "Parked produces after which finished ones are swept out."
    ),
    integer(
        "delete.records.purgatory.purge.interval.requests",
        1,
        "Parked DeleteRecords after which finished ones are swept out.",
    ),
)
