"""Replicas of one partition: machines and logs without tasks or network. Each verb of a scenario is one step.

partition 1,2,3 [isr 1,2] [min-isr 2]   brokers 1, 2 and 3 have a replica; the first leads epoch 0
produce ID VALUE…                       broker ID appends these records as leader; `acked` when acks=all is acknowledged
fetch ID [as EPOCH]                     broker ID fetches from its leader and processes the response
time MS                                 after this time every leader checks its followers for lag
accept | reject ERROR                   the controller's response to the oldest proposal
isr 1,2                                 the controller changes the ISR, and every broker learns of it
elect ID [known to 1,2]                 a new leader epoch; the other brokers learn of it later (`update ID`)
update ID                               broker ID replays the metadata; also: it has restarted
register ID                             broker ID has a new registration, so a new broker epoch
fence ID                                the controller has fenced broker ID, which changes no partition
delete-records ID OFFSET                the leader deletes the records below an offset
lose ID OFFSET                          broker ID loses its records from this offset on
state                                   the state of every replica
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from strandline.log.cold_reads import ColdRead
from strandline.log.partition_log import PartitionLog
from strandline.log.settings import LogSettings
from strandline.metadata.values import PartitionInfo
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import ZERO_UUID, TopicPartition
from strandline.protocol.messages.fetch import FetchPartition, PartitionData
from strandline.records.batch import Record, batches, decode_batch, encode_batch
from strandline.replication.fetch_sessions import RequestedPartition
from strandline.replication.follower import (
    Append,
    Effect,
    FetchLeaderOffsets,
    Follower,
    RaiseHighWatermark,
    RaiseLogStart,
    Truncate,
    TruncateFully,
)
from strandline.replication.leader import IsrChange, Leader, ProposalOutcome
from strandline.simulation.disk import SimDisk
from strandline.simulation.volume import Volume
from unit.log.logs import append_as_leader, truncate, truncate_fully

WALL_MS = 1_700_000_000_000
LAG_TIME_MAX_MS = 30_000


class Registry:
    """Committed registrations of the brokers."""

    def __init__(self) -> None:
        self.epochs: dict[int, int] = {}
        self.fenced: list[int] = []

    def registered_epoch(self, broker_id: int) -> int:
        return self.epochs.get(broker_id, -1)

    def may_join(self, broker_id: int, broker_epoch: int) -> bool:
        return self.epochs.get(broker_id) == broker_epoch and broker_id not in self.fenced


class Replica:
    def __init__(self, broker_id: int, settings: LogSettings) -> None:
        self.broker_id = broker_id
        self.log = PartitionLog.open(
            SimDisk(Volume()), f"/{broker_id}/t-0", TopicPartition("t", 0), settings, wall_ms=WALL_MS
        )
        self.info: PartitionInfo | None = None
        self.leader: Leader | None = None
        self.follower: Follower | None = None

    def values(self) -> str:
        """The values of the records in its log."""
        found: list[str] = []
        offset = self.log.log_start_offset
        while offset < self.log.log_end_offset:
            data = read(self.log, offset, self.log.log_end_offset)
            for position, header in batches(data):
                records = decode_batch(data[position : position + header.size_bytes])
                found.extend(bytes(record.value or b"").decode() for record in records if record.offset >= offset)
                offset = header.next_offset
        return " ".join(found) or "nothing"


def read(log: PartitionLog, offset: int, upper: int) -> bytes:
    while isinstance(found := log.read(offset, max_bytes=1 << 20, before_offset=upper), ColdRead):
        found.load()
    return b"" if found.slice is None else found.slice.read()


class TranscriptPartition:
    def __init__(self) -> None:
        self.registry = Registry()
        self.replicas: dict[int, Replica] = {}
        self.info = PartitionInfo((), ())
        self.now_ms = 0
        self.proposals: list[tuple[Replica, IsrChange]] = []
        self.announced: IsrChange | None = None
        self.unacked: list[tuple[Leader, int, str]] = []

    def step(self, line: str) -> Iterator[str]:
        verb, *words = line.split()
        yield from getattr(self, f"do_{verb.replace('-', '_')}")(*words)
        yield from self._acked()

    def do_partition(self, ids: str, *words: str) -> Iterator[str]:
        options = dict(zip(words[::2], words[1::2], strict=True))
        replicas = numbers(ids)
        settings = LogSettings(min_insync_replicas=int(options.get("min-isr", "1")))
        self.info = PartitionInfo(replicas, numbers(options.get("isr", ids)), leader=replicas[0])
        for broker_id in replicas:
            self.registry.epochs[broker_id] = 100 + broker_id
            self.replicas[broker_id] = Replica(broker_id, settings)
        for broker_id in replicas:
            yield from self.do_update(str(broker_id))

    def do_produce(self, broker_id: str, *values: str) -> Iterator[str]:
        replica = self.replicas[int(broker_id)]
        if replica.leader is None:
            yield f"{broker_id} responds NOT_LEADER_OR_FOLLOWER"
            return
        try:
            replica.leader.check_enough_replicas()
        except KafkaError as error:
            yield f"{broker_id} responds {error.code.name} to acks=all, and accepts acks=1"
        records = [Record(index, WALL_MS, None, value.encode(), ()) for index, value in enumerate(values)]
        appended = append_as_leader(
            replica.log, encode_batch(records), leader_epoch=replica.leader.leader_epoch, wall_ms=WALL_MS
        )
        replica.leader.on_progress()
        yield f"{broker_id} appends {' '.join(values)} at {appended.base_offset}"
        self.unacked.append((replica.leader, appended.last_offset + 1, " ".join(values)))

    def do_fetch(self, broker_id: str, *words: str) -> Iterator[str]:
        replica = self.replicas[int(broker_id)]
        broker_epoch = int(words[1]) if words else self.registry.epochs[replica.broker_id]
        follower, info = replica.follower, replica.info
        assert info is not None
        wanted = follower.next_fetch(0, self.now_ms) if follower is not None else None
        if follower is None or wanted is None:
            yield f"{broker_id} does not fetch"
            return
        epoch = f", last epoch {wanted.last_fetched_epoch}" if wanted.last_fetched_epoch >= 0 else ""
        yield f"{broker_id} fetches {wanted.fetch_offset} from {info.leader}{epoch}"
        leading = self.replicas[info.leader]
        try:
            response = self._respond(leading, replica.broker_id, broker_epoch, wanted)
        except KafkaError as error:
            response = PartitionData(error_code=error.code)
            yield f"{info.leader} responds {error.code.name}"
        yield from self._announce()
        yield from self._perform(replica, follower.on_response(response, self.now_ms))

    def _respond(self, leading: Replica, broker_id: int, broker_epoch: int, wanted: FetchPartition) -> PartitionData:
        """What `handlers/fetch` does for a follower."""
        leader, log = leading.leader, leading.log
        if leader is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if wanted.current_leader_epoch != leader.leader_epoch:
            behind = wanted.current_leader_epoch < leader.leader_epoch
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH if behind else ErrorCode.UNKNOWN_LEADER_EPOCH)
        remote = leader.remote(broker_id, broker_epoch, wanted.current_leader_epoch)
        assert remote is not None
        offset, start = wanted.fetch_offset, wanted.log_start_offset
        requested = RequestedPartition(ZERO_UUID, "t", 0, offset, 1 << 20, last_fetched_epoch=wanted.last_fetched_epoch)
        diverging = leader.diverging_epoch(requested)
        if diverging is not None:
            return PartitionData(records=b"", diverging_epoch=diverging)
        change = leader.on_fetch(remote, broker_epoch, offset, start, self.now_ms)
        if change is not None:
            self.proposals.append((leading, change))
        return PartitionData(
            high_watermark=leader.high_watermark.value,
            log_start_offset=log.log_start_offset,
            records=read(log, offset, log.log_end_offset),
        )

    def _perform(self, replica: Replica, effects: list[Effect]) -> Iterator[str]:
        log, follower, name = replica.log, replica.follower, replica.broker_id
        assert follower is not None
        for effect in effects:
            match effect:
                case Append(records, offset):
                    assert log.log_end_offset == offset
                    appended = log.append_as_follower(records, wall_ms=WALL_MS)
                    yield f"{name} appends {appended.base_offset}..{appended.last_offset}"
                case RaiseHighWatermark(offset):
                    before = log.high_watermark
                    if log.advance_high_watermark(offset) > before:
                        yield f"{name} has high watermark {log.high_watermark}"
                case RaiseLogStart(offset):
                    log.delete_records_before(min(offset, log.high_watermark))
                    yield f"{name} has log start {log.log_start_offset}"
                case Truncate(offset):
                    yield f"{name} truncates its log from {log.log_end_offset} to {offset}"
                    truncate(log, offset)
                    follower.on_truncated()
                case TruncateFully(offset):
                    yield f"{name} truncates its log fully and starts at {offset}"
                    truncate_fully(log, offset)
                    follower.on_truncated()
                case FetchLeaderOffsets():
                    assert replica.info is not None
                    other = self.replicas[replica.info.leader].log
                    yield f"{name} lists the leader's offsets: {other.log_start_offset} to {other.log_end_offset}"
                    more = follower.on_leader_offsets(other.log_start_offset, other.log_end_offset)
                    yield from self._perform(replica, more)

    def do_time(self, later_ms: str) -> Iterator[str]:
        self.now_ms += int(later_ms)
        for replica in self.replicas.values():
            if replica.leader is not None:
                change = replica.leader.check_lag(self.now_ms)
                if change is not None:
                    self.proposals.append((replica, change))
        yield from self._announce()

    def _announce(self) -> Iterator[str]:
        for replica, change in self.proposals:
            if replica.leader is not None and replica.leader.proposed is change is not self.announced:
                self.announced = change
                yield f"{replica.broker_id} proposes the ISR {listed(change.isr)}"

    def do_accept(self) -> Iterator[str]:
        replica, change = self._oldest_proposal()
        self._change(isr=change.isr)
        assert replica.leader is not None
        replica.leader.on_proposal_response(change, ErrorCode.NONE, change.isr, self.info.partition_epoch)
        yield f"the ISR is {listed(change.isr)}"

    def do_reject(self, error: str) -> Iterator[str]:
        replica, change = self._oldest_proposal()
        assert replica.leader is not None
        outcome = replica.leader.on_proposal_response(change, ErrorCode[error])
        if outcome is ProposalOutcome.RETRY:
            self.proposals.append((replica, change))
            yield f"{replica.broker_id} retries"
        elif replica.leader.proposed is None:
            yield f"{replica.broker_id} keeps the ISR {listed(replica.leader.isr)}"
        else:
            yield f"{replica.broker_id} waits for metadata, and counts {listed(replica.leader.maximal_isr)}"

    def _oldest_proposal(self) -> tuple[Replica, IsrChange]:
        while True:
            replica, change = self.proposals.pop(0)
            if replica.leader is not None and replica.leader.proposed is change:
                return replica, change

    def do_isr(self, ids: str) -> Iterator[str]:
        self._change(isr=numbers(ids))
        for replica in self.replicas.values():
            replica.info = self.info
            if replica.leader is not None:
                replica.leader.on_metadata(self.info)
        yield from ()

    def do_elect(self, broker_id: str, *words: str) -> Iterator[str]:
        self._change(leader=int(broker_id), leader_epoch=self.info.leader_epoch + 1)
        for updated in numbers(words[2]) if words else self.info.replicas:
            yield from self.do_update(str(updated))

    def do_update(self, broker_id: str) -> Iterator[str]:
        replica, info = self.replicas[int(broker_id)], self.info
        previous, replica.info = replica.leader, info
        if previous is not None:
            previous.resign("a new epoch")
        replica.leader = replica.follower = None
        if info.leader == replica.broker_id:
            replica.leader = Leader(replica.log, info, replica.broker_id, self.registry, LAG_TIME_MAX_MS, previous)
            yield f"{broker_id} leads epoch {info.leader_epoch} from offset {replica.log.log_end_offset}"
        else:
            replica.follower = Follower(replica.log, info.leader_epoch, max_bytes=1 << 20, backoff_ms=1_000)
            yield f"{broker_id} follows {info.leader} in epoch {info.leader_epoch}"
            yield from self._perform(replica, replica.follower.start())

    def do_register(self, broker_id: str) -> Iterator[str]:
        self.registry.epochs[int(broker_id)] += 100
        yield f"{broker_id} has broker epoch {self.registry.epochs[int(broker_id)]}"

    def do_fence(self, broker_id: str) -> Iterator[str]:
        self.registry.fenced.append(int(broker_id))
        yield from ()

    def do_delete_records(self, broker_id: str, offset: str) -> Iterator[str]:
        self.replicas[int(broker_id)].log.delete_records_before(int(offset))
        yield from ()

    def do_lose(self, broker_id: str, offset: str) -> Iterator[str]:
        replica = self.replicas[int(broker_id)]
        truncate(replica.log, int(offset))
        yield f"{broker_id} has {replica.values()}"

    def do_state(self) -> Iterator[str]:
        for replica in self.replicas.values():
            log, leader = replica.log, replica.leader
            shown = f"{replica.broker_id}: {replica.values()} | end {log.log_end_offset}"
            shown += f", high watermark {log.high_watermark}"
            if leader is not None:
                known = ", ".join(
                    f"{each.broker_id} at {'?' if each.log_end_offset < 0 else each.log_end_offset}"
                    for each in leader.remotes.values()
                )
                shown += f" | leads, ISR {listed(leader.isr)}, followers {known}"
            yield shown

    def _acked(self) -> Iterator[str]:
        left = []
        for leader, offset, values in self.unacked:
            if leader.high_watermark.lost is not None:
                yield f"{values}: NOT_LEADER_OR_FOLLOWER"
            elif leader.high_watermark.value < offset:
                left.append((leader, offset, values))
            else:
                yield f"{values}: {'NOT_ENOUGH_REPLICAS_AFTER_APPEND' if leader.lost_replicas else 'acked'}"
        self.unacked = left

    def _change(self, **changes: object) -> None:
        self.info = replace(self.info, partition_epoch=self.info.partition_epoch + 1, **changes)


def numbers(ids: str) -> tuple[int, ...]:
    return tuple(int(each) for each in ids.split(","))


def listed(ids: tuple[int, ...]) -> str:
    return ",".join(map(str, ids))
