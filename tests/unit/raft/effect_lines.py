"""Effects of the raft machine as readable lines."""

from __future__ import annotations

from typing import Any

from strandline.model.errors import ErrorCode
from strandline.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from strandline.protocol.messages.cluster import UpdateFeaturesResponse
from strandline.protocol.messages.control_records import KRaftVersionRecord, LeaderChangeMessage, VotersRecord
from strandline.protocol.messages.fetch import FetchRequest, FetchResponse
from strandline.protocol.messages.quorum import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    DescribeQuorumResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
    ReplicaState,
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
    VoteRequest,
    VoteResponse,
)
from strandline.protocol.types import Message
from strandline.raft.machine.effects import (
    Commit,
    Effect,
    FinishSnapshot,
    Flush,
    Lead,
    LeaderChanged,
    Persist,
    Reply,
    ReplyWithRecords,
    ReplyWithSnapshot,
    Send,
    SnapshotChunk,
    StepDown,
    Truncate,
)
from strandline.raft.machine.messages import response_status
from strandline.raft.machine.values import NO_NODE
from unit.raft.memory_cluster import Envelope, Node, PendingRequest


def is_routine(effect: Effect) -> bool:
    """Fetches, responses without news, records that are sent, syncs."""
    match effect:
        case Send(request=FetchRequest()) | Flush() | ReplyWithRecords():
            return True
        case Reply(response=FetchResponse() as response):
            return _response_line(response) == "no records"
        case _:
            return False


def line_for(node: Node, effect: Effect) -> str:
    match effect:
        case Persist(state):
            leader = "" if state.leader_id == NO_NODE else f", leader {state.leader_id}"
            vote = "" if state.voted_id == NO_NODE else f", voted for {state.voted_id}"
            return f"{node.id} persists epoch {state.epoch}{leader}{vote}"
        case Send(to, endpoint, request):
            address = f" at {endpoint}" if to == NO_NODE or endpoint.port != 9093 else ""
            return f"{node.id} -> {endpoint.host.removeprefix('n')}{address}  {_request_line(request)}"
        case Reply(token, response):
            return f"{_response_route(node, token)}  {_response_line(response)}"
        case ReplyWithRecords(token, response, offset, _):
            known = response.responses[0].partitions[0].high_watermark
            return f"{_response_route(node, token)}  records from {offset}, {_committed(known)}"
        case ReplyWithSnapshot(token, _, snapshot_id, position, _):
            where = f"snapshot {snapshot_id.end_offset}@{snapshot_id.epoch}"
            return f"{_response_route(node, token)}  bytes of {where} from {position}"
        case Flush():
            return f"{node.id} syncs its log"
        case Truncate(offset):
            return f"{node.id} truncates its log to {offset}"
        case Commit(high_watermark):
            return f"{node.id} advances its high watermark to {high_watermark}"
        case Lead(epoch):
            return f"{node.id} may activate its controller in epoch {epoch}"
        case StepDown(epoch):
            return f"{node.id} no longer leads epoch {epoch}"
        case SnapshotChunk(snapshot_id, position, data):
            where = f"snapshot {snapshot_id.end_offset}@{snapshot_id.epoch}"
            return f"{node.id} writes {len(data)} bytes at {position} of {where}"
        case FinishSnapshot(snapshot_id):
            return f"{node.id} restarts its log at snapshot {snapshot_id.end_offset}@{snapshot_id.epoch}"
        case LeaderChanged():
            seen = node.machine.leader_id
            return f"{node.id} sees {'no leader' if seen == NO_NODE else f'leader {seen}'}"


def table(nodes: list[Node]) -> list[str]:
    rows = [["node", "state", "epoch", "leader", "log"]]
    for node in nodes:
        if node.is_up:
            machine = node.machine
            leader = "-" if machine.leader_id == NO_NODE else str(machine.leader_id)
            rows.append([str(node.id), type(machine.role).__name__, str(machine.epoch), leader, _log_text(node)])
        else:
            rows.append([str(node.id), "down", str(node.state.epoch), "", _log_text(node)])
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _log_text(node: Node) -> str:
    """Records by epoch, with a bar at the node's high watermark."""
    words, last_epoch = [], None
    if node.log.start_offset > 0:
        words.append(f"…{node.log.start_offset}")
    high_watermark = (node.machine.high_watermark or 0) if node.is_up else -1
    for offset, epoch, record in node.log.records(0, node.log.end_offset):
        if offset == high_watermark:
            words.append("|")
        if epoch != last_epoch:
            words.append(f"{epoch}:")
            last_epoch = epoch
        words.append(_record_text(record))
    if node.log.end_offset == high_watermark and high_watermark > 0:
        words.append("|")
    return " ".join(words)


def _record_text(record: Any) -> str:
    match record:
        case LeaderChangeMessage(leader_id=leader_id):
            return f"leader={leader_id}"
        case KRaftVersionRecord(kraft_version=level):
            return f"kraft.version={level}"
        case VotersRecord(voters=voters):
            moved = {9093: ""}
            return "voters=" + ",".join(
                _voter_text(each.voter_id, each.voter_directory_id)
                + moved.get(each.endpoints[0].port, f":{each.endpoints[0].port}")
                for each in voters
            )
        case _:
            return str(record)


def _voter_text(node_id: int, directory_id: bytes) -> str:
    """With a prime for every disk after the first."""
    return str(node_id) + "'" * (max(0, int.from_bytes(directory_id[8:], "big") - 1001))


def _request_line(request: Message) -> str:
    match request:
        case VoteRequest():
            requested = request.topics[0].partitions[0]
            kind = "pre-vote" if requested.pre_vote else "vote"
            end = f"{requested.last_offset}@{requested.last_offset_epoch}"
            return f"{kind} epoch {requested.replica_epoch}, log ends {end}"
        case BeginQuorumEpochRequest():
            return f"begin epoch {request.topics[0].partitions[0].leader_epoch}"
        case EndQuorumEpochRequest():
            ended = request.topics[0].partitions[0]
            successors = " ".join(str(each.candidate_id) for each in ended.preferred_candidates)
            return f"end epoch {ended.leader_epoch}, successors {successors}"
        case FetchRequest():
            fetch = request.topics[0].partitions[0]
            known = _committed(fetch.high_watermark)
            where = f"{fetch.fetch_offset}@{fetch.last_fetched_epoch}"
            return f"fetch from {where} in epoch {fetch.current_leader_epoch}, {known}"
        case FetchSnapshotRequest():
            part = request.topics[0].partitions[0]
            return f"fetch snapshot {part.snapshot_id.end_offset}@{part.snapshot_id.epoch} from byte {part.position}"
        case ApiVersionsRequest():
            return "api versions"
        case AddRaftVoterRequest():
            return f"add voter {_voter_text(request.voter_id, request.voter_directory_id)}"
        case RemoveRaftVoterRequest():
            return f"remove voter {_voter_text(request.voter_id, request.voter_directory_id)}"
        case UpdateRaftVoterRequest():
            at = " ".join(f"{each.host}:{each.port}" for each in request.listeners)
            return f"update voter {_voter_text(request.voter_id, request.voter_directory_id)}: {at}"
        case _:
            raise AssertionError(f"no line for {request}")


def _response_line(response: Message) -> str:
    match response:
        case ApiVersionsResponse():
            return "versions"
        case (
            AddRaftVoterResponse(error_code=code, error_message=why)
            | RemoveRaftVoterResponse(error_code=code, error_message=why)
            | UpdateFeaturesResponse(error_code=code, error_message=why)
        ):
            return "done" if code == 0 else f"{ErrorCode(code).name}: {why}"
        case DescribeQuorumResponse():
            return _quorum_description(response)
    status = response_status(response)
    if status is None:
        return ErrorCode(getattr(response, "error_code", 0)).name
    leader = f"leader {status.leader.id}" if status.leader.id != NO_NODE else "no leader"
    known = f"(epoch {status.leader.epoch}, {leader})"
    if status.error is not ErrorCode.NONE:
        return f"{status.error.name} {known}"
    match response:
        case VoteResponse():
            return ("granted " if response.topics[0].partitions[0].vote_granted else "rejected ") + known
        case BeginQuorumEpochResponse() | EndQuorumEpochResponse() | UpdateRaftVoterResponse():
            return "acknowledged"
        case FetchSnapshotResponse():
            return "bytes"
        case FetchResponse():
            fetched = response.responses[0].partitions[0]
            if fetched.diverging_epoch.end_offset >= 0:
                return f"diverging epoch, ends at {fetched.diverging_epoch.end_offset}@{fetched.diverging_epoch.epoch}"
            if fetched.snapshot_id.end_offset >= 0:
                return f"snapshot {fetched.snapshot_id.end_offset}@{fetched.snapshot_id.epoch}"
            return "no records"
        case _:
            raise AssertionError(f"no line for {response}")


def _quorum_description(response: DescribeQuorumResponse) -> str:
    partition = response.topics[0].partitions[0]
    if partition.error_code:
        return ErrorCode(partition.error_code).name
    voters, observers = (
        ", ".join(_replica_state(each) for each in group) or "none"
        for group in (partition.current_voters, partition.observers)
    )
    leader = f"leader {partition.leader_id} of epoch {partition.leader_epoch}"
    return f"{leader}, {_committed(partition.high_watermark)}; voters {voters}; observers {observers}"


def _replica_state(replica: ReplicaState) -> str:
    times = f"fetched {replica.last_fetch_timestamp}, caught up {replica.last_caught_up_timestamp}"
    return f"{_voter_text(replica.replica_id, replica.replica_directory_id)} ends {replica.log_end_offset} ({times})"


def _response_route(node: Node, token: object) -> str:
    if isinstance(token, PendingRequest):
        return f"{node.id} -> admin"
    assert isinstance(token, Envelope)
    return f"{node.id} -> {token.sender.id}"


def _committed(high_watermark: int) -> str:
    return "high watermark unknown" if high_watermark < 0 else f"high watermark {high_watermark}"
