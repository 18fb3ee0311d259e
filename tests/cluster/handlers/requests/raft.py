"""The RPCs between replicas of the quorum, sent to its only voter by a client that is not a replica.

A request with a higher epoch would depose the leader, which other scripts need: only old and current epochs are sent.
"""

from __future__ import annotations

from typing import Any

from cluster.handlers.script_run import ScriptRun
from cluster.handlers.script_runner import Listeners, script
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
VARYING = frozenset(
    {"leader_epoch", "epoch", "high_watermark", "last_stable_offset", "log_start_offset", "records", "end_offset"}
)
OTHER_DIRECTORY = Uuid(b"other directory ")
KAFKA_CANNOT_ENCODE = "Kafka 4.3.1 cannot encode its own error response, which has no records"


class Quorum:
    def __init__(self, run: ScriptRun) -> None:
        one = DescribeQuorumRequestPartitionData(partition_index=0)
        topic = DescribeQuorumRequestTopicData(topic_name=METADATA_TOPIC, partitions=[one])
        described = run.call(DescribeQuorumRequest(topics=[topic])).topics[0].partitions[0]
        self.epoch: int = described.leader_epoch
        self.end_offset: int = described.high_watermark
        self.leader_id: int = described.leader_id
        self.directory_id: Uuid = described.current_voters[0].replica_directory_id
        self.cluster_id: str = run.call(DescribeClusterRequest()).cluster_id


@script(ApiKey.VOTE, Listeners.CONTROLLER)
def votes(run: ScriptRun) -> None:
    quorum = Quorum(run)

    def record(
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
        run.record(label, request, mask=VARYING)

    record("in another cluster", cluster_id="another")
    record("without a cluster", cluster_id=None)
    record("of another topic", topic="t")
    record("of another partition", partition_index=1)
    record("in an old epoch", replica_epoch=0, last_offset_epoch=0)
    record("in the leader's own epoch")
    record("with a log of a future epoch", last_offset_epoch=quorum.epoch + 1)
    record("with a negative offset", last_offset=-1)
    record("with a negative epoch", last_offset_epoch=-1)
    if run.version >= 1:
        record("for a voter with another directory", voter_directory_id=OTHER_DIRECTORY)
    if run.version >= 2:
        record("as a pre-vote", pre_vote=True)


@script(ApiKey.BEGIN_QUORUM_EPOCH, Listeners.CONTROLLER)
def begin_quorum_epoch(run: ScriptRun) -> None:
    quorum = Quorum(run)

    def record(
        label: str, *, cluster_id: str | None = quorum.cluster_id, topic: str = METADATA_TOPIC, **fields: Any
    ) -> None:
        partition = BeginQuorumEpochRequestPartitionData(
            voter_directory_id=quorum.directory_id, leader_id=9, leader_epoch=quorum.epoch - 1
        )
        for name, value in fields.items():
            setattr(partition, name, value)
        data = BeginQuorumEpochRequestTopicData(topic_name=topic, partitions=[partition])
        request = BeginQuorumEpochRequest(cluster_id=cluster_id, voter_id=quorum.leader_id, topics=[data])
        run.record(label, request, mask=VARYING)

    record("in another cluster", cluster_id="another")
    record("of another topic", topic="t")
    record("of an old epoch")


@script(ApiKey.END_QUORUM_EPOCH, Listeners.CONTROLLER)
def end_quorum_epoch(run: ScriptRun) -> None:
    quorum = Quorum(run)

    def record(
        label: str, *, cluster_id: str | None = quorum.cluster_id, topic: str = METADATA_TOPIC, **fields: Any
    ) -> None:
        partition = EndQuorumEpochRequestPartitionData(leader_id=9, leader_epoch=quorum.epoch - 1)
        for name, value in fields.items():
            setattr(partition, name, value)
        data = EndQuorumEpochRequestTopicData(topic_name=topic, partitions=[partition])
        run.record(label, EndQuorumEpochRequest(cluster_id=cluster_id, topics=[data]), mask=VARYING)

    record("in another cluster", cluster_id="another")
    record("of another topic", topic="t")
    record("of an old epoch")


@script(ApiKey.FETCH, Listeners.CONTROLLER)
def fetches_of_the_metadata_log(run: ScriptRun) -> None:
    quorum = Quorum(run)

    def record(
        label: str, *, cluster_id: str | None = quorum.cluster_id, topic_id: Uuid = METADATA_TOPIC_ID, **fields: Any
    ) -> None:
        partition = FetchPartition(current_leader_epoch=quorum.epoch, last_fetched_epoch=0, partition_max_bytes=1 << 20)
        if run.version < 12:
            partition.last_fetched_epoch = -1
        for name, value in fields.items():
            setattr(partition, name, value)
        topic = FetchTopic(topic=METADATA_TOPIC, topic_id=topic_id, partitions=[partition])
        request = FetchRequest(
            cluster_id=cluster_id, replica_id=9, replica_state=ReplicaState(replica_id=9), max_wait_ms=0, topics=[topic]
        )
        if run.version < 15:
            request.replica_state = ReplicaState()
        else:
            request.replica_id = -1
        run.record(label, request, mask=VARYING)

    if run.version >= 12:
        record("in another cluster", cluster_id="another")
    record("from the beginning")
    if run.version >= 13:
        record("of another topic", topic_id=DIRECTORY)
    record("of another partition", partition=1)
    if run.version >= 9:
        record("in an old epoch", current_leader_epoch=quorum.epoch - 1)
        record("in a future epoch", current_leader_epoch=quorum.epoch + 1)
    if run.version >= 12:
        record("beyond the end", fetch_offset=quorum.end_offset + 1_000_000, last_fetched_epoch=quorum.epoch)
        record("after an unknown epoch", fetch_offset=1, last_fetched_epoch=quorum.epoch + 1)
    record("from a negative offset", fetch_offset=-5)


@script(ApiKey.FETCH_SNAPSHOT, Listeners.CONTROLLER)
def fetches_of_snapshots(run: ScriptRun) -> None:
    quorum = Quorum(run)

    def record(
        label: str, *, cluster_id: str | None = quorum.cluster_id, topic: str = METADATA_TOPIC, **fields: Any
    ) -> None:
        partition = FetchSnapshotRequestPartitionSnapshot(
            current_leader_epoch=quorum.epoch, snapshot_id=SnapshotId(end_offset=3, epoch=1)
        )
        for name, value in fields.items():
            setattr(partition, name, value)
        data = FetchSnapshotRequestTopicSnapshot(name=topic, partitions=[partition])
        run.record(
            label,
            FetchSnapshotRequest(cluster_id=cluster_id, replica_id=9, topics=[data]),
            mask=VARYING,
            differs=None if cluster_id == "another" else KAFKA_CANNOT_ENCODE,
        )

    record("in another cluster", cluster_id="another")
    record("of another topic", topic="t")
    record("of another partition", partition=1)
    record("of an unknown snapshot")
    record("in an old epoch", current_leader_epoch=quorum.epoch - 1)
    record("in a future epoch", current_leader_epoch=quorum.epoch + 1)


@script(ApiKey.ADD_RAFT_VOTER, Listeners.BOTH)
def voters_added(run: ScriptRun) -> None:
    quorum = Quorum(run)

    def record(label: str, **fields: Any) -> None:
        request = AddRaftVoterRequest(
            cluster_id=quorum.cluster_id,
            timeout_ms=1_000,
            voter_id=9,
            voter_directory_id=DIRECTORY,
            listeners=[Listener(name="CONTROLLER", host="127.0.0.1", port=9)],
        )
        for name, value in fields.items():
            setattr(request, name, value)
        run.record(label, request)

    record("in another cluster", cluster_id="another")
    record("with the id of a voter", voter_id=quorum.leader_id)
    record("that is a voter already", voter_id=quorum.leader_id, voter_directory_id=quorum.directory_id)
    record("without a directory", voter_directory_id=ZERO_UUID)
    record("without listeners", listeners=[])
    record("without the controller listener", listeners=[Listener(name="OTHER", host="127.0.0.1", port=9)])
    record("that does not respond")


@script(ApiKey.REMOVE_RAFT_VOTER, Listeners.BOTH)
def voters_removed(run: ScriptRun) -> None:
    quorum = Quorum(run)

    def record(label: str, **fields: Any) -> None:
        request = RemoveRaftVoterRequest(cluster_id=quorum.cluster_id, voter_id=9, voter_directory_id=DIRECTORY)
        for name, value in fields.items():
            setattr(request, name, value)
        run.record(label, request)

    record("in another cluster", cluster_id="another")
    record("of a node that is not a voter")
    record("of a voter with another directory", voter_id=quorum.leader_id)
    record("of the last voter", voter_id=quorum.leader_id, voter_directory_id=quorum.directory_id)


@script(ApiKey.UPDATE_RAFT_VOTER, Listeners.CONTROLLER)
def voters_updated(run: ScriptRun) -> None:
    quorum = Quorum(run)

    def record(label: str, **fields: Any) -> None:
        request = UpdateRaftVoterRequest(
            cluster_id=quorum.cluster_id,
            current_leader_epoch=quorum.epoch,
            voter_id=9,
            voter_directory_id=DIRECTORY,
            listeners=[Listener(name="CONTROLLER", host="127.0.0.1", port=9)],
        )
        for name, value in fields.items():
            setattr(request, name, value)
        run.record(label, request, mask=VARYING)

    record("in another cluster", cluster_id="another")
    record("of a node that is not a voter")
    record("without listeners", listeners=[])
    record("in an old epoch", current_leader_epoch=quorum.epoch - 1)
    record("in a future epoch", current_leader_epoch=quorum.epoch + 1)


@script(ApiKey.ENVELOPE, Listeners.CONTROLLER)
def envelopes(run: ScriptRun) -> None:
    principal = b"\x00\x00\x05User\x04ada\x00\x00"
    inside = DeleteTopicsRequest(topics=[DeleteTopicState(name="there is none")], timeout_ms=30_000)
    data = b"".join(bytes(part) for part in request_parts(API[20], 6, 5, "script", inside))[4:]  # type: ignore[arg-type]

    def record(label: str, **fields: Any) -> None:
        request = EnvelopeRequest(request_data=data, request_principal=principal, client_host_address=b"\x7f\0\0\1")
        for name, value in fields.items():
            setattr(request, name, value)
        run.record(label, request, mask={"response_data"})

    record("with a request that fails inside")
    record("with an invalid address", client_host_address=b"\x7f")
    record("with an API that is not forwarded", request_data=b"\x00\x12\x00\x00\x00\x00\x00\x05\x00\x06script")
