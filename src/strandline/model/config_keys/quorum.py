"""Broker keys of the controller quorum, the metadata log, and broker registration."""

from __future__ import annotations

from strandline.model.config_keys.addresses import servers_problem, voters_problem
from strandline.model.config_keys.key import ConfigKey, Items, Satisfies
from strandline.model.config_keys.key_types import boolean, integer, listing, long, string

KEYS: tuple[ConfigKey, ...] = (
    listing(
        "controller.listener.names",
        None,
        "Listeners that controllers serve; brokers connect to the first.",
        allowed=Items(at_least_one=True),
        required=True,
    ),
    listing(
        "controller.quorum.voters",
        "",
        "Fixed voters as id@host:port; leave empty for a quorum that can change.",
        allowed=Satisfies(voters_problem),
    ),
    listing(
        "controller.quorum.bootstrap.servers",
        "",
        "Controllers to contact first, as host:port, for a quorum that can change.",
        allowed=Satisfies(servers_problem),
    ),
    boolean(
        "controller.quorum.auto.join.enable", False, "Whether a controller adds itself to the voters when it starts."
    ),
    integer(
        "controller.quorum.election.timeout.ms",
        1_000,
        "Longest wait for a leader before a new election begins.",
        at_least=0,
    ),
    integer(
        "controller.quorum.election.backoff.max.ms",
        1_000,
        "Longest random backoff after an election without a winner.",
        at_least=0,
    ),
    integer(
        "controller.quorum.fetch.timeout.ms",
        2_000,
        "A follower without a fetch response for this long becomes a candidate; a leader without fetches resigns.",
        at_least=0,
    ),
    integer(
        "controller.quorum.append.linger.ms",
        25,
        "How long the leader collects records before it flushes them.",
        at_least=0,
    ),
    integer(
        "controller.quorum.request.timeout.ms", 2_000, "How long a quorum request waits for its response.", at_least=0
    ),
    integer("controller.quorum.retry.backoff.ms", 20, "Backoff before a quorum request is retried.", at_least=0),
    integer("controller.quorum.fetch.max.bytes", 1_048_576, "Bytes of the metadata log in one response.", at_least=1),
    integer(
        "controller.quorum.fetch.snapshot.max.bytes", 1_048_576, "Bytes of a snapshot in one response.", at_least=1
    ),
    string("metadata.log.dir", None, "Directory of the metadata log; the first of log.dirs by default."),
    integer("metadata.log.segment.bytes", 1_073_741_824, "Segment size of the metadata log.", at_least=8_388_608),
    long("metadata.log.segment.ms", 604_800_000, "Age at which a segment of the metadata log is closed."),
    long(
        "metadata.max.retention.bytes",
        104_857_600,
        "Size of metadata log and snapshots above which the oldest are deleted.",
    ),
    long(
        "metadata.max.retention.ms",
        604_800_000,
        "Age above which metadata log and snapshots are deleted, except the newest snapshot.",
    ),
    integer(
        "metadata.max.idle.interval.ms",
        500,
        "Idle time after which the active controller appends a no-op record; 0 disables it.",
        at_least=0,
    ),
    long(
        "metadata.log.max.record.bytes.between.snapshots",
        20_971_520,
        "Bytes of new metadata after which a snapshot is taken.",
        at_least=1,
    ),
    long(
        "metadata.log.max.snapshot.interval.ms",
        3_600_000,
        "Longest time without a snapshot while there are changes; 0 disables it.",
        at_least=0,
    ),
    integer(
        "internal.metadata.log.segment.bytes",
        None,
        "Segment size of the metadata log below the usual minimum; for tests.",
        internal=True,
    ),
    integer(
        "internal.metadata.max.batch.size.in.bytes",
        8_388_608,
        "Largest batch in the metadata log; for tests.",
        internal=True,
    ),
    long(
        "internal.metadata.delete.delay.millis",
        60_000,
        "How long deleted metadata files stay; for tests.",
        internal=True,
    ),
    integer(
        "initial.broker.registration.timeout.ms",
        60_000,
        "How long a starting broker tries to register before it fails.",
    ),
    integer("broker.heartbeat.interval.ms", 2_000, "How often a broker sends a heartbeat to the controller."),
    integer("broker.session.timeout.ms", 9_000, "A broker without a heartbeat for this long is fenced."),
    string("sasl.mechanism.controller.protocol", "GSSAPI", "SASL mechanism between nodes and controllers."),
    long(
        "controller.performance.sample.period.ms",
        60_000,
        "How often the controller logs a summary of how long its events took.",
        at_least=100,
        internal=True,
    ),
    long(
        "controller.performance.always.log.threshold.ms",
        2_000,
        "A controller event slower than this is always logged.",
        at_least=0,
        internal=True,
    ),
)
