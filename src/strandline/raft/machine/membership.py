"""Changing the voters, one at a time: the leader's side, and what a controller does about its own entry (KIP-853).

A new voter set counts from its record on, before it is committed. Since it differs from the old one by one voter, any
majority of the one shares a voter with any majority of the other: no two leaders can be elected meanwhile. That holds
only once the old set is committed, so a change requires that, and that a record of the leader's epoch is committed: a
leader that has committed nothing yet cannot know which change its predecessor had begun.

A new voter must have caught up before it is added, and the leader requests its supported versions: a majority that
includes the new voter should not have to wait for it.

A controller keeps its own entry true (KIP-1186): a voter whose listeners or versions differ from the voter set sends
UpdateRaftVoter. With kraft.version 0 nothing is written to the log, but every voter sends its entry to each leader
once, so that the entries can be written when kraft.version is raised. A controller that is not a voter joins by itself
if `auto_join` is set; if its id belongs to a voter with another directory (its former disk), that voter is removed
first.
"""

from __future__ import annotations

import logging

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
    UpdateRaftVoterResponse,
)
from strandline.protocol.types import Message
from strandline.raft.machine.effects import Flush, Send
from strandline.raft.machine.messages import (
    add_voter_request,
    listeners_from_wire,
    remove_voter_request,
    response_status,
    update_voter_request,
    update_voter_response,
)
from strandline.raft.machine.observed_leader import observe_leader
from strandline.raft.machine.raft_state import RaftState
from strandline.raft.machine.states import Follower, Leader, Progress, VoterChange
from strandline.raft.machine.timeouts import record_contact
from strandline.raft.machine.values import ControlRecord
from strandline.raft.machine.voters import MAX_KRAFT_VERSION, ReplicaKey, Voter, VoterSet

_HOUR_MS = 3_600_000

logger = logging.getLogger(__name__)


def on_add_voter(raft: RaftState, token: object, request: AddRaftVoterRequest, now_ms: int) -> None:
    """Parked until the new voter has named its versions, has caught up, and the new voter set is committed."""
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
        if not raft.in_flight.may_send(endpoint, now_ms):
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"the new voter at {endpoint} does not respond")
    except KafkaError as rejection:
        raft.reply(token, AddRaftVoterResponse(error_code=rejection.code, error_message=rejection.why))
        return
    role.change = VoterChange(token, AddRaftVoterResponse, now_ms + raft.settings.request_timeout_ms, joining=joining)
    role.change.acknowledge_early = not request.ack_when_committed
    # The request must name the client's software (KIP-511), or it is rejected.
    versions = ApiVersionsRequest(client_software_name="strandline-raft", client_software_version=__version__)
    role.change.versions_request = raft.send(joining.id, endpoint, versions, now_ms)


def on_api_versions_response(raft: RaftState, send: Send, response: ApiVersionsResponse | None, now_ms: int) -> bool:
    """The new voter has named its supported versions; None if it has not responded."""
    role = raft.role
    change = role.change if isinstance(role, Leader) else None
    if not isinstance(role, Leader) or change is None or change.versions_request is not send or change.joining is None:
        return True
    try:
        if response is None or response.error_code != ErrorCode.NONE:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"the new voter at {send.endpoint} has not responded")
        if all(each.api_key != ApiKey.VOTE for each in response.api_keys):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"the node at {send.endpoint} is not a controller")
        supported = {each.name: (each.min_version, each.max_version) for each in response.supported_features}
        joining = replace(change.joining, kraft_versions=supported.get(KRAFT_VERSION, (0, 0)))
        if not joining.supports(raft.log.kraft_version):
            why = f"the new voter does not support {KRAFT_VERSION} {raft.log.kraft_version}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, why)
        if not _has_caught_up(role.progress_of(joining.key), now_ms):
            why = "the new voter has not caught up: start it, and retry when it has fetched the log"
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, why)
    except KafkaError as rejection:
        _complete(raft, role, rejection)
        return True
    _append_voters(raft, change, raft.voters.with_voter(joining))
    if change.acknowledge_early and change.token is not None:
        raft.reply(change.token, AddRaftVoterResponse(error_message=None))
        change.token = None
    return True


def on_remove_voter(raft: RaftState, token: object, request: RemoveRaftVoterRequest, now_ms: int) -> None:
    """Parked until the remaining voters are committed."""
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
    except KafkaError as rejection:
        raft.reply(token, RemoveRaftVoterResponse(error_code=rejection.code, error_message=rejection.why))
        return
    role.change = VoterChange(token, RemoveRaftVoterResponse, now_ms + raft.settings.request_timeout_ms)
    _append_voters(raft, role.change, raft.voters.without(leaving.id))


def on_update_voter(raft: RaftState, token: object, request: UpdateRaftVoterRequest, now_ms: int) -> None:
    """Responds before the commit: elections do not depend on the endpoint of a voter."""
    error = raft.leader_request_error(request.current_leader_epoch)
    if request.cluster_id not in (None, raft.cluster_id):
        error = ErrorCode.INCONSISTENT_CLUSTER_ID
    if error is ErrorCode.NONE and isinstance(raft.role, Leader):
        try:
            _update(raft, raft.role, request)
            record_contact(raft, raft.role, request.voter_id, now_ms)
        except KafkaError as rejection:
            error = rejection.code
    raft.reply(token, update_voter_response(raft.known_leader, error))


def upgrade_kraft_version(raft: RaftState, token: object, level: int, now_ms: int) -> None:
    """Parked until the upgrade is committed; the response is an UpdateFeaturesResponse."""
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
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the quorum is not ready for a change yet")
        voters = _updated_voters(raft, role, level)
    except KafkaError as rejection:
        raft.reply(token, UpdateFeaturesResponse(error_code=rejection.code, error_message=rejection.why))
        return
    role.change = VoterChange(token, UpdateFeaturesResponse, now_ms + raft.settings.request_timeout_ms)
    for voter in voters.voters:
        # Until now its key had no directory id.
        if (progress := role.progress.pop(ReplicaKey(voter.id), None)) is not None:
            role.progress[voter.key] = progress
    _append(raft, role.change, [KRaftVersionRecord(version=0, kraft_version=level), voters.record()])


def on_committed(raft: RaftState, role: Leader) -> None:
    """The high watermark has advanced."""
    change = role.change
    if change is not None and change.offset is not None and (role.high_watermark or 0) > change.offset:
        _complete(raft, role, None)


def expire_change(raft: RaftState, role: Leader, now_ms: int) -> None:
    """Times out the request. A record that was appended may still be committed; until then no other change begins."""
    if role.change is not None and now_ms >= role.change.deadline_ms:
        _complete(raft, role, KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the change was not committed in time"))


def update_own_voter(raft: RaftState, role: Follower, now_ms: int) -> None:
    """Sends what the leader should change about this controller's entry: once this follower has caught up, after every
    change of voters, and at intervals until the log says so."""
    if not raft.is_controller or not role.has_caught_up or raft.is_truncating:
        return
    if now_ms < role.check_voters_at_ms and role.checked_voters_offset == raft.log.voters_offset:
        return
    endpoint, request = raft.leader_endpoint, _own_change_request(raft, role)
    if request is not None and (endpoint is None or not raft.in_flight.may_send(endpoint, now_ms, about_voters=True)):
        return
    if role.checked_voters_offset != raft.log.voters_offset and not raft.is_voter:
        _log_not_a_voter(raft)
    role.checked_voters_offset = raft.log.voters_offset
    role.check_voters_at_ms = now_ms + raft.settings.voter_update_interval_ms
    if request is not None and endpoint is not None:
        raft.send(raft.quorum.leader_id, endpoint, request, now_ms)


def on_update_voter_response(raft: RaftState, response: UpdateRaftVoterResponse, now_ms: int) -> bool:
    if isinstance(raft.role, Follower) and response.error_code == ErrorCode.NONE:
        raft.role.has_sent_voter_update = True
    on_change_response(raft, response, now_ms)
    status = response_status(response)
    if status is not None:
        observe_leader(raft, status.leader, now_ms)
    return True


def on_change_response(
    raft: RaftState, response: UpdateRaftVoterResponse | AddRaftVoterResponse | RemoveRaftVoterResponse, now_ms: int
) -> bool:
    """The log shows whether the change was made. If the leader has another change in progress, retry soon."""
    if isinstance(raft.role, Follower) and response.error_code == ErrorCode.REQUEST_TIMED_OUT:
        raft.role.check_voters_at_ms = now_ms + raft.settings.begin_epoch_interval_ms
    return True


def _leader(raft: RaftState, cluster_id: str | None) -> Leader:
    if cluster_id not in (None, raft.cluster_id):
        raise KafkaError(ErrorCode.INCONSISTENT_CLUSTER_ID, f"this is cluster {raft.cluster_id}")
    if not isinstance(raft.role, Leader):
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this node does not lead the quorum")
    return raft.role


def _check_ready(raft: RaftState, role: Leader) -> None:
    if role.change is not None:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "another change of voters is in progress")
    if role.high_watermark is None:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the leader has not committed a record of its epoch yet")
    if raft.log.kraft_version == 0:
        why = f"the voters are configured while {KRAFT_VERSION} is 0; raise it to 1 to change them"
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, why)
    _check_committed(raft, role)


def _check_committed(raft: RaftState, role: Leader) -> None:
    """The last VotersRecord counts already, but may still be truncated."""
    if raft.log.voters_offset >= (role.high_watermark or 0):
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the last change of voters is not committed yet")


def _has_caught_up(progress: Progress, now_ms: int) -> bool:
    is_recent = progress.last_fetch_ms is not None and now_ms - progress.last_fetch_ms < _HOUR_MS
    return is_recent and progress.last_caught_up_ms is not None


def _update(raft: RaftState, role: Leader, request: UpdateRaftVoterRequest) -> None:
    versions = request.kraft_version_feature
    updated = Voter(
        request.voter_id,
        request.voter_directory_id,
        listeners_from_wire(request.listeners),
        (versions.min_supported_version, versions.max_supported_version),
    )
    if role.change is not None or role.high_watermark is None or raft.log.voters_offset >= role.high_watermark:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the quorum is not ready for a change yet")
    is_complete = updated.directory_id != ZERO_UUID and raft.listener_name in dict(updated.listeners)
    if not is_complete or not updated.supports(raft.log.kraft_version):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the voter lacks its directory id, listeners or versions")
    if raft.voters.voter_with_key(updated.key) is None:
        raise KafkaError(ErrorCode.VOTER_NOT_FOUND, f"{updated.key} is not a voter")
    if raft.log.kraft_version == 0:
        role.voter_updates[updated.id] = updated
    elif not raft.voters.describes(updated):
        raft.log.append_control([raft.voters.with_voter(updated).record()], raft.epoch)
        raft.emit(Flush())


def _updated_voters(raft: RaftState, role: Leader, level: int) -> VoterSet:
    """The configured voters, with the directory ids, listeners and versions that they have sent."""
    updates = {**role.voter_updates, raft.me.id: raft.me}
    voters = VoterSet(tuple(updates.get(voter.id, voter) for voter in raft.voters.voters))
    unknown = [voter.id for voter in voters.voters if voter.directory_id == ZERO_UUID]
    if unknown:
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, f"the voters {unknown} have not sent UpdateRaftVoter yet")
    too_old = [voter.id for voter in voters.voters if not voter.supports(level)]
    if too_old:
        raise KafkaError(
            ErrorCode.INVALID_UPDATE_VERSION, f"the voters {too_old} do not support {KRAFT_VERSION} {level}"
        )
    return voters


def _append_voters(raft: RaftState, change: VoterChange, voters: VoterSet) -> None:
    _append(raft, change, [voters.record()])


def _append(raft: RaftState, change: VoterChange, records: list[ControlRecord]) -> None:
    change.versions_request = None
    change.offset = raft.log.append_control(records, raft.epoch) + len(records) - 1
    raft.emit(Flush())


def _complete(raft: RaftState, role: Leader, error: KafkaError | None) -> None:
    change, role.change = role.change, None
    if change is None or change.token is None:
        return
    if error is None:
        raft.reply(change.token, change.response(error_message=None))
    else:
        raft.reply(change.token, change.response(error_code=error.code, error_message=error.why))


def _log_not_a_voter(raft: RaftState) -> None:
    namesake = raft.voters.voter(raft.me.id)
    if namesake is None:
        voters = ", ".join(str(voter.id) for voter in raft.voters.voters)
        logger.info("this controller follows without a vote: the voters are %s", voters)
        return
    logger.warning(
        "this controller follows without a vote: voter %d is another node, with the directory %s, not %s. Give this "
        "node a node.id of its own; or, if it replaces a failed node, remove that voter and add this node",
        raft.me.id,
        namesake.directory_id,
        raft.me.directory_id,
    )


def _own_change_request(raft: RaftState, role: Follower) -> Message | None:
    is_dynamic = raft.log.kraft_version > 0
    if raft.is_voter:
        is_known = raft.voters.describes(raft.me) if is_dynamic else role.has_sent_voter_update
        return None if is_known else update_voter_request(raft.cluster_id, raft.me, raft.epoch)
    if not is_dynamic or not raft.settings.auto_join:
        return None
    former = raft.voters.voter(raft.me.id)
    if former is not None:
        return remove_voter_request(raft.cluster_id, former.key)
    return add_voter_request(raft.cluster_id, raft.me, raft.settings.request_timeout_ms)
