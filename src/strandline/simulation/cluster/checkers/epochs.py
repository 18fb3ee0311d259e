"""I-7: committed partition, leader and broker epochs never decrease. (Requests with stale epochs: stale_epochs.py.)"""

from __future__ import annotations

from strandline.metadata.values import PartitionInfo, PartitionKey
from strandline.protocol.messages import metadata_records as kinds
from strandline.raft.disk.batches import MetadataBatch
from strandline.simulation.cluster.checker import Checker
from strandline.simulation.cluster.chronicle import Chronicle
from strandline.simulation.cluster.committed_metadata import CommittedMetadata
from strandline.simulation.cluster.violation import Violation


class EpochsNeverDecrease(Checker):
    def __init__(self, metadata: CommittedMetadata, chronicle: Chronicle) -> None:
        self._metadata = metadata
        self._chronicle = chronicle
        self._partitions: dict[PartitionKey, PartitionInfo] = {}
        self._brokers: dict[int, tuple[int, bool]] = {}
        """(Epoch, is fenced) of the latest registration of each broker."""
        metadata.subscribe(self._on_batch)

    def _on_batch(self, batch: MetadataBatch) -> None:
        view = self._metadata.image.latest
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
            raise Violation("I-7", f"epochs of partition {key} decrease: {before} becomes {now}")
        if now != before and now.partition_epoch == before.partition_epoch:
            raise Violation("I-7", f"partition {key} changes within one partition epoch: {before} becomes {now}")
        if now.leader != before.leader and now.leader_epoch == before.leader_epoch:
            raise Violation("I-7", f"the leader of partition {key} changes within one leader epoch: {before}, {now}")

    def _registered(self, record: kinds.RegisterBrokerRecord, offset: int) -> None:
        newest, _ = self._brokers.get(record.broker_id, (-1, True))
        # The same process may register again and keep its epoch.
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
            why = f"at {offset} a change of broker {record.broker_id} has epoch {record.broker_epoch}"
            raise Violation("I-7", f"{why}, and its registration has {epoch}")
        if record.fenced:
            if fenced == (record.fenced > 0):
                raise Violation(
                    "I-7", f"at {offset} the controller {what} broker {record.broker_id} twice in one epoch"
                )
            self._brokers[record.broker_id] = (epoch, not fenced)
