"""I-7 of producer ids: a block is given out once, so that no two producers ever share an id."""

from __future__ import annotations

from strandline.protocol.messages import metadata_records as kinds
from strandline.raft.disk.batches import MetadataBatch
from strandline.simulation.cluster.checker import Checker
from strandline.simulation.cluster.committed_metadata import CommittedMetadata
from strandline.simulation.cluster.violation import Violation

_BLOCK = 1000
"""What a broker is given at a time, as in Kafka."""


class ProducerIdBlocksAreUnique(Checker):
    def __init__(self, ledger: CommittedMetadata) -> None:
        self._next = 0
        ledger.tell(self._committed)

    def _committed(self, batch: MetadataBatch) -> None:
        for record in batch.records:
            if isinstance(record, kinds.ProducerIdsRecord):
                if record.next_producer_id < self._next + _BLOCK:
                    why = f"broker {record.broker_id} is given the producer ids below {record.next_producer_id}"
                    raise Violation("I-7", f"{why}, of which those below {self._next} were given out before")
                self._next = record.next_producer_id
