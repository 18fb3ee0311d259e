"""The shell around the raft machine: `Quorum` carries to the `Replica` what happens, and performs what it wants."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

from strandline.metadata.image import Image
from strandline.model.ids import Endpoint
from strandline.model.timeline import Touched
from strandline.protocol.types import Message
from strandline.raft.peers_port import Peers
from strandline.raft.settings import QuorumSettings
from strandline.raft.sole_voter import OnCommit, SnapshotPolicy, SoleVoter
from strandline.raft.storage import MetadataStorage
from strandline.raft.voters import Voter, VoterSet
from strandline.runtime.clock import Clock
from strandline.runtime.metrics import Metrics
from strandline.runtime.offload import Offload
from strandline.runtime.watermark import Watermark

__all__ = ["Leader", "OnCommit", "Quorum", "SnapshotPolicy", "SoleVoter"]


class Leader(NamedTuple):
    """Who leads the metadata quorum, as far as this node knows. `id` is -1 when nobody is known to lead the epoch."""

    id: int
    epoch: int
    endpoint: Endpoint | None


class Quorum:
    def __init__(
        self,
        storage: MetadataStorage,
        image: Image,
        clock: Clock,
        offload: Offload,
        peers: Peers,
        random: Random,
        *,
        me: Voter,
        cluster_id: str,
        is_controller: bool,
        settings: QuorumSettings,
        configured_voters: VoterSet | None = None,
        bootstrap: Sequence[Endpoint] = (),
        policy: SnapshotPolicy | None = None,
        append_linger_ms: int = 25,
        metrics: Metrics | None = None,
    ) -> None:
        """`offload` belongs to the quorum alone (two threads will do), so that a busy disk pool delays no election.

        `me`: this node as it would stand in a VotersRecord, a broker too: node id, directory id of the metadata log
        directory, the advertised controller listeners (none for a broker). `configured_voters` is
        `controller.quorum.voters`, for a quorum whose voters are not in its log; `bootstrap` is
        `controller.quorum.bootstrap.servers`.
        """
        self.on_commit: Callable[[list[Touched]], None] | None = None
        """Hears what each commit touched, after the image has it and before anyone who waits for it."""
        self.on_leading: Callable[[int], None] | None = None
        """This node leads the epoch given, and everything committed is in the image."""
        self.on_stepped_down: Callable[[], None] | None = None
        """It does not any more. Called before anything else is replayed."""
        self.committed = Watermark(0)
        """Of the current leadership: a new one each time, lost with NOT_CONTROLLER."""
        self.high_watermark = Watermark(0)
        """How far the image is committed, whoever leads: never lost, never falls."""
        self.is_leader = False

    @property
    def epoch(self) -> int:
        return 0

    @property
    def kraft_version(self) -> int:
        return 0

    @property
    def end_offset(self) -> int:
        return 0

    @property
    def leader(self) -> Leader:
        return Leader(-1, 0, None)

    async def other_leader(self, known: Leader) -> Leader:
        """Returns when who leads, in which epoch, or where, differs from `known`."""
        raise NotImplementedError

    async def start(self) -> None:
        """Reads the disk. The image is replayed as far as the log is known to be committed, and no further."""
        raise NotImplementedError

    async def run(self) -> None:
        """Takes part in the quorum until cancelled. NodeFault: the metadata disk fails, or an invariant is broken."""
        raise NotImplementedError

    async def resign(self) -> None:
        """Before a leader's node stops: asks the others to elect somebody else at once, and waits for it briefly."""
        raise NotImplementedError

    async def close(self) -> None:
        """After `run` has ended: what is synced stays, and the files are put down."""
        raise NotImplementedError

    async def handle(self, request: Message, version: int) -> Message:
        """Vote, BeginQuorumEpoch, EndQuorumEpoch, Fetch and FetchSnapshot of the metadata log, DescribeQuorum,
        AddRaftVoter, RemoveRaftVoter, UpdateRaftVoter."""
        raise NotImplementedError

    async def upgrade_kraft_version(self, level: int) -> Message:
        """From configured voters to voters in the log; answers an UpdateFeaturesResponse when that is committed."""
        raise NotImplementedError

    def reserve(self) -> int:
        """The offset where the next append will stand; nobody else writes until `append` or `release`."""
        raise NotImplementedError

    def release(self) -> None:
        raise NotImplementedError

    def append(self, records: Sequence[Message]) -> int:
        """One atomic batch; the offset of its last record, at once. Durable when `committed` has passed it."""
        raise NotImplementedError
