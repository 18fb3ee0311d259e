"""I-4, of the image itself: replaying committed records gives what they say. Every node replays with the same code, so
that comparing them with each other finds no mistake in it; comparing with the scribe does.

Looked at after each batch: which topics there are, all settings, and the partitions that the batch touched.
"""

from __future__ import annotations

from strandline.metadata.values import PartitionInfo
from strandline.raft.disk.batches import MetadataBatch
from strandline.simulation.cluster.checker import Checker
from strandline.simulation.cluster.committed_metadata import CommittedMetadata
from strandline.simulation.cluster.metadata_model import Assignment, MetadataModel
from strandline.simulation.cluster.violation import Violation


class ImageMatchesRecords(Checker):
    def __init__(self, ledger: CommittedMetadata, scribe: MetadataModel) -> None:
        self._ledger = ledger
        self._scribe = scribe
        ledger.tell(self._committed)

    def _committed(self, batch: MetadataBatch) -> None:
        """Told after the scribe."""
        scribe, image = self._scribe, self._ledger.image
        if batch.is_control or scribe.transaction_open or image.transaction_open:
            return
        found = {topic.id: topic.name for topic in image.latest.topics()}
        if found != scribe.topics:
            self._raise(batch, f"the topics are {found}, and should be {scribe.topics}")
        settings = {(each.type, each.name): dict(values) for each, values in image.configs.configs.items() if values}
        wanted = {resource: values for resource, values in scribe.settings.items() if values}
        if settings != wanted:
            self._raise(batch, f"the settings are {settings}, and should be {wanted}")
        for key in sorted(scribe.touched & scribe.partitions.keys()):
            partition = image.latest.partition(*key)
            if partition is None or _assignment(partition) != scribe.partitions[key]:
                self._raise(batch, f"partition {key} is {partition}, and should be {scribe.partitions[key]}")

    def _raise(self, batch: MetadataBatch, why: str) -> None:
        raise Violation("I-4", f"after what was committed up to {batch.next_offset}, {why}")


def _assignment(partition: PartitionInfo) -> Assignment:
    return Assignment(
        partition.replicas,
        partition.isr,
        partition.leader,
        partition.adding,
        partition.removing,
        partition.elr,
        partition.last_known_elr,
    )
