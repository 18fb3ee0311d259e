"""I-6: a fenced broker is in no ISR, the leader is in the ISR, ELR and ISR are disjoint, and the ELR is empty while the
ISR is large enough.

Checked on the image of the committed metadata after every batch; that the nodes' images agree with it is I-4.
"""

from __future__ import annotations

from collections.abc import Mapping

from strandline.metadata.values import NO_LEADER, PartitionInfo
from strandline.metadata.views import View
from strandline.raft.disk.batches import MetadataBatch
from strandline.simulation.cluster.checker import Checker
from strandline.simulation.cluster.committed_metadata import CommittedMetadata
from strandline.simulation.cluster.violation import Violation

_MIN_ISR = "min.insync.replicas"


class PartitionsAreConsistent(Checker):
    def __init__(self, metadata: CommittedMetadata, configs: Mapping[str, str]) -> None:
        self._metadata = metadata
        self._configs = configs
        self._seen = -1
        metadata.subscribe(self._on_batch)

    def _on_batch(self, batch: MetadataBatch) -> None:
        image = self._metadata.image
        changes = image.topics.partitions.changes + image.cluster.brokers.changes + image.configs.configs.changes
        if changes == self._seen or image.transaction_open:
            return
        self._seen = changes
        view = image.committed
        with_elr = view.features().get("eligible.leader.replicas.version", 0) > 0
        fenced = {broker.id for broker in view.brokers() if broker.fenced}
        for key, partition in view.all_partitions():
            topic = view.topic_by_id(key[0])
            name = "?" if topic is None else topic.name
            min_isr = self._min_isr(view, name)
            why = _inconsistency(partition, fenced, with_elr) or _needless_elr(partition, min_isr, with_elr)
            if why is not None:
                raise Violation("I-6", f"at {batch.next_offset}, {name}-{key[1]}: {why} ({partition})")

    def _min_isr(self, view: View, topic: str) -> int:
        for configs in (view.topic_configs(topic), view.broker_configs(None), self._configs):
            if _MIN_ISR in configs:
                return int(configs[_MIN_ISR])
        return 1


def _needless_elr(partition: PartitionInfo, min_isr: int, with_elr: bool) -> str | None:
    """An ELR where there must be none. One left from before the feature was disabled is harmless."""
    if not set(partition.elr) <= set(partition.replicas):
        return "the ELR has members that are not replicas"
    if with_elr and partition.elr and len(partition.isr) >= min(min_isr, len(partition.replicas)):
        return f"the ELR is not empty although the ISR has at least {min_isr} members"
    return None


def _inconsistency(partition: PartitionInfo, fenced: set[int], with_elr: bool) -> str | None:
    fenced_in_isr = [broker for broker in partition.isr if broker in fenced]
    last = not with_elr and len(partition.isr) == 1 and partition.leader == NO_LEADER
    if fenced_in_isr and not last:
        return f"the fenced brokers {fenced_in_isr} are in the ISR"
    if partition.leader != NO_LEADER and partition.leader not in partition.isr:
        return f"the leader {partition.leader} is not in the ISR"
    if not set(partition.isr) <= set(partition.replicas):
        return "the ISR has members that are not replicas"
    if set(partition.elr) & set(partition.isr):
        return "ELR and ISR overlap"
    return None
