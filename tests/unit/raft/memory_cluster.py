"""A quorum in memory: replicas, each with a minimal driver, and a network that the test controls.

Nothing happens by itself: the test delivers messages, finishes syncs, advances the time, kills and starts nodes. A node
that is killed loses what a real one may lose: everything but its quorum-state, its snapshots, and the synced part of
its log.
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
    """A request or, once there is one, its response, on the network."""

    sender: Node
    start_count: int
    send: Send
    response: Message | None = None
    is_response: bool = False

    @property
    def request(self) -> Message:
        return self.send.request

    @property
    def target(self) -> int:
        return int(self.send.endpoint.host.removeprefix("n"))


@dataclass(eq=False, slots=True)
class PendingRequest:
    """The token of a request from outside the quorum, such as an administrator's."""

    what: str
    response: Message | None = None


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
    """As last read from the disk: after each write, and when the node started."""
    has_vote_directory: bool = True
    replica: Replica | None = None
    start_count: int = 0
    applied: list[tuple[int, int, Any]] = field(default_factory=list)
    """(offset, epoch, record): the records that were committed here."""
    syncing_to: int | None = None
    """The log end offset when the running sync began."""
    covered_to: int = 0
    """The end of the part that the sync covers and that is still in the log."""
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
    def is_persisted(self) -> bool:
        """Whether the state of the machine is on its disk. While voters are configured, the file has no directory id
        for the vote."""
        wanted = self.machine.state
        return self.state == (wanted if self.has_vote_directory else replace(wanted, voted_directory_id=ZERO_UUID))

    def replace_disk(self, successor: Voter) -> None:
        """While it is down: it gets an empty disk, and with it another directory id."""
        self.me = successor
        self.disk, self.state = _empty_disk(), QuorumState()
        self.log = MemoryLog(VoterSet(()), 0)
        self.applied = []

    @property
    def committed(self) -> int:
        return self.log.start_offset if not self.applied else max(self.applied[-1][0] + 1, self.log.start_offset)

    def start(self) -> None:
        cluster = self.cluster
        self.start_count += 1
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
        """Ends the process and its connections. Unless `keep_unsynced`, unsynced records are lost."""
        self.replica = None
        self.cluster.break_connections_to(self)
        if not keep_unsynced:
            self.drop_unsynced(self.log.synced_end)

    def drop_unsynced(self, end_offset: int) -> None:
        kept = [batch.next_offset for batch in self.log.batches if batch.next_offset <= end_offset]
        self.log.truncate(max([self.log.start_offset, *kept]))

    def append(self, records: Sequence[str]) -> int:
        """As the driver of a leader does."""
        offset = self.log.append_data(records, self.machine.epoch)
        self.perform(self.machine.on_appended(self.cluster.now_ms))
        return offset

    def finish_sync(self) -> None:
        if self.syncing_to is not None and self.is_up:
            end_offset, self.syncing_to = self.syncing_to, None
            self.log.sync(self.covered_to)
            self.perform(self.machine.on_flushed(end_offset, self.cluster.now_ms))

    def take_snapshot(self) -> SnapshotId | None:
        """Of everything committed here; the log before it is removed."""
        if not self.applied or self.committed <= self.log.start_offset:
            return None
        snapshot_id = SnapshotId(self.committed, self.applied[-1][1])
        kraft_version, voters = self.log.history.before(snapshot_id.end_offset)
        content = pickle.dumps((kraft_version, voters if kraft_version > 0 else None, self.applied))
        self.log.write_snapshot(snapshot_id, content)
        self.log.begin_at(snapshot_id)
        return snapshot_id

    def perform(self, effects: Sequence[Effect]) -> None:
        """In order. `on_effect` sees each before it is performed, and may kill the node."""
        start_count = self.start_count
        for effect in effects:
            self.cluster.on_effect(self, effect)
            if not self.is_up or self.start_count != start_count:
                return
            self._perform(effect)
            if not self.is_up or self.start_count != start_count:
                return
        self.cluster.on_performed(self)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Persist(state):
                voters = [each.id for each in self.log.voters.voters]
                write_quorum_state(self.disk, HOME, state, kraft_version=self.log.kraft_version, voters=voters)
                self.state, self.has_vote_directory = read_quorum_state(self.disk, HOME), self.log.kraft_version > 0
            case Send():
                self.cluster.envelopes.append(Envelope(self, self.start_count, effect))
            case Reply(token, response):
                self.cluster.respond(token, response)
            case ReplyWithRecords(token, response, offset, _):
                response.responses[0].partitions[0].records = self.log.read(offset, self.cluster.batches_per_fetch)
                self.cluster.respond(token, response)
            case ReplyWithSnapshot(token, response, snapshot_id, position, max_bytes):
                data = self.log.snapshots[snapshot_id][position : position + max_bytes]
                response.topics[0].partitions[0].unaligned_records = data
                self.cluster.respond(token, response)
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
        self.envelopes: list[Envelope] = []
        """On the network."""
        self.pending_requests: list[tuple[Node, Envelope]] = []
        """Requests that a node has received and not responded to."""
        self.batches_per_fetch = 8

    def add_node(self, me: Voter, voters: VoterSet, kraft_version: int, *, is_controller: bool = True) -> Node:
        node = Node(self, me, MemoryLog(voters, kraft_version), is_controller)
        self.nodes[me.id] = node
        return node

    def random_for(self, node_id: int) -> Random:
        return Random(self.random.random())

    def on_effect(self, node: Node, effect: Effect) -> None:
        """Called before it is performed."""

    def on_performed(self, node: Node) -> None:
        """Called after all effects of one input."""

    def on_failed(self, envelope: Envelope, refused: bool) -> None:
        """Called before its sender is notified that the request failed."""

    def respond(self, token: object, response: Message) -> None:
        if isinstance(token, PendingRequest):
            token.response = response
        elif isinstance(token, Envelope):
            self.pending_requests = [each for each in self.pending_requests if each[1] is not token]
            self.envelopes.append(Envelope(token.sender, token.start_count, token.send, response, is_response=True))

    def deliver(self, envelope: Envelope) -> None:
        """A request to a node that is down is returned to its sender as refused."""
        self.envelopes.remove(envelope)
        if envelope.is_response:
            self._return_to_sender(envelope, envelope.response, refused=False)
            return
        target = self.nodes.get(envelope.target)
        if target is not None and target.is_up:
            self.pending_requests.append((target, envelope))
            target.receive(envelope, envelope.request)
        else:
            self._return_to_sender(envelope, None, refused=True)

    def fail(self, envelope: Envelope, *, refused: bool = False) -> None:
        """Its connection is lost."""
        self.envelopes.remove(envelope)
        self._return_to_sender(envelope, None, refused=refused)

    def break_connections_to(self, node: Node) -> None:
        broken = [envelope for target, envelope in self.pending_requests if target is node]
        self.pending_requests = [each for each in self.pending_requests if each[0] is not node]
        self.envelopes += [copy(envelope) for envelope in broken]

    def _return_to_sender(self, envelope: Envelope, response: Message | None, *, refused: bool) -> None:
        sender = envelope.sender
        if sender.is_up and sender.start_count == envelope.start_count:
            if response is None:
                self.on_failed(envelope, refused)
            sender.perform(sender.machine.on_response(envelope.send, response, refused, self.now_ms))

    def next_deadline_ms(self) -> int | None:
        deadlines = [node.machine.next_deadline_ms() for node in self.nodes.values() if node.is_up]
        return min((deadline_ms for deadline_ms in deadlines if deadline_ms is not None), default=None)

    def advance_time(self, until_ms: int) -> None:
        """Calls `on_time` of every node that has a deadline by then."""
        self.now_ms = max(self.now_ms, until_ms)
        for node in list(self.nodes.values()):
            deadline_ms = node.machine.next_deadline_ms() if node.is_up else None
            if deadline_ms is not None and deadline_ms <= self.now_ms:
                node.perform(node.machine.on_time(self.now_ms))
