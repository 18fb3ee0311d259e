"""What the simulation reads of a living node: attributes that any part of the node may read, nothing else."""

from __future__ import annotations

from typing import NamedTuple, cast

from strandline.node.node import Node
from strandline.raft.machine.replica import Replica
from strandline.raft.machine.states import Role
from strandline.raft.machine.voters import VoterHistory
from strandline.raft.shell.driver import Quorum
from strandline.raft.shell.stored_log import StoredLog


class NodeState(NamedTuple):
    """What is seen of a node's memory."""

    role: str = ""
    """Of the raft machine: Unattached, Follower, Leader, …; nothing before the quorum has started."""
    epoch: int = 0
    leader_id: int = -1
    high_watermark: int = 0
    committed: int = 0
    """The offset that the image's committed view stands at."""
    replayed: int = 0
    """The first offset that the image has not seen, committed or not."""
    is_active: bool = False
    """The controller of this node may decide."""
    log_end: int = 0
    state: Role | None = None
    """The machine's own, which is another object after each transition."""


NOT_STARTED = NodeState()


def replica_of(quorum: Quorum) -> Replica | None:
    """The machine, whose properties tell what it is and believes."""
    found: Replica | None = getattr(quorum, "_replica", None)
    return found


def voters_of(quorum: Quorum) -> VoterHistory | None:
    """Whom it counts as voters, and by which record."""
    log = getattr(quorum, "_log", None)
    return None if log is None else cast(StoredLog, log).history


def is_active(quorum: Quorum) -> bool:
    """Whether the controller of this node may decide."""
    return replica_of(quorum) is not None and quorum.is_leader


def look(node: Node, before: NodeState) -> NodeState:
    """`before` itself when nothing is different: that is what happens after nearly every event, and must be cheap."""
    quorum = node.quorum
    replica = None if quorum is None else replica_of(quorum)
    if quorum is None or replica is None:
        return NOT_STARTED
    role, epoch, high_watermark = replica.role, replica.epoch, replica.high_watermark or 0
    image = node.image
    committed, replayed, is_active = image.committed.moment, image.end_offset, quorum.is_leader
    log_end = quorum.end_offset
    if (
        role is before.state
        and high_watermark == before.high_watermark
        and epoch == before.epoch
        and committed == before.committed
        and replayed == before.replayed
        and is_active == before.is_active
        and log_end == before.log_end
    ):
        return before
    return NodeState(
        type(role).__name__, epoch, replica.leader_id, high_watermark, committed, replayed, is_active, log_end, role
    )
