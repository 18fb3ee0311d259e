"""A quorum in memory: replicas, each with the simplest of drivers, and a network that delivers what it is told to.

Nothing happens by itself: whoever drives a cluster delivers messages, finishes syncs, lets time pass, kills and starts
nodes. What a node forgets when it is killed is what a real one may forget: everything but its quorum-state, its
snapshots, and the synced part of its log.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field
from random import Random
from typing import Any

from msgspec.structs import replace

from strandline.model.ids import ZERO_UUID, Endpoint, Uuid
from strandline.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    SupportedFeatureKey,
)
from strandline.protocol.types import Message
from strandline.raft.disk.quorum_state import read_quorum_state, write_quorum_state
from strandline.raft.machine.effects import (
    Commit,
    Effect,
    FinishSnapshot,
    Flush,
    Persist,
    Reply,
    ReplyWithRecords,
    ReplyWithSnapshot,
    Send,
    SnapshotChunk,
    Truncate,
)
from strandline.raft.machine.replica import QuorumRequest, Replica
from strandline.raft.machine.settings import QuorumSettings
from strandline.raft.machine.values import QuorumState, SnapshotId
from strandline.raft.machine.voters import Voter, VoterSet
from strandline.simulation.disk import SimDisk
from strandline.simulation.volume import Volume
from unit.raft.memory_log import MemoryLog

CLUSTER_ID = "a-quorum-in-memory"
LISTENER = "CONTROLLER"
HOME = "/raft"
DESCRIBE_VERSION = 2
"""The version of DescribeQuorum requests; the machine takes all others in any version."""


def voter(node_id: int, disk: int = 1, *, port: int = 9093) -> Voter:
    """Node `node_id` with its first, second, … disk."""
    return Voter(node_id, Uuid.of(node_id, 1000 + disk), ((LISTENER, Endpoint(f"n{node_id}", port)),))


def configured(voters: Sequence[Voter]) -> VoterSet:
    """As `controller.quorum.voters` names them: without directories."""
    return VoterSet(tuple(Voter(each.id, listeners=each.listeners) for each in voters))


@dataclass(eq=False, slots=True)
class Envelope:
    """A request on its way, or, once there is a response, the response on its way back."""

    sender: Node
    life: int
    send: Send
    response: Message | None = None
    is_answered: bool = False

    @property
    def request(self) -> Message:
        return self.send.request

    @property
    def target(self) -> int:
        return int(self.send.endpoint.host.removeprefix("n"))


@dataclass(eq=False, slots=True)
class PendingRequest:
    """A request of somebody outside, such as an administrator: its token."""

    what: str
    answer: Message | None = None


OnEffect = Callable[["Node", Effect], None]


def _empty_disk() -> SimDisk:
    disk = SimDisk(Volume())
    disk.make_dirs(HOME)
    return disk


@dataclass(eq=False)
class Node:
    cluster: Cluster
    me: Voter
    log: MemoryLog
    is_controller: bool
    disk: SimDisk = field(default_factory=_empty_disk)
    """Holds quorum-state, in the file that a real node has."""
    state: QuorumState = field(default_factory=QuorumState)
    """As it was last read from there: whenever it was written, and when the node started."""
    is_state_whole: bool = True
    replica: Replica | None = None
    life: int = 0
    applied: list[tuple[int, int, Any]] = field(default_factory=list)
    """(offset, epoch, record): what its state machine was told is committed."""
    syncing_to: int | None = None
    """A sync is under way that began with the log at this end."""
    covered_to: int = 0
    """How much of what that sync covers is still in the log."""
    parts: dict[SnapshotId, bytes] = field(default_factory=dict)

    @property
    def id(self) -> int:
        return self.me.id

    @property
    def machine(self) -> Replica:
        assert self.replica is not None, f"node {self.id} is down"
        return self.replica

    @property
    def is_up(self) -> bool:
        return self.replica is not None

    @property
    def remembers_all(self) -> bool:
        """Whether its disk says what its machine wants remembered. While voters are configured, the file has no room
        for the directory of whoever was voted for."""
        wanted = self.machine.state
        return self.state == (wanted if self.is_state_whole else replace(wanted, voted_directory_id=ZERO_UUID))

    def lose_disk(self, successor: Voter) -> None:
        """It is down, and begins with another one as somebody else."""
        self.me = successor
        self.disk, self.state = _empty_disk(), QuorumState()
        self.log = MemoryLog(VoterSet(()), 0)
        self.applied = []

    @property
    def committed(self) -> int:
        return self.log.start_offset if not self.applied else max(self.applied[-1][0] + 1, self.log.start_offset)

    def start(self) -> None:
        cluster = self.cluster
        self.life += 1
        self.syncing_to = None
        self.parts = {}
        self.applied = self._applied_of_snapshot()
        self.log.sync(self.log.end_offset)
        self.state = read_quorum_state(self.disk, HOME)
        self.replica = Replica(
            self.me,
            CLUSTER_ID,
            self.log,
            self.state,
            cluster.settings,
            cluster.random_for(self.id),
            is_controller=self.is_controller,
            bootstrap=cluster.bootstrap,
            committed=self.committed,
        )
        self.perform(self.replica.start(cluster.now_ms))

    def kill(self, keep_unsynced: bool = False) -> None:
        """The process is gone, and its connections with it. What was not synced may be gone, too."""
        self.replica = None
        self.cluster.break_connections_to(self)
        if not keep_unsynced:
            self.lose_unsynced(self.log.synced_end)

    def lose_unsynced(self, end_offset: int) -> None:
        kept = [batch.next_offset for batch in self.log.batches if batch.next_offset <= end_offset]
        self.log.truncate(max([self.log.start_offset, *kept]))

    def append(self, records: Sequence[str]) -> int:
        """As the controller of a leader does."""
        offset = self.log.append_data(records, self.machine.epoch)
        self.perform(self.machine.on_appended(self.cluster.now_ms))
        return offset

    def finish_sync(self) -> None:
        if self.syncing_to is not None and self.is_up:
            end_offset, self.syncing_to = self.syncing_to, None
            self.log.sync(self.covered_to)
            self.perform(self.machine.on_flushed(end_offset, self.cluster.now_ms))

    def take_snapshot(self) -> SnapshotId | None:
        """Of all that is committed here; the log before it is forgotten."""
        if not self.applied or self.committed <= self.log.start_offset:
            return None
        snapshot_id = SnapshotId(self.committed, self.applied[-1][1])
        kraft_version, voters = self.log.history.before(snapshot_id.end_offset)
        content = pickle.dumps((kraft_version, voters if kraft_version > 0 else None, self.applied))
        self.log.write_snapshot(snapshot_id, content)
        self.log.begin_at(snapshot_id)
        return snapshot_id

    def perform(self, effects: Sequence[Effect]) -> None:
        """In order. The cluster may see each beforehand, and end the node there."""
        life = self.life
        for effect in effects:
            self.cluster.on_effect(self, effect)
            if not self.is_up or self.life != life:
                return
            self._perform(effect)
            if not self.is_up or self.life != life:
                return
        self.cluster.on_performed(self)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Persist(state):
                voters = [each.id for each in self.log.voters.voters]
                write_quorum_state(self.disk, HOME, state, kraft_version=self.log.kraft_version, voters=voters)
                self.state, self.is_state_whole = read_quorum_state(self.disk, HOME), self.log.kraft_version > 0
            case Send():
                self.cluster.letters.append(Envelope(self, self.life, effect))
            case Reply(token, response):
                self.cluster.answer(token, response)
            case ReplyWithRecords(token, response, offset, _):
                response.responses[0].partitions[0].records = self.log.read(offset, self.cluster.batches_per_fetch)
                self.cluster.answer(token, response)
            case ReplyWithSnapshot(token, response, snapshot_id, position, max_bytes):
                data = self.log.snapshots[snapshot_id][position : position + max_bytes]
                response.topics[0].partitions[0].unaligned_records = data
                self.cluster.answer(token, response)
            case Flush():
                self.syncing_to = self.covered_to = self.log.end_offset
            case Truncate(offset):
                self.log.truncate(offset)
                self.covered_to = min(self.covered_to, offset)
            case Commit(high_watermark):
                self._apply(high_watermark)
            case SnapshotChunk(snapshot_id, position, data):
                so_far = self.parts.get(snapshot_id, b"")[:position]
                self.parts[snapshot_id] = so_far + bytes(data)
            case FinishSnapshot(snapshot_id):
                self._load_snapshot(snapshot_id)
            case _:
                pass

    def _apply(self, high_watermark: int) -> None:
        self.applied += self.log.records(self.committed, high_watermark)

    def _load_snapshot(self, snapshot_id: SnapshotId) -> None:
        content = self.parts.pop(snapshot_id)
        kraft_version, voters, self.applied = pickle.loads(content)
        self.log.restart_at(snapshot_id, content, kraft_version, voters)
        self.syncing_to = None
        self.perform(self.machine.on_snapshot_loaded(snapshot_id, self.cluster.now_ms))

    def _applied_of_snapshot(self) -> list[tuple[int, int, Any]]:
        latest = self.log.latest_snapshot
        return [] if latest is None else pickle.loads(self.log.snapshots[latest])[2]

    def receive(self, token: object, request: Message) -> None:
        if isinstance(request, ApiVersionsRequest):
            low, high = self.me.kraft_versions
            feature = SupportedFeatureKey(name="kraft.version", min_version=low, max_version=high)
            response = ApiVersionsResponse(api_keys=[ApiVersion(api_key=52)], supported_features=[feature])
            self.perform([Reply(token, response)])
        else:
            assert isinstance(request, QuorumRequest), f"{request} is no request of the quorum"
            now_ms = self.cluster.now_ms
            self.perform(self.machine.on_request(token, request, DESCRIBE_VERSION, now_ms, now_ms))


class Cluster:
    def __init__(
        self,
        seed: int = 1,
        settings: QuorumSettings | None = None,
        bootstrap: Sequence[int] = (),
    ) -> None:
        self.random = Random(seed)
        self.settings = settings or QuorumSettings()
        self.bootstrap = [Endpoint(f"n{node_id}", 9093) for node_id in bootstrap]
        self.now_ms = 0
        self.nodes: dict[int, Node] = {}
        self.letters: list[Envelope] = []
        """On their way."""
        self.unanswered: list[tuple[Node, Envelope]] = []
        """Requests that have come to a node, which has not answered yet."""
        self.batches_per_fetch = 8

    def add_node(self, me: Voter, voters: VoterSet, kraft_version: int, *, is_controller: bool = True) -> Node:
        node = Node(self, me, MemoryLog(voters, kraft_version), is_controller)
        self.nodes[me.id] = node
        return node

    def random_for(self, node_id: int) -> Random:
        return Random(self.random.random())

    def on_effect(self, node: Node, effect: Effect) -> None:
        """About to be performed."""

    def on_performed(self, node: Node) -> None:
        """All effects of one input are."""

    def on_failed(self, letter: Envelope, refused: bool) -> None:
        """Its sender is about to learn that it did not arrive."""

    def answer(self, token: object, response: Message) -> None:
        if isinstance(token, PendingRequest):
            token.answer = response
        elif isinstance(token, Envelope):
            self.unanswered = [each for each in self.unanswered if each[1] is not token]
            self.letters.append(Envelope(token.sender, token.life, token.send, response, is_answered=True))

    def deliver(self, letter: Envelope) -> None:
        """To whom it is for, if that one is there; a request to nobody comes back as refused."""
        self.letters.remove(letter)
        if letter.is_answered:
            self._bring_back(letter, letter.response, refused=False)
            return
        target = self.nodes.get(letter.target)
        if target is not None and target.is_up:
            self.unanswered.append((target, letter))
            target.receive(letter, letter.request)
        else:
            self._bring_back(letter, None, refused=True)

    def fail(self, letter: Envelope, *, refused: bool = False) -> None:
        """Its connection breaks."""
        self.letters.remove(letter)
        self._bring_back(letter, None, refused=refused)

    def break_connections_to(self, node: Node) -> None:
        broken = [letter for target, letter in self.unanswered if target is node]
        self.unanswered = [each for each in self.unanswered if each[0] is not node]
        self.letters += [copy(letter) for letter in broken]

    def _bring_back(self, letter: Envelope, response: Message | None, *, refused: bool) -> None:
        sender = letter.sender
        if sender.is_up and sender.life == letter.life:
            if response is None:
                self.on_failed(letter, refused)
            sender.perform(sender.machine.on_response(letter.send, response, refused, self.now_ms))

    def next_deadline_ms(self) -> int | None:
        deadlines = [node.machine.next_deadline_ms() for node in self.nodes.values() if node.is_up]
        return min((deadline_ms for deadline_ms in deadlines if deadline_ms is not None), default=None)

    def let_time_pass(self, until_ms: int) -> None:
        """To this moment; every node is told, once, if something was due."""
        self.now_ms = max(self.now_ms, until_ms)
        for node in list(self.nodes.values()):
            deadline_ms = node.machine.next_deadline_ms() if node.is_up else None
            if deadline_ms is not None and deadline_ms <= self.now_ms:
                node.perform(node.machine.on_time(self.now_ms))
