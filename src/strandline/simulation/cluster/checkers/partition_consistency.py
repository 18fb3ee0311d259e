"""I-6: a fenced broker is in no ISR, the leader is in the ISR, ELR and ISR are disjoint, the ELR is empty while the ISR
is large enough. I-7: partition, leader and broker epochs never fall (and nobody acts with an old one: ghosts.py).

Both are checked on the ledger's image after every committed batch; that the nodes' images agree with it is I-4.
"""

from __future__ import annotations

from collections.abc import Mapping

from strandline.metadata.values import NO_LEADER, PartitionInfo, PartitionKey
from strandline.metadata.views import View
from strandline.protocol.messages import metadata_records as kinds
from strandline.raft.disk.batches import MetadataBatch
from strandline.simulation.cluster.checker import Checker
from strandline.simulation.cluster.chronicle import Chronicle
from strandline.simulation.cluster.committed_metadata import CommittedMetadata
from strandline.simulation.cluster.violation import Violation

_MIN_ISR = "min.insync.replicas"


class PartitionsAreConsistent(Checker):
    """I-6."""

    def __init__(self, ledger: CommittedMetadata, settings: Mapping[str, str]) -> None:
        self._ledger = ledger
        self._settings = settings
        self._seen = -1
        ledger.tell(self._committed)

    def _committed(self, batch: MetadataBatch) -> None:
        image = self._ledger.image
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
            why = _unsound(partition, fenced, with_elr) or _needless(partition, self._min_isr(view, name), with_elr)
            if why is not None:
                raise Violation("I-6", f"at {batch.next_offset}, {name}-{key[1]}: {why} ({partition})")

    def _min_isr(self, view: View, topic: str) -> int:
        for settings in (view.topic_configs(topic), view.broker_configs(None), self._settings):
            if _MIN_ISR in settings:
                return int(settings[_MIN_ISR])
        return 1


def _needless(partition: PartitionInfo, min_isr: int, with_elr: bool) -> str | None:
    """An ELR where none may be. What is left of one from before the feature was taken back harms nobody."""
    if not set(partition.elr) <= set(partition.replicas):
        return "the ELR has members that are no replicas"
    if with_elr and partition.elr and len(partition.isr) >= min(min_isr, len(partition.replicas)):
        return f"the ELR has members, though the ISR has the {min_isr} that it needs"
    return None


def _unsound(partition: PartitionInfo, fenced: set[int], with_elr: bool) -> str | None:
    gone = [broker for broker in partition.isr if broker in fenced]
    last = not with_elr and len(partition.isr) == 1 and partition.leader == NO_LEADER
    if gone and not last:
        return f"the fenced brokers {gone} are in the ISR"
    if partition.leader != NO_LEADER and partition.leader not in partition.isr:
        return f"the leader {partition.leader} is not in the ISR"
    if not set(partition.isr) <= set(partition.replicas):
        return "the ISR has members that are no replicas"
    if set(partition.elr) & set(partition.isr):
        return "ELR and ISR overlap"
    return None


class EpochsNeverDecrease(Checker):
    """I-7."""

    def __init__(self, ledger: CommittedMetadata, chronicle: Chronicle) -> None:
        self._ledger = ledger
        self._chronicle = chronicle
        self._partitions: dict[PartitionKey, PartitionInfo] = {}
        self._brokers: dict[int, tuple[int, bool]] = {}
        """Epoch, and whether it is fenced, of the newest registration of each."""
        ledger.tell(self._committed)

    def _committed(self, batch: MetadataBatch) -> None:
        view = self._ledger.image.latest
        for offset, record in enumerate(batch.records, batch.base_offset):
            match record:
                case kinds.PartitionRecord() | kinds.PartitionChangeRecord():
                    key = (record.topic_id, record.partition_id)
                    self._partition(key, view.partition(*key))
                case kinds.RegisterBrokerRecord():
                    self._registered(record, offset)
                case kinds.BrokerRegistrationChangeRecord():
                    self._registration_changed(record, offset)

    def _partition(self, key: PartitionKey, now: PartitionInfo | None) -> None:
        before = self._partitions.get(key)
        if now is None:
            return
        self._partitions[key] = now
        if before is None:
            return
        if now.partition_epoch < before.partition_epoch or now.leader_epoch < before.leader_epoch:
            raise Violation("I-7", f"epochs of partition {key} fall: {before} becomes {now}")
        if now != before and now.partition_epoch == before.partition_epoch:
            raise Violation("I-7", f"partition {key} changes within one partition epoch: {before} becomes {now}")
        if now.leader != before.leader and now.leader_epoch == before.leader_epoch:
            raise Violation("I-7", f"partition {key} changes its leader within one leader epoch: {before}, {now}")

    def _registered(self, record: kinds.RegisterBrokerRecord, offset: int) -> None:
        newest, _ = self._brokers.get(record.broker_id, (-1, True))
        # The same process may register again; its epoch stays.
        if record.broker_epoch != newest and (record.broker_epoch != offset or record.broker_epoch < newest):
            why = f"broker {record.broker_id} is registered at offset {offset} with epoch {record.broker_epoch}"
            raise Violation("I-7", f"{why}, after {newest}")
        self._brokers[record.broker_id] = (record.broker_epoch, record.fenced)
        self._chronicle.note("controller", f"registers broker {record.broker_id}, epoch {record.broker_epoch}")

    def _registration_changed(self, record: kinds.BrokerRegistrationChangeRecord, offset: int) -> None:
        epoch, fenced = self._brokers.get(record.broker_id, (-1, True))
        what = {1: "fences", -1: "unfences"}.get(record.fenced, "changes")
        self._chronicle.note("controller", f"{what} broker {record.broker_id}, epoch {record.broker_epoch}")
        if record.broker_epoch != epoch:
            why = f"at {offset} a change for broker {record.broker_id} names epoch {record.broker_epoch}"
            raise Violation("I-7", f"{why}, and it has registered with {epoch}")
        if record.fenced:
            if fenced == (record.fenced > 0):
                raise Violation(
                    "I-7", f"at {offset} the controller {what} broker {record.broker_id} twice in one epoch"
                )
            self._brokers[record.broker_id] = (epoch, not fenced)
