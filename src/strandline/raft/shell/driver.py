"""The shell around the raft machine: `Quorum` passes inputs to the `Replica` and performs its effects.

Every input (a request, a response, a timer, a finished sync, records of the controller) is a step in the input queue.
One task takes one step at a time and performs its effects, in order, before the next. Three effects are awaited
(`Persist`, `Truncate`, `FinishSnapshot`); meanwhile the machine gets no input. The rest runs in the background: syncs
and truncation (`stored_log`), replay and notification of what is committed (`replay`), encoding of the controller's
records (`appends`), requests to other nodes (`outbound_requests`), snapshots (`snapshot_generator`).

    leader     append → encode → page cache → on_appended → Flush → on_flushed → Commit → image.commit → waiters
    others     Fetch response → page cache → Flush → on_flushed → next Fetch; Commit → read, replay, commit → waiters

The controller uses the `MetadataLog` port; the rest of the node uses `leader`, `high_watermark` and a registered
`QuorumListener`. When the metadata disk fails, `run` raises a NodeFault: the node stops, the other voters continue.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Final

from strandline.client.peers import Peers
from strandline.log.segment import Segment
from strandline.metadata.image import Image
from strandline.model.errors import ErrorCode, KafkaError, NodeFault
from strandline.model.ids import Endpoint
from strandline.protocol.messages.api_versions import ApiVersionsRequest
from strandline.protocol.messages.fetch import FetchResponse
from strandline.protocol.types import Message
from strandline.raft.disk.recovery import check_voters, read_state, recover
from strandline.raft.disk.snapshots import DamagedSnapshot, UnwrittenSnapshot
from strandline.raft.disk.storage import MetadataStorage
from strandline.raft.machine import effects
from strandline.raft.machine.effects import Effect, Send
from strandline.raft.machine.replica import Replica
from strandline.raft.machine.settings import QuorumSettings
from strandline.raft.machine.values import KnownLeader, SnapshotId
from strandline.raft.machine.voters import Voter, VoterHistory, VoterSet
from strandline.raft.shell import inbound_requests
from strandline.raft.shell.appends import WRITE_BYTES, LeaderTerm
from strandline.raft.shell.input_queue import InputQueue
from strandline.raft.shell.metrics import QuorumMetrics
from strandline.raft.shell.outbound_requests import OutboundRequests
from strandline.raft.shell.replay import Commits, QuorumListener, Replay
from strandline.raft.shell.snapshot_generator import SnapshotGenerator, SnapshotSettings
from strandline.raft.shell.stored_log import Flusher, StoredLog, restart_from_snapshot, truncate
from strandline.runtime.clock import Clock
from strandline.runtime.disk import Buffer
from strandline.runtime.metrics import Metrics
from strandline.runtime.offload import Offload
from strandline.runtime.tasks import TaskGroup, yield_to_loop
from strandline.runtime.watermark import Watermark

# How long a leader that resigns waits until the other voters have acknowledged it.
_RESIGN_TIMEOUT_MS: Final = 1_000

logger = logging.getLogger(__name__)


class Quorum:
    _log: StoredLog
    _replica: Replica
    _snapshots: SnapshotGenerator
    """Set by `start`, as are the two above."""

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
        snapshot_settings: SnapshotSettings | None = None,
        append_linger_ms: int = 25,
        metrics: Metrics | None = None,
    ) -> None:
        """`offload` belongs to the quorum alone (two threads are enough), so that a busy disk pool delays no election.

        `me`: this node's entry for a VotersRecord, also of a broker: node id, directory id of the metadata log
        directory, the advertised controller listeners (none for a broker). `configured_voters` is
        `controller.quorum.voters`, for a quorum whose voters are not in its log; `bootstrap` is
        `controller.quorum.bootstrap.servers`.
        """
        self._storage = storage
        self._image = image
        self._clock = clock
        self._offload = offload
        self._configured_voters = configured_voters
        self._snapshot_settings = snapshot_settings or SnapshotSettings()
        self._append_linger_ms = append_linger_ms
        self._read_state = partial(read_state, me=me, is_controller=is_controller)
        self._check_voters = partial(check_voters, me=me, is_controller=is_controller, has_bootstrap=bool(bootstrap))
        self._make_replica = partial(
            Replica,
            me,
            cluster_id,
            settings=settings,
            random=random,
            is_controller=is_controller,
            bootstrap=bootstrap,
        )
        self._metrics = QuorumMetrics(metrics, clock)
        self._commits = Commits(image, self._metrics, self._on_published)
        self._inputs = InputQueue(lambda: self._commits.is_reserved)
        self._flusher = Flusher(storage.log, offload, self._on_flushed)
        self._replay = Replay(storage, image, offload, self._commits.on_replayed)
        self._outbound = OutboundRequests(peers, settings.request_timeout_ms, self._on_request_completed)
        self._tasks = TaskGroup()
        self._replies = inbound_requests.PendingReplies()
        self._timer: asyncio.TimerHandle | None = None
        self._leader_changed = asyncio.Event()

    @property
    def committed(self) -> Watermark:
        """The watermark of the current leadership: each has its own, which fails with NOT_CONTROLLER when it ends."""
        return self._commits.committed

    @property
    def high_watermark(self) -> Watermark:
        """How far the image is committed, in whatever role: never lost, never decreases."""
        return self._commits.high_watermark

    @property
    def is_leader(self) -> bool:
        """Whether the controller of this node may append now."""
        term = self._commits.term
        return term is not None and term.epoch == self._replica.epoch and self._replica.is_leader

    @property
    def epoch(self) -> int:
        return self._replica.epoch

    @property
    def former_leader(self) -> tuple[int, int] | None:
        """The id of the former leader, and when this node last had contact with it."""
        former = self._replica.former_leader
        return None if former is None else (former.id, former.last_contact_ms)

    @property
    def voters(self) -> VoterSet:
        return self._log.voters

    @property
    def kraft_version(self) -> int:
        return self._log.kraft_version

    @property
    def end_offset(self) -> int:
        """The offset of the next record."""
        term = self._commits.term
        return self._log.end_offset if term is None else term.accumulator.end_offset

    @property
    def leader(self) -> KnownLeader:
        return self._replica.leader

    @property
    def replica(self) -> Replica | None:
        """The Raft machine, for inspection; None before `start`."""
        replica: Replica | None = getattr(self, "_replica", None)
        return replica

    @property
    def voter_history(self) -> VoterHistory | None:
        """The voter sets that the log names; None before `start`."""
        log: StoredLog | None = getattr(self, "_log", None)
        return None if log is None else log.history

    async def leader_other_than(self, known: KnownLeader) -> KnownLeader:
        """Waits until the leader, its epoch or its endpoint differs from `known`."""
        while self.leader == known:
            await self._leader_changed.wait()
        return self.leader

    def register(self, listener: QuorumListener) -> None:
        """The listener is notified from now on. A method, not a constructor argument: listeners need the quorum."""
        self._commits.listeners.append(listener)

    async def start(self) -> None:
        """Reads the disk. Replays the log into the image as far as it is known to be committed, and no further."""
        storage = self._storage
        try:
            history = await self._offload.run(recover, storage, self._image, self._configured_voters)
            state = await self._offload.run(self._read_state, storage, history)
            if len(history.voters) > 1:  # a sole voter writes a new quorum-state first
                await self._offload.run(storage.sync_state)
        except (OSError, KafkaError) as error:
            raise NodeFault(f"the metadata log in {storage.path} cannot be used: {error}") from error
        self._log = StoredLog(storage, history, self._clock, lambda: self._replica.epoch)
        self._check_voters(history)
        committed = storage.committed_offset
        storage.log.advance_high_watermark(committed)
        self._replay.advance(committed)
        self.high_watermark.advance(committed)
        self._snapshots = SnapshotGenerator(
            storage, self._image, history, self._clock, self._offload, self._snapshot_settings
        )
        self._replica = self._make_replica(self._log, state, committed=committed)
        self._metrics.expose(self._replica, self._log)
        self._put(self._replica.start)

    async def run(self) -> None:
        """Takes part in the quorum until cancelled. NodeFault: the metadata disk fails, or an invariant is broken."""
        try:
            async with TaskGroup() as self._tasks:
                self._tasks.start(self._steps(), "quorum")
                self._tasks.start(self._flusher.run(), "quorum flushes")
                self._tasks.start(self._replay.run(), "quorum replay")
                self._tasks.start(self._snapshots.run(), "quorum snapshots")
        except (OSError, KafkaError) as error:
            raise NodeFault(f"the metadata log in {self._storage.path} cannot be used any more: {error}") from error
        finally:
            self._stop()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._step_down()
        self._replies.close()

    async def resign(self) -> None:
        """Resigns before a leader's node stops: has the other voters elect another leader at once, and waits briefly
        for that."""
        if not self._replica.is_leader:
            return
        resigned: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done() -> list[Effect]:
            if not resigned.done():
                resigned.set_result(None)
            return []

        self._put(self._replica.resign)
        self._inputs.put(done)
        try:
            async with asyncio.timeout(_RESIGN_TIMEOUT_MS / 1000):
                await resigned
                await self._outbound.wait()
        except TimeoutError:
            logger.info("the other voters have not acknowledged in time that this node resigned")

    async def write_snapshot(self) -> SnapshotId | None:
        """Writes one now; None when there is nothing new, or a metadata transaction is open."""
        return await self._snapshots.write()

    async def close(self) -> None:
        """Closes the files, after `run` has ended."""
        try:
            await self._offload.run(self._storage.close)
        except (OSError, KafkaError) as error:
            logger.warning("the metadata log could not be closed cleanly, but everything synced is kept: %s", error)

    async def handle(self, request: Message, version: int) -> Message:
        """Vote, BeginQuorumEpoch, EndQuorumEpoch, Fetch and FetchSnapshot of the metadata log, DescribeQuorum,
        AddRaftVoter, RemoveRaftVoter, UpdateRaftVoter."""
        quorum_request = inbound_requests.checked(request)

        def submit(token: inbound_requests.Token) -> None:
            self._put(
                lambda now_ms: self._replica.on_request(token, quorum_request, version, now_ms, self._clock.wall_ms()),
                writes=inbound_requests.may_write(request),
            )

        return inbound_requests.downgraded(await self._replies.wait(submit), version)

    async def upgrade_kraft_version(self, level: int) -> Message:
        """Changes from configured voters to voters in the log; returns an UpdateFeaturesResponse after the commit."""
        upgrade = self._replica.upgrade_kraft_version
        return await self._replies.wait(
            lambda token: self._put(lambda now_ms: upgrade(token, level, now_ms), writes=True)
        )

    def reserve(self) -> int:
        """The offset of the next append; nothing else is appended until `append` or `release`."""
        return self._term().accumulator.reserve()

    def release(self) -> None:
        if self._commits.term is not None:
            self._commits.term.accumulator.release()
            self._inputs.wake()

    def append(self, records: Sequence[Message]) -> int:
        """Appends one atomic batch; returns the offset of its last record at once. Durable when `committed` passes
        it."""
        level = self._image.latest.metadata_version
        last_offset = self._term().append(records, self._clock.wall_ms(), level)
        self._inputs.wake()
        return last_offset

    def _term(self) -> LeaderTerm:
        if self._commits.term is None or not self.is_leader:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "this node does not lead the metadata quorum")
        return self._commits.term

    def _put(self, on_input: Callable[[int], list[Effect]], *, writes: bool = False, first: bool = False) -> None:
        """Queues an input that takes the time at which it runs."""
        self._inputs.put(lambda: on_input(self._clock.now_ms()), writes=writes, first=first)

    async def _steps(self) -> None:
        while True:
            step = await self._inputs.next()
            for effect in step():
                await self._perform(effect)
            self._set_timer()
            await yield_to_loop()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline_ms = self._replica.next_deadline_ms()
        if deadline_ms is not None:
            wait_ms = max(1, deadline_ms - self._clock.now_ms())
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(wait_ms / 1000, self._put, self._replica.on_time)

    async def _perform(self, effect: Effect) -> None:
        match effect:
            case effects.Persist(state):
                self._storage.record_epoch(state.epoch)
                await self._offload.run(self._storage.write_state, state, self._log.kraft_version, self._log.voters)
            case effects.Send():
                self._outbound.start(effect, self._tasks)
            case effects.Reply(token, response):
                inbound_requests.reply_to(token, response)
            case effects.ReplyWithRecords():
                self._tasks.start_eagerly(inbound_requests.reply_with_records(effect, self._storage, self._offload))
            case effects.ReplyWithSnapshot():
                self._snapshots.on_fetched(effect.snapshot_id)
                inbound_requests.reply_with_snapshot(effect, self._storage)
            case effects.Flush():
                self._flusher.request()
            case effects.Truncate(offset):
                await self._truncate(offset)
            case effects.Commit(high_watermark):
                await self._commit(high_watermark)
            case effects.Lead(epoch):
                self._replay.when_caught_up(partial(self._lead, epoch))
            case effects.StepDown():
                self._step_down()
            case effects.SnapshotChunk(snapshot_id, position, data):
                self._receive_chunk(snapshot_id, position, data)
            case effects.FinishSnapshot(snapshot_id):
                await self._finish_snapshot(snapshot_id)
            case effects.LeaderChanged():
                self._metrics.on_leader_changed(self._replica.leader_id >= 0)
                changed, self._leader_changed = self._leader_changed, asyncio.Event()
                changed.set()

    async def _commit(self, high_watermark: int) -> None:
        if self._commits.term is None:
            self._replay.advance(high_watermark)
        else:
            await self._commits.commit_appended(self._commits.term, high_watermark)

    def _on_published(self, offset: int) -> None:
        self._storage.record_committed(offset)
        self._snapshots.on_committed(offset)

    def _lead(self, epoch: int) -> None:
        """Everything committed is in the image."""
        if not self._replica.is_leader or self._replica.epoch != epoch:
            return
        term = LeaderTerm(epoch, self._log.end_offset, self._image.end_offset)
        self._log.accumulator = term.accumulator
        term.task = self._tasks.start(
            term.run(self._flusher.idle, self._append_linger_ms, partial(self._inputs.put, self._write_appended)),
            "quorum appends",
        )
        self._commits.lead(term)

    def _step_down(self) -> None:
        self._replay.when_caught_up(None)
        self._log.accumulator = None
        self._commits.step_down()

    def _write_appended(self) -> list[Effect]:
        term = self._commits.term
        if term is None or not self.is_leader:
            return []
        before = self._log.end_offset
        self._log.append_encoded(WRITE_BYTES)
        if term.accumulator.is_encoded:
            self._inputs.put(self._write_appended)
        written = self._log.end_offset - before
        if written == 0:
            return []
        self._metrics.on_appended(written, self._log.end_offset)
        return self._replica.on_appended(self._clock.now_ms())

    def _on_flushed(self) -> None:
        self._storage.record_committed(self._storage.log.high_watermark)
        self._put(lambda now_ms: self._replica.on_flushed(self._log.flushed_offset, now_ms))

    def _on_request_completed(self, send: Send, response: Message | None, refused: bool) -> None:
        # The response of a new voter to ApiVersions makes the leader append the new voter set.
        writes = isinstance(send.request, ApiVersionsRequest)
        self._put(lambda now_ms: self._on_response(send, response, refused, now_ms), writes=writes)

    def _on_response(self, send: Send, response: Message | None, refused: bool, now_ms: int) -> list[Effect]:
        before = self._log.end_offset
        emitted = self._replica.on_response(send, response, refused, now_ms)
        if isinstance(response, FetchResponse):
            self._metrics.on_fetched(self._log.end_offset - before)
        return emitted

    async def _truncate(self, offset: int) -> None:
        segments = await truncate(self._log, self._storage, self._flusher, self._offload, offset)
        self._remove([], segments)

    def _receive_chunk(self, snapshot_id: SnapshotId, position: int, data: Buffer) -> None:
        try:
            self._storage.receive_chunk(snapshot_id, position, data)
        except UnwrittenSnapshot as refusal:
            self._discard_snapshot(snapshot_id, refusal)

    async def _finish_snapshot(self, snapshot_id: SnapshotId) -> None:
        storage, wall_ms = self._storage, self._clock.wall_ms()
        if not storage.is_receiving(snapshot_id):
            return  # The disk was full for its last chunk; `on_snapshot_failed` is queued already.
        try:
            surplus = await restart_from_snapshot(self._log, storage, self._replay, self._offload, snapshot_id, wall_ms)
        except (DamagedSnapshot, UnwrittenSnapshot) as failure:
            self._discard_snapshot(snapshot_id, failure)
            return
        self._remove(*surplus)
        self._put(lambda now_ms: self._replica.on_snapshot_loaded(snapshot_id, now_ms), first=True)

    def _discard_snapshot(self, snapshot_id: SnapshotId, failure: Exception) -> None:
        self._storage.discard_received()
        why = str(failure)
        self._put(lambda now_ms: self._replica.on_snapshot_failed(snapshot_id, why, now_ms), first=True)

    def _remove(self, snapshots: Sequence[SnapshotId], segments: Sequence[Segment]) -> None:
        self._tasks.start(self._offload.run(self._storage.remove_files, snapshots, segments), "quorum file removal")
