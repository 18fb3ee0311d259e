"""What the simulation reads of a living node: attributes that any part of the node may read, nothing else."""

from __future__ import annotations

from typing import NamedTuple

from strandline.node.node import Node
from strandline.raft.driver import Quorum
from strandline.raft.replica import Replica


class Sight(NamedTuple):
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


NOTHING = Sight()


def quorum_of(node: Node | None) -> Quorum | None:
    """None before it has started."""
    found: Quorum | None = getattr(node, "quorum", None)
    return None if found is None or replica_of(found) is None else found


def replica_of(quorum: Quorum) -> Replica | None:
    """The machine, whose properties tell what it is and believes."""
    found: Replica | None = getattr(quorum, "_replica", None)
    return found


def look(node: Node) -> Sight:
    quorum = quorum_of(node)
    replica = None if quorum is None else replica_of(quorum)
    if quorum is None or replica is None:
        return NOTHING
    image = node.image
    return Sight(
        type(replica.role).__name__,
        replica.epoch,
        replica.leader_id,
        replica.high_watermark or 0,
        image.committed.moment,
        image.end_offset,
        quorum.is_leader,
    )
