"""What the replicas of a quorum say to one another, asked of its only voter by somebody who is none of them.

Epochs above the quorum's would depose the leader that the other scripts need, so only old and current ones are used.
"""

from __future__ import annotations

from typing import Any

from cluster.handlers.scripts.running import Asked, script
from cluster.handlers.talk import Talk
from strandline.model.ids import METADATA_TOPIC, METADATA_TOPIC_ID, ZERO_UUID, Uuid
from strandline.protocol.apis import API, ApiKey
from strandline.protocol.framing import request_parts
from strandline.protocol.messages.brokers import EnvelopeRequest
from strandline.protocol.messages.cluster import DescribeClusterRequest
from strandline.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from strandline.protocol.messages.quorum import (
    AddRaftVoterRequest,
    BeginQuorumEpochRequest,
    BeginQuorumEpochRequestPartitionData,
    BeginQuorumEpochRequestTopicData,
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    EndQuorumEpochRequest,
    EndQuorumEpochRequestPartitionData,
    EndQuorumEpochRequestTopicData,
    FetchSnapshotRequest,
    FetchSnapshotRequestPartitionSnapshot,
    FetchSnapshotRequestTopicSnapshot,
    Listener,
    RemoveRaftVoterRequest,
    SnapshotId,
    UpdateRaftVoterRequest,
    VoteRequest,
    VoteRequestPartitionData,
    VoteRequestTopicData,
)
from strandline.protocol.messages.topics import DeleteTopicsRequest, DeleteTopicState

DIRECTORY = Uuid(b"another log dir ")
MOVING = frozenset(
    {"leader_epoch", "epoch", "high_watermark", "last_stable_offset", "log_start_offset", "records", "end_offset"}
)
FUTURE = Uuid(b"nobody log dir  ")


class Quorum:
    def __init__(self, talk: Talk) -> None:
        one = DescribeQuorumRequestPartitionData(partition_index=0)
        topic = DescribeQuorumRequestTopicData(topic_name=METADATA_TOPIC, partitions=[one])
        described = talk.quietly(DescribeQuorumRequest(topics=[topic])).topics[0].partitions[0]
        self.epoch: int = described.leader_epoch
        self.end_offset: int = described.high_watermark
        self.leader_id: int = described.leader_id
        self.directory_id: Uuid = described.current_voters[0].replica_directory_id
        self.cluster_id: str = talk.quietly(DescribeClusterRequest()).cluster_id


@script(ApiKey.VOTE, Asked.CONTROLLER)
def votes(talk: Talk) -> None:
    quorum = Quorum(talk)

    def ask(
        label: str, *, cluster_id: str | None = quorum.cluster_id, topic: str = METADATA_TOPIC, **fields: Any
    ) -> None:
        partition = VoteRequestPartitionData(
            replica_epoch=quorum.epoch,
            replica_id=9,
            replica_directory_id=DIRECTORY,
            voter_directory_id=quorum.directory_id,
            last_offset_epoch=max(0, quorum.epoch - 1),
            last_offset=0,
        )
        for name, value in fields.items():
            setattr(partition, name, value)
        data = VoteRequestTopicData(topic_name=topic, partitions=[partition])
        request = VoteRequest(cluster_id=cluster_id, voter_id=quorum.leader_id, topics=[data])
        talk.ask(label, request, mask=MOVING)

    ask("in another cluster", cluster_id="another")
    ask("without a cluster", cluster_id=None)
    ask("of another topic", topic="t")
    ask("of another partition", partition_index=1)
    ask("in an old epoch", replica_epoch=0, last_offset_epoch=0)
    ask("in the leader's own epoch")
    ask("with a log from the future", last_offset_epoch=quorum.epoch + 1)
    ask("with a negative offset", last_offset=-1)
    ask("with a negative epoch", last_offset_epoch=-1)
    if talk.version >= 1:
        ask("for a voter with another directory", voter_directory_id=FUTURE)
    if talk.version >= 2:
        ask("asking first", pre_vote=True)


@script(ApiKey.BEGIN_QUORUM_EPOCH, Asked.CONTROLLER)
def beginnings(talk: Talk) -> None:
    quorum = Quorum(talk)

    def ask(
        label: str, *, cluster_id: str | None = quorum.cluster_id, topic: str = METADATA_TOPIC, **fields: Any
    ) -> None:
        partition = BeginQuorumEpochRequestPartitionData(
            voter_directory_id=quorum.directory_id, leader_id=9, leader_epoch=quorum.epoch - 1
        )
        for name, value in fields.items():
            setattr(partition, name, value)
        data = BeginQuorumEpochRequestTopicData(topic_name=topic, partitions=[partition])
        request = BeginQuorumEpochRequest(cluster_id=cluster_id, voter_id=quorum.leader_id, topics=[data])
        talk.ask(label, request, mask=MOVING)

    ask("in another cluster", cluster_id="another")
    ask("of another topic", topic="t")
    ask("of an old epoch")


@script(ApiKey.END_QUORUM_EPOCH, Asked.CONTROLLER)
def ends(talk: Talk) -> None:
    quorum = Quorum(talk)

    def ask(
        label: str, *, cluster_id: str | None = quorum.cluster_id, topic: str = METADATA_TOPIC, **fields: Any
    ) -> None:
        partition = EndQuorumEpochRequestPartitionData(leader_id=9, leader_epoch=quorum.epoch - 1)
        for name, value in fields.items():
            setattr(partition, name, value)
        data = EndQuorumEpochRequestTopicData(topic_name=topic, partitions=[partition])
        talk.ask(label, EndQuorumEpochRequest(cluster_id=cluster_id, topics=[data]), mask=MOVING)

    ask("in another cluster", cluster_id="another")
    ask("of another topic", topic="t")
    ask("of an old epoch")


@script(ApiKey.FETCH, Asked.CONTROLLER)
def fetches_of_the_metadata_log(talk: Talk) -> None:
    quorum = Quorum(talk)

    def ask(
        label: str, *, cluster_id: str | None = quorum.cluster_id, topic_id: Uuid = METADATA_TOPIC_ID, **fields: Any
    ) -> None:
        partition = FetchPartition(current_leader_epoch=quorum.epoch, last_fetched_epoch=0, partition_max_bytes=1 << 20)
        if talk.version < 12:
            partition.last_fetched_epoch = -1
        for name, value in fields.items():
            setattr(partition, name, value)
        topic = FetchTopic(topic=METADATA_TOPIC, topic_id=topic_id, partitions=[partition])
        request = FetchRequest(
            cluster_id=cluster_id, replica_id=9, replica_state=ReplicaState(replica_id=9), max_wait_ms=0, topics=[topic]
        )
        if talk.version < 15:
            request.replica_state = ReplicaState()
        else:
            request.replica_id = -1
        talk.ask(label, request, mask=MOVING)

    if talk.version >= 12:
        ask("in another cluster", cluster_id="another")
    ask("from the beginning")
    if talk.version >= 13:
        ask("of another topic", topic_id=DIRECTORY)
    ask("of another partition", partition=1)
    if talk.version >= 9:
        ask("in an old epoch", current_leader_epoch=quorum.epoch - 1)
        ask("in an epoch to come", current_leader_epoch=quorum.epoch + 1)
    if talk.version >= 12:
        ask("beyond the end", fetch_offset=quorum.end_offset + 1_000_000, last_fetched_epoch=quorum.epoch)
        ask("after an epoch that never was", fetch_offset=1, last_fetched_epoch=quorum.epoch + 1)
    ask("from a negative offset", fetch_offset=-5)


@script(ApiKey.FETCH_SNAPSHOT, Asked.CONTROLLER)
def fetches_of_snapshots(talk: Talk) -> None:
    quorum = Quorum(talk)

    def ask(
        label: str, *, cluster_id: str | None = quorum.cluster_id, topic: str = METADATA_TOPIC, **fields: Any
    ) -> None:
        partition = FetchSnapshotRequestPartitionSnapshot(
            current_leader_epoch=quorum.epoch, snapshot_id=SnapshotId(end_offset=3, epoch=1)
        )
        for name, value in fields.items():
            setattr(partition, name, value)
        data = FetchSnapshotRequestTopicSnapshot(name=topic, partitions=[partition])
        talk.ask(
            label,
            FetchSnapshotRequest(cluster_id=cluster_id, replica_id=9, topics=[data]),
            mask=MOVING,
            differs=None if cluster_id == "another" else "Kafka 4.3.1 cannot encode its own refusal: it has no records",
        )

    ask("in another cluster", cluster_id="another")
    ask("of another topic", topic="t")
    ask("of another partition", partition=1)
    ask("that is not there")
    ask("in an old epoch", current_leader_epoch=quorum.epoch - 1)
    ask("in an epoch to come", current_leader_epoch=quorum.epoch + 1)


@script(ApiKey.ADD_RAFT_VOTER, Asked.BOTH)
def newcomers(talk: Talk) -> None:
    quorum = Quorum(talk)

    def ask(label: str, **fields: Any) -> None:
        request = AddRaftVoterRequest(
            cluster_id=quorum.cluster_id,
            timeout_ms=1_000,
            voter_id=9,
            voter_directory_id=DIRECTORY,
            listeners=[Listener(name="CONTROLLER", host="127.0.0.1", port=9)],
        )
        for name, value in fields.items():
            setattr(request, name, value)
        talk.ask(label, request)

    ask("in another cluster", cluster_id="another")
    ask("with the id of a voter", voter_id=quorum.leader_id)
    ask("who is a voter", voter_id=quorum.leader_id, voter_directory_id=quorum.directory_id)
    ask("without a directory", voter_directory_id=ZERO_UUID)
    ask("without listeners", listeners=[])
    ask("without the listener that controllers use", listeners=[Listener(name="OTHER", host="127.0.0.1", port=9)])
    ask("who does not answer")


@script(ApiKey.REMOVE_RAFT_VOTER, Asked.BOTH)
def removals(talk: Talk) -> None:
    quorum = Quorum(talk)

    def ask(label: str, **fields: Any) -> None:
        request = RemoveRaftVoterRequest(cluster_id=quorum.cluster_id, voter_id=9, voter_directory_id=DIRECTORY)
        for name, value in fields.items():
            setattr(request, name, value)
        talk.ask(label, request)

    ask("in another cluster", cluster_id="another")
    ask("of somebody who does not vote")
    ask("of a voter with another directory", voter_id=quorum.leader_id)
    ask("of the last voter", voter_id=quorum.leader_id, voter_directory_id=quorum.directory_id)


@script(ApiKey.UPDATE_RAFT_VOTER, Asked.CONTROLLER)
def updates(talk: Talk) -> None:
    quorum = Quorum(talk)

    def ask(label: str, **fields: Any) -> None:
        request = UpdateRaftVoterRequest(
            cluster_id=quorum.cluster_id,
            current_leader_epoch=quorum.epoch,
            voter_id=9,
            voter_directory_id=DIRECTORY,
            listeners=[Listener(name="CONTROLLER", host="127.0.0.1", port=9)],
        )
        for name, value in fields.items():
            setattr(request, name, value)
        talk.ask(label, request, mask=MOVING)

    ask("in another cluster", cluster_id="another")
    ask("of somebody who does not vote")
    ask("without listeners", listeners=[])
    ask("in an old epoch", current_leader_epoch=quorum.epoch - 1)
    ask("in an epoch to come", current_leader_epoch=quorum.epoch + 1)


@script(ApiKey.ENVELOPE, Asked.CONTROLLER)
def envelopes(talk: Talk) -> None:
    principal = b"\x00\x00\x05User\x04ada\x00\x00"
    inside = DeleteTopicsRequest(topics=[DeleteTopicState(name="there is none")], timeout_ms=30_000)
    data = b"".join(bytes(part) for part in request_parts(API[20], 6, 5, "script", inside))[4:]  # type: ignore[arg-type]

    def ask(label: str, **fields: Any) -> None:
        request = EnvelopeRequest(request_data=data, request_principal=principal, client_host_address=b"\x7f\0\0\1")
        for name, value in fields.items():
            setattr(request, name, value)
        talk.ask(label, request, mask={"response_data"})

    ask("with a request that fails inside")
    ask("with an address that is none", client_host_address=b"\x7f")
    ask("with an API that is not forwarded", request_data=b"\x00\x12\x00\x00\x00\x00\x00\x05\x00\x06script")
