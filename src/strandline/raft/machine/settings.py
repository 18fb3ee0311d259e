"""The timeouts and limits of the quorum (`controller.quorum.*`), with Kafka's defaults."""

from __future__ import annotations

import msgspec

from strandline.model.config_keys.broker import config_field


class QuorumSettings(msgspec.Struct, frozen=True):
    election_timeout_ms: int = config_field("controller.quorum.election.timeout.ms")
    """Each election draws a timeout between this and twice as long."""
    fetch_timeout_ms: int = config_field("controller.quorum.fetch.timeout.ms")
    """A follower without a successful fetch for this long becomes Prospective."""
    election_backoff_max_ms: int = config_field("controller.quorum.election.backoff.max.ms")
    request_timeout_ms: int = config_field("controller.quorum.request.timeout.ms")
    retry_backoff_ms: int = config_field("controller.quorum.retry.backoff.ms")
    """The backoff after the first failure; doubles with each further one."""
    retry_backoff_max_ms: int = 500
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = config_field("controller.quorum.fetch.max.bytes")
    fetch_snapshot_max_bytes: int = config_field("controller.quorum.fetch.snapshot.max.bytes")
    auto_join: bool = config_field("controller.quorum.auto.join.enable")
    failed_leader_delay_ms: int = 150
    """A follower whose leader has failed starts an election after a random delay of at most this."""
    observer_timeout_ms: int = 300_000
    """A leader drops the progress of an observer that has not fetched for this long."""

    @property
    def fetch_wait_ms(self) -> int:
        """How long a leader may park a fetch: it must respond several times within the fetch timeout."""
        return min(self.fetch_max_wait_ms, self.fetch_timeout_ms // 3)

    @property
    def check_quorum_timeout_ms(self) -> int:
        """A leader without contact with a majority for this long resigns."""
        return self.fetch_timeout_ms * 3 // 2

    @property
    def begin_epoch_interval_ms(self) -> int:
        """How often a leader sends BeginQuorumEpoch to voters that do not fetch."""
        return self.fetch_timeout_ms // 2

    @property
    def voter_update_interval_ms(self) -> int:
        """How often a controller checks its entry in the voter set."""
        return self.fetch_timeout_ms * 3
