"""What replicas learn in passing: every message names an epoch, and most name its leader."""

from __future__ import annotations

import logging

from strandline.model.errors import NodeFault
from strandline.model.ids import Endpoint
from strandline.raft.machine.raft_state import RaftState
from strandline.raft.machine.states import Unattached
from strandline.raft.machine.values import LAST_EPOCH, NO_NODE, KnownLeader

logger = logging.getLogger(__name__)


def observe_leader(raft: RaftState, told: KnownLeader, now_ms: int, *, from_leader: bool = False) -> None:
    """Somebody, perhaps that leader itself, says who leads which epoch, if anybody does. Older epochs mean nothing,
    nor do those that nobody can have reached."""
    if not raft.epoch <= told.epoch <= LAST_EPOCH:
        return
    known = raft.quorum.leader_id if told.epoch == raft.epoch else NO_NODE
    if known != NO_NODE and told.id not in (NO_NODE, known):
        raise NodeFault(f"epoch {told.epoch} has two leaders: {known} and {told.id}")
    endpoint = told.endpoint or _endpoint_of_voter(raft, told.id)
    # A leader with our own id: we led that epoch in a life that we cannot remember. We shall not vote in it either.
    can_be_followed = told.id not in (NO_NODE, raft.me.id) and endpoint is not None
    is_believed = from_leader or told.epoch != raft.failed_leader_epoch
    if can_be_followed and (known == NO_NODE or (isinstance(raft.role, Unattached) and is_believed)):
        assert endpoint is not None
        raft.become_follower(told.epoch, told.id, endpoint, now_ms)
    elif told.epoch > raft.epoch or (known == NO_NODE and told.id != NO_NODE):
        if told.id == raft.me.id:
            logger.warning(
                "node %d leads epoch %d, says the quorum, but that is this node's own id: it waits for the next epoch. "
                "If another node has the same node.id, give this one an id of its own",
                told.id,
                told.epoch,
            )
        raft.become_unattached(told.epoch, now_ms, leader_id=told.id)


def observe_and_check_epoch(raft: RaftState, told: KnownLeader, now_ms: int, *, from_leader: bool = False) -> bool:
    """Learns what an answer says about the leader; whether the rest of it still means something in this epoch."""
    epoch = raft.epoch
    observe_leader(raft, told, now_ms, from_leader=from_leader)
    return told.epoch == epoch == raft.epoch


def _endpoint_of_voter(raft: RaftState, node_id: int) -> Endpoint | None:
    voter = raft.voters.voter(node_id)
    return None if voter is None else voter.endpoint_for(raft.listener_name)
