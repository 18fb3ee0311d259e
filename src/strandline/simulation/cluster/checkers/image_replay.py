"""I-4: the image after replaying committed records equals the independent model of them (metadata_model.py).

All nodes replay with the same code, so comparing them with each other would not find a bug in it. Compared after each
batch: the topics, all configs, and the partitions that the batch changed.
"""

from __future__ import annotations

from strandline.metadata.values import PartitionInfo
from strandline.raft.disk.batches import MetadataBatch
from strandline.simulation.cluster.checker import Checker
from strandline.simulation.cluster.committed_metadata import CommittedMetadata
from strandline.simulation.cluster.metadata_model import Assignment, MetadataModel
from strandline.simulation.cluster.violation import Violation


class ImageMatchesRecords(Checker):
    def __init__(self, metadata: CommittedMetadata, model: MetadataModel) -> None:
        self._metadata = metadata
        self._model = model
        metadata.subscribe(self._on_batch)

    def _on_batch(self, batch: MetadataBatch) -> None:
        """Called after the model has replayed the batch."""
        model, image = self._model, self._metadata.image
        if batch.is_control or model.transaction_open or image.transaction_open:
            return
        found = {topic.id: topic.name for topic in image.latest.topics()}
        if found != model.topics:
            self._raise(batch, f"the topics are {found}, and should be {model.topics}")
        configs = {(each.type, each.name): dict(values) for each, values in image.configs.configs.items() if values}
        expected = {resource: values for resource, values in model.configs.items() if values}
        if configs != expected:
            self._raise(batch, f"the configs are {configs}, and should be {expected}")
        for key in sorted(model.touched & model.partitions.keys()):
            partition = image.latest.partition(*key)
            if partition is None or _assignment(partition) != model.partitions[key]:
                self._raise(batch, f"partition {key} is {partition}, and should be {model.partitions[key]}")

    def _raise(self, batch: MetadataBatch, why: str) -> None:
        raise Violation("I-4", f"after replay up to {batch.next_offset}, {why}")


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
