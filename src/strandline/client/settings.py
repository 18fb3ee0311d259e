"""Settings of the client, the producer, the fetcher and the group member, named after Kafka's client configs."""

from __future__ import annotations

from random import Random

import msgspec

from strandline.records.compression import Codec


class ClientSettings(msgspec.Struct, frozen=True):
    client_id: str = "strandline"
    connect_timeout_ms: int = 10_000
    request_timeout_ms: int = 30_000
    api_timeout_ms: int = 60_000
    """The time limit of a call including its retries."""
    bootstrap_timeout_ms: int = 60_000
    """How long to retry while no broker has ever responded; the command line sets a short one."""
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    metadata_max_age_ms: int = 300_000
    max_response_bytes: int = 512 << 20


class ProducerSettings(msgspec.Struct, frozen=True):
    acks: int = -1
    idempotent: bool = True
    linger_ms: int = 5
    batch_bytes: int = 16 << 10
    max_record_bytes: int = 1 << 20
    """Larger records are rejected with RecordTooLarge."""
    max_request_bytes: int = 1 << 20
    buffer_bytes: int = 32 << 20
    codec: Codec = Codec.NONE
    compression_level: int | None = None
    max_in_flight: int = 5
    """Batches per partition; brokers detect duplicates of the last five."""
    delivery_timeout_ms: int = 120_000
    max_block_ms: int = 60_000
    """How long a send waits for the topic's metadata, and for buffer space."""
    transactional_id: str | None = None
    """Of a transactional producer: a second one with the same id fences the first."""
    transaction_timeout_ms: int = 60_000
    """The coordinator aborts transactions that take longer."""

    def __post_init__(self) -> None:
        if self.acks not in (-1, 0, 1):
            raise ValueError(f"acks is {self.acks}: it must be 0, 1 or -1 (all)")
        if self.idempotent and self.acks != -1:
            raise ValueError("an idempotent producer needs acks=-1 (all): set idempotent=False for fewer")
        if self.transactional_id is not None and not self.idempotent:
            raise ValueError("a transactional producer is idempotent: leave idempotent=True")
        if not 1 <= self.max_in_flight <= 5:
            raise ValueError("max_in_flight must be 1 to 5: a broker recognises only the last five batches")


class FetcherSettings(msgspec.Struct, frozen=True):
    min_bytes: int = 1
    max_wait_ms: int = 500
    max_bytes: int = 50 << 20
    partition_max_bytes: int = 1 << 20
    read_committed: bool = False
    use_sessions: bool = True
    check_crcs: bool = True
    keep_control_batches: bool = False
    out_of_range: str = "error"
    """What to do when the partition does not have the offset: reset to "earliest" or "latest", or "error"."""


class GroupSettings(msgspec.Struct, frozen=True):
    protocol: str = "classic"
    """"classic", or "consumer": the group coordinator assigns partitions (KIP-848), and decides about session and
    heartbeat intervals."""
    server_assignor: str | None = None
    """With the consumer protocol: "uniform", "range", or None for the default of the coordinator."""
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    """The longest time between polls, and the rebalance timeout. A member whose application polls less often leaves the
    group."""
    assignors: tuple[str, ...] = ("range", "cooperative-sticky")
    """The assignors in order of preference, as in Kafka. With `cooperative-sticky` alone members keep their partitions
    while the group rebalances."""
    instance_id: str | None = None
    """The id of a static member, which may restart within the session timeout without a rebalance."""
    rack: str | None = None
    auto_commit: bool = True
    auto_commit_interval_ms: int = 5_000
    offset_reset: str = "latest"
    """Where partitions without a committed offset start: "earliest", "latest" or "error"."""

    def __post_init__(self) -> None:
        if self.protocol not in ("classic", "consumer"):
            raise ValueError(f'protocol {self.protocol!r}: must be "classic" or "consumer"')
        unknown = [each for each in self.assignors if each not in ("range", "cooperative-sticky")]
        if unknown or not self.assignors:
            raise ValueError(f"assignors {self.assignors}: give range, cooperative-sticky or both")
        if self.offset_reset not in ("earliest", "latest", "error"):
            raise ValueError(f'offset_reset {self.offset_reset!r}: must be "earliest", "latest" or "error"')


class Backoff:
    """Exponential backoff with jitter, so that clients do not retry in step."""

    def __init__(self, settings: ClientSettings, random: Random) -> None:
        self._first_ms = settings.retry_backoff_ms
        self._max_ms = settings.retry_backoff_max_ms
        self._random = random
        self._attempts = 0

    def next_ms(self) -> int:
        length_ms = min(self._max_ms, self._first_ms << min(self._attempts, 16))
        self._attempts += 1
        return max(1, round(length_ms * self._random.uniform(0.8, 1.2)))
