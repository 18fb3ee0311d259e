"""One replica; the test plays the other nodes."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, TypeVar

from strandline.model.errors import ErrorCode
from strandline.model.ids import Endpoint
from strandline.protocol.messages.fetch import FetchRequest, FetchResponse
from strandline.protocol.types import Message
from strandline.raft.machine.effects import Effect, Reply, ReplyWithRecords, Send
from strandline.raft.machine.messages import (
    begin_epoch_request,
    fetch_request,
    fetch_response,
    vote_request,
    vote_response,
)
from strandline.raft.machine.replica import QuorumRequest, Replica
from strandline.raft.machine.settings import QuorumSettings
from strandline.raft.machine.states import Follower, Leader
from strandline.raft.machine.values import KnownLeader, QuorumState
from strandline.raft.machine.voters import ReplicaKey, Voter, VoterSet
from unit.raft.memory_cluster import CLUSTER_ID, configured, voter
from unit.raft.memory_log import Batch, MemoryLog

T = TypeVar("T", bound=Effect)
M = TypeVar("M", bound=Message)


class SingleReplica:
    """Node 1 of the voters 1, 2 and 3 by default."""

    def __init__(
        self,
        *,
        me: Voter | None = None,
        voters: Sequence[int] = (1, 2, 3),
        kraft_version: int = 1,
        state: QuorumState | None = None,
        batches: Sequence[tuple[int, str]] = (),
        committed: int = 0,
        is_controller: bool = True,
        bootstrap: Sequence[Endpoint] = (),
        settings: QuorumSettings | None = None,
    ) -> None:
        """`batches`: (epoch, record) of each."""
        known = [voter(node_id) for node_id in voters]
        self.log = MemoryLog(VoterSet(tuple(known)) if kraft_version else configured(known), kraft_version)
        for epoch, record in batches:
            self.log.append_data([record], epoch)
        self.now_ms = 0
        self.settings = settings or QuorumSettings()
        self.machine = Replica(
            me or voter(1),
            CLUSTER_ID,
            self.log,
            state or QuorumState(),
            self.settings,
            Random(1),
            is_controller=is_controller,
            bootstrap=bootstrap,
            committed=committed,
        )

    def on_request(self, token: object, request: QuorumRequest, now_ms: int) -> list[Effect]:
        """Of any API but DescribeQuorum, which needs a version and the wall clock."""
        return self.machine.on_request(token, request, 0, now_ms, 0)

    def start(self) -> list[Effect]:
        return self.machine.start(self.now_ms)

    def wait(self, ms: int) -> list[Effect]:
        self.now_ms += ms
        return self.machine.on_time(self.now_ms)

    def expire_timeout(self) -> list[Effect]:
        deadline_ms = self.machine.role.deadline_ms
        assert deadline_ms is not None
        self.now_ms = deadline_ms
        return self.machine.on_time(self.now_ms)

    def sync(self) -> list[Effect]:
        self.log.sync(self.log.end_offset)
        return self.machine.on_flushed(self.log.end_offset, self.now_ms)

    def respond(self, send: Send, response: Message | None, *, refused: bool = False) -> list[Effect]:
        return self.machine.on_response(send, response, refused, self.now_ms)

    def win(self) -> list[Effect]:
        """Elected by 2 and 3."""
        self.start()
        sends = only(Send, self.expire_timeout())
        sends = only(Send, self.respond(sends[0], self.vote()))
        effects = self.respond(sends[0], self.vote())
        assert isinstance(self.machine.role, Leader)
        return effects

    def lead(self) -> None:
        """Elected, and its first record is committed."""
        self.win()
        self.sync()
        self.fetched_by(2, self.log.end_offset, max_wait_ms=0)
        assert self.leader.high_watermark == self.log.end_offset

    def follow(self, leader_id: int = 2, epoch: int = 1) -> Send:
        """By BeginQuorumEpoch; returns its first fetch."""
        self.start()
        request = begin_epoch_request(CLUSTER_ID, voter(leader_id), voter(1).key, epoch)
        effects = self.on_request("begin", request, self.now_ms)
        assert isinstance(self.machine.role, Follower)
        return only(Send, effects)[0]

    @property
    def leader(self) -> Leader:
        assert isinstance(self.machine.role, Leader)
        return self.machine.role

    def vote(self, *, granted: bool = True, error: ErrorCode = ErrorCode.NONE) -> Message:
        return vote_response(KnownLeader(self.machine.epoch, -1, None), error, granted=granted)

    def request_vote(
        self,
        candidate: int = 2,
        *,
        epoch: int,
        log: tuple[int, int] = (0, 0),
        pre_vote: bool = False,
        of: ReplicaKey | None = None,
    ) -> tuple[ErrorCode, bool]:
        """`log`: (end offset, last epoch) of the candidate. Returns (error, granted)."""
        request = vote_request(
            CLUSTER_ID, voter(candidate).key, of or voter(1).key, epoch, log[1], log[0], pre_vote=pre_vote
        )
        effects = self.on_request("vote", request, self.now_ms)
        given = only_reply(effects).topics[0].partitions[0]
        return ErrorCode(given.error_code), given.vote_granted

    def fetched_by(
        self,
        node_id: int,
        offset: int,
        epoch: int | None = None,
        *,
        high_watermark: int | None = 1 << 40,
        max_wait_ms: int = 500,
        disk: int = 1,
    ) -> list[Effect]:
        request = fetch_request(
            CLUSTER_ID,
            voter(node_id, disk).key,
            epoch=self.machine.epoch,
            end_offset=offset,
            last_epoch=self.machine.epoch if epoch is None else epoch,
            high_watermark=high_watermark,
            max_wait_ms=max_wait_ms,
            max_bytes=1 << 20,
        )
        return self.on_request(f"fetch by {node_id}", request, self.now_ms)

    def records_for(
        self, send: Send, batches: Sequence[tuple[int, str]], *, high_watermark: int | None, leader_id: int = 2
    ) -> FetchResponse:
        """A response to this fetch with these batches, each (epoch, record)."""
        log = MemoryLog(VoterSet(()), 0)
        assert isinstance(send.request, FetchRequest)
        offset = send.request.topics[0].partitions[0].fetch_offset
        log.batches = [Batch(offset + at, epoch, (record,)) for at, (epoch, record) in enumerate(batches)]
        response = fetch_response(
            KnownLeader(self.machine.epoch, leader_id, voter(leader_id).endpoint),
            ErrorCode.NONE,
            high_watermark=high_watermark,
            log_start_offset=0,
        )
        response.responses[0].partitions[0].records = log.read(0, 100) if batches else b""
        return response


def only(kind: type[T], effects: Sequence[Effect]) -> list[T]:
    return [effect for effect in effects if isinstance(effect, kind)]


def only_reply(effects: Sequence[Effect]) -> Any:
    """The message of the only Reply."""
    replies = [effect for effect in effects if isinstance(effect, Reply | ReplyWithRecords)]
    assert len(replies) == 1, replies
    return replies[0].response


def partition_of(effects: Sequence[Effect]) -> Any:
    """Of the only Reply, which is one to a fetch."""
    return only_reply(effects).responses[0].partitions[0]
