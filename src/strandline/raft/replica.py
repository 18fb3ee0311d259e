"""One replica of the metadata quorum, as a machine: inputs in, effects out, nothing of the outside world (KIP-595).

The driver hands in whatever happens, one input at a time, and performs the effects that come back, in order, before it
hands in the next (see `effects`). It calls `on_time` when `next_deadline_ms` has come, and whenever it likes: every
input ends with looking at what time it is. A `token` is the driver's own and comes back in a `Reply`; a request whose
token has not come back is parked. NodeFault means that an invariant is broken: the node stops.

A request or a response is handed in as decoded; requests are built in their newest version, and what an older version
cannot carry is dropped on the way (the codec's business). A peer that does not know a request's version is told as a
response of the right type whose error code is UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from strandline.model.ids import Endpoint
from strandline.protocol.messages.fetch import FetchRequest
from strandline.protocol.messages.quorum import (
    AddRaftVoterRequest,
    BeginQuorumEpochRequest,
    DescribeQuorumRequest,
    EndQuorumEpochRequest,
    FetchSnapshotRequest,
    RemoveRaftVoterRequest,
    UpdateRaftVoterRequest,
    VoteRequest,
)
from strandline.protocol.types import Message
from strandline.raft.effects import Effect, Send
from strandline.raft.log_port import ReplicaLog
from strandline.raft.settings import QuorumSettings
from strandline.raft.snapshots import SnapshotId
from strandline.raft.state import QuorumState
from strandline.raft.states import Role, Unattached
from strandline.raft.voters import Voter


class Replica:
    def __init__(
        self,
        me: Voter,
        cluster_id: str,
        log: ReplicaLog,
        state: QuorumState,
        settings: QuorumSettings,
        random: Random,
        *,
        is_controller: bool,
        bootstrap: Sequence[Endpoint],
        committed: int = 0,
    ) -> None:
        """`me` is what would stand of this node in a VotersRecord, also of a broker; its first listener is the one
        that others are asked to use. `committed`: below this offset the log is known to be committed from an earlier
        life (the snapshot's end, or a note), so it is never truncated there."""
        self.log = log
        self.state = state

    @property
    def epoch(self) -> int:
        return self.state.epoch

    @property
    def leader_id(self) -> int:
        """Who leads this epoch; -1 when nobody is known to, or when it was this replica and it has resigned."""
        return self.state.leader_id

    @property
    def leader_endpoint(self) -> Endpoint | None:
        """Where that leader is; our own first listener when we lead."""
        return None

    @property
    def is_leader(self) -> bool:
        return False

    @property
    def is_voter(self) -> bool:
        """By the voters at the end of the log, committed or not."""
        return False

    @property
    def high_watermark(self) -> int | None:
        """Everything below it is committed; None when this replica has not heard of any. It never falls."""
        return None

    @property
    def role(self) -> Role:
        return Unattached(None)

    def next_deadline_ms(self) -> int | None:
        """When `on_time` must be called at the latest; it may be past. None: there is nothing to wait for."""
        return None

    def start(self, now_ms: int) -> list[Effect]:
        """The first input. A sole voter leads at once, with one Persist."""
        return []

    def on_time(self, now_ms: int) -> list[Effect]:
        return []

    def on_vote(self, token: object, request: VoteRequest, now_ms: int) -> list[Effect]:
        return []

    def on_begin_quorum_epoch(self, token: object, request: BeginQuorumEpochRequest, now_ms: int) -> list[Effect]:
        return []

    def on_end_quorum_epoch(self, token: object, request: EndQuorumEpochRequest, now_ms: int) -> list[Effect]:
        return []

    def on_fetch(self, token: object, request: FetchRequest, version: int, now_ms: int) -> list[Effect]:
        """Answered at once, or parked until there is something to tell or its `max_wait_ms` is over."""
        return []

    def on_fetch_snapshot(self, token: object, request: FetchSnapshotRequest, now_ms: int) -> list[Effect]:
        return []

    def on_describe_quorum(
        self, token: object, request: DescribeQuorumRequest, version: int, now_ms: int, wall_ms: int
    ) -> list[Effect]:
        return []

    def on_add_voter(self, token: object, request: AddRaftVoterRequest, now_ms: int) -> list[Effect]:
        """Parked until the new voter has been asked, found to be caught up, and the new voters are committed."""
        return []

    def on_remove_voter(self, token: object, request: RemoveRaftVoterRequest, now_ms: int) -> list[Effect]:
        """Parked until the remaining voters are committed."""
        return []

    def on_update_voter(self, token: object, request: UpdateRaftVoterRequest, now_ms: int) -> list[Effect]:
        return []

    def upgrade_kraft_version(self, token: object, level: int, now_ms: int) -> list[Effect]:
        """From voters that are configured to voters that are in the log (kraft.version 0 to 1).

        Parked until it is committed; the Reply is an UpdateFeaturesResponse.
        """
        return []

    def on_response(self, send: Send, response: Message | None, refused: bool, now_ms: int) -> list[Effect]:
        """How a `Send` ended. None: it failed. `refused`: the connection ended or could not be made, *and* a fresh dial
        of that endpoint was refused, which is evidence that nobody is there; a timeout or silence never is."""
        return []

    def on_appended(self, now_ms: int) -> list[Effect]:
        """As leader the driver has appended the controller's records to the page cache."""
        return []

    def on_flushed(self, end_offset: int, now_ms: int) -> list[Effect]:
        """The log is synced up to `end_offset`, the end it had when that sync began."""
        return []

    def on_snapshot_loaded(self, snapshot_id: SnapshotId, now_ms: int) -> list[Effect]:
        """`FinishSnapshot` is done: the log begins and ends where the snapshot ends."""
        return []

    def on_snapshot_failed(self, snapshot_id: SnapshotId, why: str, now_ms: int) -> list[Effect]:
        """What was fetched is not a whole snapshot: it is given up, and the log is fetched again."""
        return []

    def resign(self, now_ms: int) -> list[Effect]:
        """The leader's node stops, or its controller gave up: the others are asked to elect somebody else at once.

        Nothing happens when this replica does not lead.
        """
        return []
