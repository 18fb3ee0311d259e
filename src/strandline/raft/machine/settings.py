"""How patient a replica is (`controller.quorum.*`), with Kafka's defaults. All of it is handed to the machine."""

from __future__ import annotations

import msgspec

from strandline.model.config_keys.broker import config_field


class QuorumSettings(msgspec.Struct, frozen=True):
    election_timeout_ms: int = config_field("controller.quorum.election.timeout.ms")
    """Randomised to once up to twice as long, every time."""
    fetch_timeout_ms: int = config_field("controller.quorum.fetch.timeout.ms")
    """A follower that has not heard from its leader for so long looks for another."""
    election_backoff_max_ms: int = config_field("controller.quorum.election.backoff.max.ms")
    request_timeout_ms: int = config_field("controller.quorum.request.timeout.ms")
    retry_backoff_ms: int = config_field("controller.quorum.retry.backoff.ms")
    """After the first failure; it doubles while failures follow one another."""
    retry_backoff_max_ms: int = 500
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = config_field("controller.quorum.fetch.max.bytes")
    fetch_snapshot_max_bytes: int = config_field("controller.quorum.fetch.snapshot.max.bytes")
    auto_join: bool = config_field("controller.quorum.auto.join.enable")
    failed_leader_delay_ms: int = 150
    """A follower that knows its leader to be gone stands for election after up to so long, at random."""
    observer_timeout_ms: int = 300_000
    """A leader forgets an observer that has not fetched for so long."""

    @property
    def fetch_wait_ms(self) -> int:
        """How long a leader may keep a fetch: so that it answers often enough to be trusted, however short that is."""
        return min(self.fetch_max_wait_ms, self.fetch_timeout_ms // 3)

    @property
    def check_quorum_timeout_ms(self) -> int:
        """A leader that has not heard from a majority for so long gives up."""
        return self.fetch_timeout_ms * 3 // 2

    @property
    def begin_epoch_interval_ms(self) -> int:
        """A leader reminds voters that do not fetch this often."""
        return self.fetch_timeout_ms // 2

    @property
    def voter_update_interval_ms(self) -> int:
        """A controller looks this often whether the voter set says what is true of it."""
        return self.fetch_timeout_ms * 3
