"""Topics and their partitions: names, ids, replicas, leaders, epochs.

A part of `metadata.image`. Invariants: topic names and ids map to each other; the partitions of a topic are
0 … count-1; a partition epoch rises with every change, a leader epoch whenever a change names a leader (even the same
one).
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from strandline.metadata.record_versions import DIRECTORIES_SINCE
from strandline.metadata.values import NO_LEADER, PartitionInfo, PartitionKey, TopicInfo
from strandline.model.errors import NodeFault
from strandline.model.ids import DIRECTORY_MIGRATING, Uuid
from strandline.model.timeline import Timeline, TimelineMap
from strandline.protocol.messages.metadata_records import (
    ClearElrRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from strandline.protocol.types import Message

LEADER_UNCHANGED = -2
RECOVERY_STATE_UNCHANGED = -1


class TopicsImage:
    def __init__(self, timeline: Timeline) -> None:
        self.ids: TimelineMap[str, Uuid] = TimelineMap(timeline)
        self.topics: TimelineMap[Uuid, TopicInfo] = TimelineMap(timeline)
        self.partitions: TimelineMap[PartitionKey, PartitionInfo] = TimelineMap(timeline)
        self.look_alikes: TimelineMap[str, tuple[str, ...]] = TimelineMap(timeline)
        """Names with `.` or `_`, by their form with `_` only: they collide in metric names."""

    def replay_topic(self, record: TopicRecord) -> None:
        if record.name in self.ids:
            raise NodeFault(f"topic {record.name!r} is created while it exists")
        self.ids[record.name] = record.topic_id
        self.topics[record.topic_id] = TopicInfo(record.topic_id, record.name)
        look = look_alike(record.name)
        if look is not None:
            self.look_alikes[look] = (*(self.look_alikes.get(look) or ()), record.name)

    def replay_remove_topic(self, record: RemoveTopicRecord) -> TopicInfo:
        topic = self._topic(record.topic_id)
        for partition in range(topic.partition_count):
            if (topic.id, partition) in self.partitions:
                del self.partitions[topic.id, partition]
        del self.topics[topic.id]
        del self.ids[topic.name]
        look = look_alike(topic.name)
        if look is not None:
            self.look_alikes[look] = tuple(name for name in self.look_alikes.get(look) or () if name != topic.name)
        return topic

    def replay_partition(self, record: PartitionRecord) -> None:
        topic = self._topic(record.topic_id)
        partition = record.partition_id
        if partition >= topic.partition_count:
            self.topics[topic.id] = TopicInfo(topic.id, topic.name, partition + 1)
        replicas = tuple(record.replicas)
        self.partitions[topic.id, partition] = PartitionInfo(
            replicas,
            tuple(record.isr),
            tuple(record.removing_replicas),
            tuple(record.adding_replicas),
            record.leader,
            record.leader_epoch,
            record.partition_epoch,
            # Records from before KIP-858 have no directories; Kafka reads them as MIGRATING for each replica.
            tuple(record.directories) or (DIRECTORY_MIGRATING,) * len(replicas),
            tuple(record.eligible_leader_replicas or ()),
            tuple(record.last_known_elr or ()),
            record.leader_recovery_state,
        )

    def replay_partition_change(self, record: PartitionChangeRecord) -> None:
        key = (record.topic_id, record.partition_id)
        partition = self.partitions.get(key)
        if partition is None:
            raise NodeFault(f"partition {record.partition_id} of topic {record.topic_id} changes but does not exist")
        self.partitions[key] = changed_partition(partition, record)

    def replay_clear_elr(self, record: ClearElrRecord) -> None:
        if record.topic_name:
            topic_id = self.ids.get(record.topic_name)
            if topic_id is None:
                raise NodeFault(f"eligible leaders are cleared for topic {record.topic_name!r}, which does not exist")
            keys = [(topic_id, partition) for partition in range(self._topic(topic_id).partition_count)]
        else:
            keys = self.partitions.keys()
        for key in keys:
            partition = self.partitions.get(key)
            if partition is not None and (partition.elr or partition.last_known_elr):
                epoch = partition.partition_epoch + 1
                self.partitions[key] = replace(partition, elr=(), last_known_elr=(), partition_epoch=epoch)

    def _topic(self, topic_id: Uuid) -> TopicInfo:
        topic = self.topics.get(topic_id)
        if topic is None:
            raise NodeFault(f"a metadata record names topic id {topic_id}, which does not exist")
        return topic

    def records(self, moment: int, metadata_version: int) -> Iterator[Message]:
        for topic_id, topic in self.topics.items(moment):
            yield TopicRecord(name=topic.name, topic_id=topic_id)
            for index in range(topic.partition_count):
                partition = self.partitions.get((topic_id, index), moment)
                if partition is not None:
                    yield partition_record(topic_id, index, partition, metadata_version)


def look_alike(name: str) -> str | None:
    """What a topic name becomes where `.` and `_` are the same; None for a name that has neither."""
    return name.replace(".", "_") if "." in name or "_" in name else None


def changed_partition(partition: PartitionInfo, record: PartitionChangeRecord) -> PartitionInfo:
    """The partition after this record. Also used by the controller, to decide on uncommitted changes."""
    leader, leader_epoch = partition.leader, partition.leader_epoch
    if record.leader != LEADER_UNCHANGED:
        leader, leader_epoch = record.leader, leader_epoch + 1
    replicas = partition.replicas if record.replicas is None else tuple(record.replicas)
    directories = partition.directories if record.directories is None else tuple(record.directories)
    if record.replicas is not None and record.directories is None:
        known = dict(zip(partition.replicas, partition.directories, strict=False))
        directories = tuple(known.get(replica, DIRECTORY_MIGRATING) for replica in replicas)
    return PartitionInfo(
        replicas,
        partition.isr if record.isr is None else tuple(record.isr),
        partition.removing if record.removing_replicas is None else tuple(record.removing_replicas),
        partition.adding if record.adding_replicas is None else tuple(record.adding_replicas),
        leader,
        leader_epoch,
        partition.partition_epoch + 1,
        directories,
        partition.elr if record.eligible_leader_replicas is None else tuple(record.eligible_leader_replicas),
        partition.last_known_elr if record.last_known_elr is None else tuple(record.last_known_elr),
        partition.leader_recovery_state
        if record.leader_recovery_state == RECOVERY_STATE_UNCHANGED
        else record.leader_recovery_state,
    )


def partition_record(topic_id: Uuid, index: int, partition: PartitionInfo, metadata_version: int) -> PartitionRecord:
    """The record that creates this partition, with the fields of the metadata version."""
    return PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        removing_replicas=list(partition.removing),
        adding_replicas=list(partition.adding),
        leader=partition.leader if partition.leader >= 0 else NO_LEADER,
        leader_recovery_state=partition.leader_recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=list(partition.directories) if metadata_version >= DIRECTORIES_SINCE else [],
        eligible_leader_replicas=list(partition.elr) or None,
        last_known_elr=list(partition.last_known_elr) or None,
    )
