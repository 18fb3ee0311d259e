"""An independent model of topics, partitions and configs, replayed from committed records without `metadata.image`.

`CommittedMetadata` replays with the same image code as the nodes and so shares its bugs; this model is small and
separate. It replays record by record, since one batch may change a partition twice, and notifies checkers of each
change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from strandline.metadata.values import NO_LEADER, PartitionKey
from strandline.model.ids import Uuid
from strandline.protocol.messages import metadata_records as kinds
from strandline.protocol.types import Message
from strandline.raft.disk.batches import MetadataBatch

TOPIC = 2
_UNCHANGED = -2

Resource = tuple[int, str]
"""Type and name of a config resource."""


class Assignment(msgspec.Struct, frozen=True):
    """Replicas, ISR and leader of a partition."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int = NO_LEADER
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()


_State = tuple[dict[Uuid, str], dict[PartitionKey, Assignment], dict[Resource, dict[str, str]]]


class MetadataModel:
    def __init__(self) -> None:
        self.topics: dict[Uuid, str] = {}
        self.partitions: dict[PartitionKey, Assignment] = {}
        self.configs: dict[Resource, dict[str, str]] = {}
        self.active: set[int] = set()
        """Brokers that are neither fenced nor in controlled shutdown."""
        self.touched: set[PartitionKey] = set()
        """Partitions changed by the last batch."""
        self._before: _State | None = None
        """The state at the start of the open transaction."""
        self._on_change: list[Callable[[str, Assignment, Assignment], None]] = []

    @property
    def transaction_open(self) -> bool:
        return self._before is not None

    def subscribe(self, on_change: Callable[[str, Assignment, Assignment], None]) -> None:
        """Calls `on_change` with the name of a partition, its state before and now, for each record that changes it."""
        self._on_change.append(on_change)

    def replay(self, batch: MetadataBatch) -> None:
        self.touched = set()
        for record in batch.records:
            self._replay(record)

    def _replay(self, record: Message) -> None:
        match record:
            case kinds.TopicRecord():
                self.topics[record.topic_id] = record.name
            case kinds.RemoveTopicRecord():
                self._remove_topic(record.topic_id)
            case kinds.ConfigRecord():
                self._set(record)
            case kinds.PartitionRecord():
                self._partition((record.topic_id, record.partition_id), _whole(record))
            case kinds.PartitionChangeRecord():
                key = (record.topic_id, record.partition_id)
                self._partition(key, _changed(self.partitions[key], record))
            case kinds.RegisterBrokerRecord():
                self._broker(record.broker_id, not record.fenced and not record.in_controlled_shutdown)
            case kinds.BrokerRegistrationChangeRecord() if record.fenced or record.in_controlled_shutdown:
                self._broker(record.broker_id, record.fenced < 0)
            case kinds.UnregisterBrokerRecord():
                self._broker(record.broker_id, False)
            case kinds.ClearElrRecord():
                self._clear_elr(record.topic_name)
            case kinds.BeginTransactionRecord():
                configs = {resource: dict(values) for resource, values in self.configs.items()}
                self._before = (dict(self.topics), dict(self.partitions), configs)
            case kinds.EndTransactionRecord():
                self._before = None
            case kinds.AbortTransactionRecord() if self._before is not None:
                self.topics, self.partitions, self.configs = self._before
                self._before = None

    def _broker(self, broker_id: int, is_active: bool) -> None:
        self.active.discard(broker_id)
        if is_active:
            self.active.add(broker_id)

    def _remove_topic(self, topic_id: Uuid) -> None:
        self.configs.pop((TOPIC, self.topics.pop(topic_id)), None)
        for key in [key for key in self.partitions if key[0] == topic_id]:
            del self.partitions[key]

    def _clear_elr(self, topic: str) -> None:
        """An empty name stands for all topics."""
        for key, known in self.partitions.items():
            if topic in ("", self.topics[key[0]]):
                self.partitions[key] = replace(known, elr=(), last_known_elr=())
                self.touched.add(key)

    def _set(self, record: kinds.ConfigRecord) -> None:
        values = self.configs.setdefault((record.resource_type, record.resource_name), {})
        if record.value is None:
            values.pop(record.name, None)
        else:
            values[record.name] = record.value

    def _partition(self, key: PartitionKey, now: Assignment) -> None:
        before = self.partitions.get(key)
        self.partitions[key] = now
        self.touched.add(key)
        if before is not None:
            for callback in self._on_change:
                callback(f"{self.topics[key[0]]}-{key[1]}", before, now)


def _whole(record: kinds.PartitionRecord) -> Assignment:
    return Assignment(
        tuple(record.replicas),
        tuple(record.isr),
        record.leader,
        tuple(record.adding_replicas),
        tuple(record.removing_replicas),
        tuple(record.eligible_leader_replicas or ()),
        tuple(record.last_known_elr or ()),
    )


def _changed(before: Assignment, record: kinds.PartitionChangeRecord) -> Assignment:
    def either(new: Sequence[int] | None, old: tuple[int, ...]) -> tuple[int, ...]:
        return old if new is None else tuple(new)

    return Assignment(
        either(record.replicas, before.replicas),
        either(record.isr, before.isr),
        before.leader if record.leader == _UNCHANGED else record.leader,
        either(record.adding_replicas, before.adding),
        either(record.removing_replicas, before.removing),
        either(record.eligible_leader_replicas, before.elr),
        either(record.last_known_elr, before.last_known_elr),
    )
