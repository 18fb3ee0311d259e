"""The leader's side of changing who votes, one voter at a time (KIP-853).

A new voter set counts from its record on, before it is committed. Since it differs from the old one by one voter, any
majority of the one shares a voter with any majority of the other: no two leaders can be elected meanwhile. That holds
only while the old one is committed, so a change waits for that, and for the leader's first record: a leader that has
committed nothing yet cannot know what its predecessor began.

A voter to be added must have shown that it keeps up, and is asked which versions it speaks: a majority that counts it
should not have to wait for it.
"""

from __future__ import annotations

from msgspec.structs import replace

from strandline import __version__
from strandline.metadata.features import KRAFT_VERSION
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import ZERO_UUID
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from strandline.protocol.messages.cluster import UpdateFeaturesResponse
from strandline.protocol.messages.control_records import KRaftVersionRecord
from strandline.protocol.messages.quorum import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
    UpdateRaftVoterRequest,
)
from strandline.raft.machine.answers import update_voter_response
from strandline.raft.machine.check_quorum import record_contact
from strandline.raft.machine.effects import Flush, Send
from strandline.raft.machine.raft_state import RaftState
from strandline.raft.machine.replication import leader_only_error
from strandline.raft.machine.requests import listeners_from_wire
from strandline.raft.machine.states import Leader, Progress, VoterChange
from strandline.raft.machine.values import ControlRecord
from strandline.raft.machine.voters import MAX_KRAFT_VERSION, ReplicaKey, Voter, VoterSet

_HOUR_MS = 3_600_000


def on_add_voter(raft: RaftState, token: object, request: AddRaftVoterRequest, now_ms: int) -> None:
    try:
        role = _leader(raft, request.cluster_id)
        joining = Voter(request.voter_id, request.voter_directory_id, listeners_from_wire(request.listeners))
        endpoint = dict(joining.listeners).get(raft.listener_name)
        if joining.directory_id == ZERO_UUID or endpoint is None:
            why = f"a voter is added with the id of its directory and its listener {raft.listener_name}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, why)
        _check_ready(raft, role)
        if raft.voters.voter(joining.id) is not None:
            raise KafkaError(ErrorCode.DUPLICATE_VOTER, f"{joining.id} is a voter already")
        if not raft.in_flight.is_free(endpoint, now_ms):
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"the new voter at {endpoint} does not answer")
    except KafkaError as refusal:
        raft.reply(token, AddRaftVoterResponse(error_code=refusal.code, error_message=refusal.why))
        return
    role.change = VoterChange(token, AddRaftVoterResponse, now_ms + raft.settings.request_timeout_ms, joining=joining)
    role.change.answers_early = not request.ack_when_committed
    # Who asks must say what software it is (KIP-511): a nameless question is refused.
    question = ApiVersionsRequest(client_software_name="strandline-raft", client_software_version=__version__)
    role.change.probe = raft.send(joining.id, endpoint, question, now_ms)


def on_api_versions_response(raft: RaftState, send: Send, response: ApiVersionsResponse | None, now_ms: int) -> bool:
    """The voter to be added has said what it speaks, or has not answered."""
    role = raft.role
    change = role.change if isinstance(role, Leader) else None
    if not isinstance(role, Leader) or change is None or change.probe is not send or change.joining is None:
        return True
    try:
        if response is None or response.error_code != ErrorCode.NONE:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"the new voter at {send.endpoint} could not be asked")
        if all(each.api_key != ApiKey.VOTE for each in response.api_keys):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"the node at {send.endpoint} is no controller: it cannot vote")
        spoken = {each.name: (each.min_version, each.max_version) for each in response.supported_features}
        joining = replace(change.joining, kraft_versions=spoken.get(KRAFT_VERSION, (0, 0)))
        if not joining.supports(raft.log.kraft_version):
            why = f"the new voter does not speak {KRAFT_VERSION} {raft.log.kraft_version}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, why)
        if not _keeps_up(role.progress_of(joining.key), now_ms):
            why = "the new voter has not caught up: start it, and try again when it has fetched the log"
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, why)
    except KafkaError as refusal:
        _answer(raft, role, refusal)
        return True
    _append_voters(raft, change, raft.voters.with_voter(joining))
    if change.answers_early and change.token is not None:
        raft.reply(change.token, AddRaftVoterResponse(error_message=None))
        change.token = None
    return True


def on_remove_voter(raft: RaftState, token: object, request: RemoveRaftVoterRequest, now_ms: int) -> None:
    leaving = ReplicaKey(request.voter_id, request.voter_directory_id)
    try:
        role = _leader(raft, request.cluster_id)
        if leaving.directory_id == ZERO_UUID:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a voter is removed by its id and the id of its directory")
        _check_ready(raft, role)
        if raft.voters.voter_with_key(leaving) is None:
            raise KafkaError(ErrorCode.VOTER_NOT_FOUND, f"{leaving} is not a voter")
        if len(raft.voters) == 1:
            raise KafkaError(ErrorCode.VOTER_NOT_FOUND, f"{leaving} is the last voter, and a quorum needs one")
    except KafkaError as refusal:
        raft.reply(token, RemoveRaftVoterResponse(error_code=refusal.code, error_message=refusal.why))
        return
    role.change = VoterChange(token, RemoveRaftVoterResponse, now_ms + raft.settings.request_timeout_ms)
    _append_voters(raft, role.change, raft.voters.without(leaving.id))


def on_update_voter(raft: RaftState, token: object, request: UpdateRaftVoterRequest, now_ms: int) -> None:
    """Answered at once: nobody's vote depends on where a voter is reached."""
    error = leader_only_error(raft, request.current_leader_epoch)
    if request.cluster_id not in (None, raft.cluster_id):
        error = ErrorCode.INCONSISTENT_CLUSTER_ID
    if error is ErrorCode.NONE and isinstance(raft.role, Leader):
        try:
            _update(raft, raft.role, request)
            record_contact(raft, raft.role, request.voter_id, now_ms)
        except KafkaError as refusal:
            error = refusal.code
    raft.reply(token, update_voter_response(raft.known_leader, error))


def upgrade_kraft_version(raft: RaftState, token: object, level: int, now_ms: int) -> None:
    try:
        role = _leader(raft, None)
        if level == raft.log.kraft_version:
            _check_committed(raft, role)
            raft.reply(token, UpdateFeaturesResponse(error_message=None))
            return
        if not raft.log.kraft_version < level <= MAX_KRAFT_VERSION:
            why = f"{KRAFT_VERSION} is {raft.log.kraft_version} and cannot become {level}"
            raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, why)
        if role.change is not None or role.high_watermark is None:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the quorum is not yet ready for a change")
        described = _described_voters(raft, role, level)
    except KafkaError as refusal:
        raft.reply(token, UpdateFeaturesResponse(error_code=refusal.code, error_message=refusal.why))
        return
    role.change = VoterChange(token, UpdateFeaturesResponse, now_ms + raft.settings.request_timeout_ms)
    for voter in described.voters:
        # So far it was known by its id alone.
        if (progress := role.progress.pop(ReplicaKey(voter.id), None)) is not None:
            role.progress[voter.key] = progress
    _append(raft, role.change, [KRaftVersionRecord(version=0, kraft_version=level), described.record()])


def on_committed(raft: RaftState, role: Leader) -> None:
    """The high watermark rose."""
    change = role.change
    if change is not None and change.offset is not None and (role.high_watermark or 0) > change.offset:
        _answer(raft, role, None)


def expire_change(raft: RaftState, role: Leader, now_ms: int) -> None:
    """Whoever asked waits no longer. A record that is written may still be committed; before, nothing else changes."""
    if role.change is not None and now_ms >= role.change.deadline_ms:
        _answer(raft, role, KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the change was not committed in time"))


def _leader(raft: RaftState, cluster_id: str | None) -> Leader:
    if cluster_id not in (None, raft.cluster_id):
        raise KafkaError(ErrorCode.INCONSISTENT_CLUSTER_ID, f"this is cluster {raft.cluster_id}")
    if not isinstance(raft.role, Leader):
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this node does not lead the quorum")
    return raft.role


def _check_ready(raft: RaftState, role: Leader) -> None:
    if role.change is not None:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "another change of voters is under way")
    if role.high_watermark is None:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the leader has not committed anything of its epoch yet")
    if raft.log.kraft_version == 0:
        why = f"voters are configured while {KRAFT_VERSION} is 0; raise it to 1 to change them"
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, why)
    _check_committed(raft, role)


def _check_committed(raft: RaftState, role: Leader) -> None:
    """What the log says of voters and versions counts from the moment it is written, but may still be undone."""
    if raft.log.voters_offset >= (role.high_watermark or 0):
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the last change of voters is not committed yet")


def _keeps_up(progress: Progress, now_ms: int) -> bool:
    is_recent = progress.last_fetch_ms is not None and now_ms - progress.last_fetch_ms < _HOUR_MS
    return is_recent and progress.last_caught_up_ms is not None


def _update(raft: RaftState, role: Leader, request: UpdateRaftVoterRequest) -> None:
    versions = request.kraft_version_feature
    told = Voter(
        request.voter_id,
        request.voter_directory_id,
        listeners_from_wire(request.listeners),
        (versions.min_supported_version, versions.max_supported_version),
    )
    if role.change is not None or role.high_watermark is None or raft.log.voters_offset >= role.high_watermark:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the quorum is not yet ready for a change")
    is_complete = told.directory_id != ZERO_UUID and raft.listener_name in dict(told.listeners)
    if not is_complete or not told.supports(raft.log.kraft_version):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a voter tells its directory, its listeners and its versions")
    if raft.voters.voter_with_key(told.key) is None:
        raise KafkaError(ErrorCode.VOTER_NOT_FOUND, f"{told.key} is not a voter")
    if raft.log.kraft_version == 0:
        role.described[told.id] = told
    elif not raft.voters.describes(told):
        raft.log.append_control([raft.voters.with_voter(told).record()], raft.epoch)
        raft.emit(Flush())


def _described_voters(raft: RaftState, role: Leader, level: int) -> VoterSet:
    """The configured voters as they have described themselves."""
    described = {**role.described, raft.me.id: raft.me}
    voters = VoterSet(tuple(described.get(voter.id, voter) for voter in raft.voters.voters))
    unknown = [voter.id for voter in voters.voters if voter.directory_id == ZERO_UUID]
    if unknown:
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, f"the voters {unknown} have not been heard from yet")
    too_old = [voter.id for voter in voters.voters if not voter.supports(level)]
    if too_old:
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, f"the voters {too_old} do not speak {KRAFT_VERSION} {level}")
    return voters


def _append_voters(raft: RaftState, change: VoterChange, voters: VoterSet) -> None:
    _append(raft, change, [voters.record()])


def _append(raft: RaftState, change: VoterChange, records: list[ControlRecord]) -> None:
    change.probe = None
    change.offset = raft.log.append_control(records, raft.epoch) + len(records) - 1
    raft.emit(Flush())


def _answer(raft: RaftState, role: Leader, refusal: KafkaError | None) -> None:
    change, role.change = role.change, None
    if change is None or change.token is None:
        return
    if refusal is None:
        raft.reply(change.token, change.response(error_message=None))
    else:
        raft.reply(change.token, change.response(error_code=refusal.code, error_message=refusal.why))
