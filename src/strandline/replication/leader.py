"""The leader of one partition, as a machine: what may be shown, and to whom a write is acknowledged.

The high watermark is the least log end among those that must hold a record before it counts. With one replica that is
the leader's own log: its end, or, when every append must reach the disk first (`flush.messages=1`), its flushed end.
A watermark belongs to one leadership: `resign` fails every waiter with NOT_LEADER_OR_FOLLOWER.
"""

from __future__ import annotations

from strandline.log.partition_log import PartitionLog
from strandline.model.errors import ErrorCode, KafkaError
from strandline.runtime.watermark import Watermark


class Leader:
    __slots__ = ("_log", "high_watermark", "last_stable_offset", "leader_epoch", "low_watermark")

    def __init__(self, log: PartitionLog, leader_epoch: int) -> None:
        log.epochs.assign(leader_epoch, log.log_end_offset)
        self._log = log
        self.leader_epoch = leader_epoch
        self.high_watermark = Watermark(log.high_watermark)
        self.last_stable_offset = Watermark(log.last_stable_offset)
        self.low_watermark = Watermark(log.log_start_offset)
        self.on_progress()

    def on_progress(self) -> None:
        """After an append or a flush: move the watermarks and wake who waited for them."""
        log = self._log
        end = log.flushed_offset if log.settings.flush_messages == 1 else log.log_end_offset
        if end > self.high_watermark.value:
            log.advance_high_watermark(end)
            self.high_watermark.advance(end)
            self.last_stable_offset.advance(log.last_stable_offset)

    def on_log_start_moved(self) -> None:
        self.low_watermark.advance(self._log.log_start_offset)

    def resign(self, why: str) -> None:
        error = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, why)
        for watermark in (self.high_watermark, self.last_stable_offset, self.low_watermark):
            watermark.lose(error)
