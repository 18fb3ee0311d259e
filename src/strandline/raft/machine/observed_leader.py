"""What a replica learns from any message: every message names an epoch, and most name the leader of that epoch."""

from __future__ import annotations

import logging

from strandline.model.errors import NodeFault
from strandline.model.ids import Endpoint
from strandline.raft.machine.raft_state import RaftState
from strandline.raft.machine.states import Unattached
from strandline.raft.machine.values import LAST_EPOCH, NO_NODE, KnownLeader

logger = logging.getLogger(__name__)


def observe_leader(raft: RaftState, named: KnownLeader, now_ms: int, *, from_leader: bool = False) -> None:
    """A message, perhaps from that leader itself (`from_leader`), names an epoch and possibly its leader. Older epochs
    are ignored, and so are impossibly high ones."""
    if not raft.epoch <= named.epoch <= LAST_EPOCH:
        return
    known = raft.quorum.leader_id if named.epoch == raft.epoch else NO_NODE
    if known != NO_NODE and named.id not in (NO_NODE, known):
        raise NodeFault(f"epoch {named.epoch} has two leaders: {known} and {named.id}")
    endpoint = named.endpoint or _endpoint_of_voter(raft, named.id)
    # A leader with this node's id: it led that epoch before it lost its quorum-state. It must not vote in it either.
    can_be_followed = named.id not in (NO_NODE, raft.me.id) and endpoint is not None
    is_trusted = from_leader or named.epoch != raft.failed_leader_epoch
    if can_be_followed and (known == NO_NODE or (isinstance(raft.role, Unattached) and is_trusted)):
        assert endpoint is not None
        raft.become_follower(named.epoch, named.id, endpoint, now_ms)
    elif named.epoch > raft.epoch or (known == NO_NODE and named.id != NO_NODE):
        if named.id == raft.me.id:
            logger.warning(
                "the quorum names node %d as the leader of epoch %d, but that is this node's own id: it waits for the "
                "next epoch. If another node has the same node.id, change the node.id of this node",
                named.id,
                named.epoch,
            )
        raft.become_unattached(named.epoch, now_ms, leader_id=named.id)


def observe_and_check_epoch(raft: RaftState, named: KnownLeader, now_ms: int, *, from_leader: bool = False) -> bool:
    """Observes the leader that a response names. Returns whether the response belongs to this epoch, and observing it
    has not ended the epoch."""
    epoch = raft.epoch
    observe_leader(raft, named, now_ms, from_leader=from_leader)
    return named.epoch == epoch == raft.epoch


def _endpoint_of_voter(raft: RaftState, node_id: int) -> Endpoint | None:
    voter = raft.voters.voter(node_id)
    return None if voter is None else voter.endpoint_for(raft.listener_name)
