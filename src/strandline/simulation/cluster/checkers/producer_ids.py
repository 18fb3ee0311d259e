"""I-7: each block of producer ids is allocated once, so that no two producers share an id."""

from __future__ import annotations

from strandline.protocol.messages import metadata_records as kinds
from strandline.raft.disk.batches import MetadataBatch
from strandline.simulation.cluster.checker import Checker
from strandline.simulation.cluster.committed_metadata import CommittedMetadata
from strandline.simulation.cluster.violation import Violation

_BLOCK = 1000
"""Size of a block, as in Kafka."""


class ProducerIdBlocksAreUnique(Checker):
    def __init__(self, metadata: CommittedMetadata) -> None:
        self._next = 0
        metadata.subscribe(self._on_batch)

    def _on_batch(self, batch: MetadataBatch) -> None:
        for record in batch.records:
            if isinstance(record, kinds.ProducerIdsRecord):
                if record.next_producer_id < self._next + _BLOCK:
                    why = f"broker {record.broker_id} is allocated the producer ids below {record.next_producer_id}"
                    raise Violation("I-7", f"{why}, of which those below {self._next} were allocated before")
                self._next = record.next_producer_id
