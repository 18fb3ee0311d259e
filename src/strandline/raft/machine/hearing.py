"""What replicas learn in passing: every message names an epoch, and most name its leader."""

from __future__ import annotations

import logging

from strandline.model.errors import NodeFault
from strandline.model.ids import Endpoint
from strandline.raft.machine.seat import Seat
from strandline.raft.machine.states import Unattached
from strandline.raft.machine.values import LAST_EPOCH, NOBODY, KnownLeader

logger = logging.getLogger(__name__)


def hear_of(seat: Seat, told: KnownLeader, now_ms: int, *, from_leader: bool = False) -> None:
    """Somebody, perhaps that leader itself, says who leads which epoch, if anybody does. Older epochs mean nothing,
    nor do those that nobody can have reached."""
    if not seat.epoch <= told.epoch <= LAST_EPOCH:
        return
    known = seat.quorum.leader_id if told.epoch == seat.epoch else NOBODY
    if known != NOBODY and told.id not in (NOBODY, known):
        raise NodeFault(f"epoch {told.epoch} has two leaders: {known} and {told.id}")
    endpoint = told.endpoint or _endpoint_of_voter(seat, told.id)
    # A leader with our own id: we led that epoch in a life that we cannot remember. We shall not vote in it either.
    can_be_followed = told.id not in (NOBODY, seat.me.id) and endpoint is not None
    is_believed = from_leader or told.epoch != seat.given_up_epoch
    if can_be_followed and (known == NOBODY or (isinstance(seat.role, Unattached) and is_believed)):
        assert endpoint is not None
        seat.become_follower(told.epoch, told.id, endpoint, now_ms)
    elif told.epoch > seat.epoch or (known == NOBODY and told.id != NOBODY):
        if told.id == seat.me.id:
            logger.warning(
                "node %d leads epoch %d, says the quorum, but that is this node's own id: it waits for the next epoch. "
                "If another node has the same node.id, give this one an id of its own",
                told.id,
                told.epoch,
            )
        seat.become_unattached(told.epoch, now_ms, leader_id=told.id)


def still_concerns(seat: Seat, told: KnownLeader, now_ms: int, *, from_leader: bool = False) -> bool:
    """Learns what an answer says about the leader; whether the rest of it still means something in this epoch."""
    epoch = seat.epoch
    hear_of(seat, told, now_ms, from_leader=from_leader)
    return told.epoch == epoch == seat.epoch


def _endpoint_of_voter(seat: Seat, node_id: int) -> Endpoint | None:
    voter = seat.voters.voter(node_id)
    return None if voter is None else voter.endpoint_for(seat.listener_name)
