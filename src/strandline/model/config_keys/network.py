"""Broker keys of the network layer: listeners, sockets, limits on queued requests."""

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
        "Addresses published to clients and other nodes, if they differ from listeners.",
        allowed=Items(at_least_one=True),
    ),
    string(
        "listener.security.protocol.map",
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "The security protocol of each listener name.",
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
        "Handlers per node: how many requests are handled at the same time.",
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
    integer(
        "socket.send.buffer.bytes", 102_400, "Send buffer of a connection's socket; -1 keeps the system's default."
    ),
    integer(
        "socket.receive.buffer.bytes",
        102_400,
        "Receive buffer of a connection's socket; -1 keeps the system's default.",
    ),
    integer(
        "socket.request.max.bytes",
        104_857_600,
        "Largest request read from a connection; a larger one closes it.",
        at_least=1,
    ),
    integer(
        "socket.listen.backlog.size", 50, "Connections that the system queues before the node accepts them.", at_least=1
    ),
    long("socket.connection.setup.timeout.ms", 10_000, "First wait for an outgoing connection to be established."),
    long(
        "socket.connection.setup.timeout.max.ms",
        30_000,
        "Longest wait for an outgoing connection, after growing with each failure.",
    ),
    long("connections.max.idle.ms", 600_000, "A connection without requests for this long is closed."),
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
        "max.incremental.fetch.session.cache.slots",
        1_000,
        "Incremental fetch sessions that the node keeps.",
        at_least=0,
    ),
    integer(
        "fetch.max.bytes",
        57_671_680,
        "Most bytes of one Fetch response, whatever the client requests.",
        at_least=1_024,
    ),
    integer("fetch.purgatory.purge.interval.requests", 1_000, "Delayed fetches after which completed ones are purged."),
    integer(
        "producer.purgatory.purge.interval.requests", 1_000, "Delayed produces after which completed ones are purged."
    ),
    integer(
        "delete.records.purgatory.purge.interval.requests",
        1,
        "Delayed DeleteRecords after which completed ones are purged.",
    ),
)
