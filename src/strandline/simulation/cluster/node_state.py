"""The quorum and metadata state of a running node, read from public properties of the node and its Raft replica."""

from __future__ import annotations

import msgspec

from strandline.node.node import Node
from strandline.raft.machine.states import Role


class NodeState(msgspec.Struct, frozen=True):
    role: str = ""
    """Name of the Raft role: Unattached, Follower, Leader, …; empty before the quorum has started."""
    epoch: int = 0
    leader_id: int = -1
    high_watermark: int = 0
    committed: int = 0
    """The offset of the image's committed view."""
    replayed: int = 0
    """The first offset that the image has not replayed, committed or not."""
    is_active: bool = False
    """This node is the active controller."""
    log_end: int = 0
    state: Role | None = None
    """The role itself: a different object after each transition."""


NOT_STARTED = NodeState()


def read_node_state(node: Node, before: NodeState) -> NodeState:
    """Called after every event; returns `before` itself if nothing has changed, which is cheap and the usual case."""
    quorum = node.quorum
    replica = None if quorum is None else quorum.replica
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
