"""Broker keys of idempotent producers, transactions, and the transaction state topic."""

from __future__ import annotations

from strandline.model.config_keys.key import ConfigKey
from strandline.model.config_keys.key_types import CLUSTER_WIDE, boolean, integer, short

KEYS: tuple[ConfigKey, ...] = (
    integer(
        "transaction.state.log.num.partitions",
        50,
        "Partitions of the transaction topic; not to be changed after it exists.",
        at_least=1,
    ),
    short(
        "transaction.state.log.replication.factor",
        3,
        "Replicas of the transaction topic, which is created once that many brokers exist.",
        at_least=1,
    ),
    integer(
        "transaction.state.log.min.isr", 2, "In-sync replicas that a write to the transaction topic needs.", at_least=1
    ),
    integer(
        "transaction.state.log.segment.bytes",
        104_857_600,
        "Segment size of the transaction topic; small segments load faster.",
        at_least=1,
    ),
    integer(
        "transaction.state.log.load.buffer.size",
        5_242_880,
        "Bytes read at a time when a coordinator loads its transactions.",
        at_least=1,
    ),
    integer(
        "transaction.max.timeout.ms", 900_000, "Longest timeout that a transactional producer may request.", at_least=1
    ),
    integer(
        "transactional.id.expiration.ms",
        604_800_000,
        "A transactional id without activity for this long expires.",
        at_least=1,
    ),
    integer(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        10_000,
        "How often overdue transactions are aborted.",
        at_least=1,
    ),
    integer(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        3_600_000,
        "How often expired transactional ids are removed.",
        at_least=1,
    ),
    boolean(
        "transaction.partition.verification.enable",
        True,
        "Whether an append is checked to belong to an ongoing transaction.",
        mode=CLUSTER_WIDE,
    ),
    boolean(
        "transaction.two.phase.commit.enable", False, "Whether producers may prepare transactions that never time out."
    ),
    integer(
        "producer.id.expiration.ms",
        86_400_000,
        "An idempotent producer without writes to a partition for this long expires there.",
        at_least=1,
        mode=CLUSTER_WIDE,
    ),
    integer(
        "producer.id.expiration.check.interval.ms",
        600_000,
        "How often expired producers are removed.",
        at_least=1,
        internal=True,
    ),
    integer(
        "add.partitions.to.txn.retry.backoff.ms",
        20,
        "First backoff before a partition is added to a transaction again.",
        at_least=1,
    ),
    integer(
        "add.partitions.to.txn.retry.backoff.max.ms",
        100,
        "Total time that adding a partition to a transaction is retried on the server.",
        at_least=0,
    ),
)
