"""Apache Kafka's log and tools read the files of our log, and our log reads Kafka's files."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from compat.java.jvm import Tools, java
from strandline.log.cold_reads import ColdRead
from strandline.log.partition_log import PartitionLog
from strandline.log.settings import LogSettings
from strandline.log.validation import Origin
from strandline.model.ids import TopicPartition
from strandline.records.batch import Codec, Record, batches, encode_batch, end_transaction_marker
from strandline.runtime.disk import SystemDisk
from unit.log.logs import append_as_leader

PARTITION = TopicPartition("t", 0)
# Kafka expires producers by its own clock.
NOW = int(time.time() * 1000) - 60_000
SETTINGS = LogSettings(segment_bytes=6000, index_interval_bytes=400, retention_ms=-1)
CONFIG = "internal.segment.bytes=6000;index.interval.bytes=400;retention.ms=-1"

Result = dict[str, str]


@pytest.fixture(scope="module")
def kafka(oracle_programs: str) -> Callable[..., Result]:
    def run(*arguments: object, stdin: str = "") -> Result:
        done = java(oracle_programs, "KafkaFiles", *map(str, arguments), text=stdin)
        results = re.findall(r"^ANSWER (\w+) ?(.*)$", done.stdout, re.MULTILINE)
        assert done.returncode == 0 and results, done.stdout[-3000:] + done.stderr[-3000:]
        return dict(results)

    return run


class RandomBatches:
    """A random sequence of batches for a leader: transactions, markers, new epochs, rolls."""

    def __init__(self, seed: int) -> None:
        self._random = random = Random(seed)
        self.steps: list[tuple[str, int, bytes]] = []
        self._sequences: dict[int, int] = {}
        self._open: list[int] = []
        epoch = 0
        for number in range(120):
            epoch += random.random() < 0.05
            stamp = NOW + number * 10 + random.randint(-40, 40)
            kind = random.random()
            if kind < 0.05:
                self.steps.append(("roll", 0, b""))
            elif kind < 0.2 and self._open:
                self.steps.append(("COORDINATOR", epoch, self._marker(stamp)))
            else:
                self.steps.append(("CLIENT", epoch, self._batch(stamp)))

    def _batch(self, stamp: int) -> bytes:
        random = self._random
        codec = random.choice(list(Codec))
        records = [
            Record(-1, stamp + random.randint(0, 9), b"k", random.randbytes(random.randint(0, 300)))
            for _ in range(random.randint(1, 6))
        ]
        if random.random() < 0.4:
            return bytes(encode_batch(records, codec=codec))
        producer = random.randint(1, 6)
        transactional = producer <= 3
        if transactional and producer not in self._open:
            self._open.append(producer)
        sequence = self._sequences.get(producer, 0)
        self._sequences[producer] = sequence + len(records)
        return bytes(
            encode_batch(
                records,
                codec=codec,
                producer_id=producer,
                producer_epoch=0,
                base_sequence=sequence,
                transactional=transactional,
            )
        )

    def _marker(self, stamp: int) -> bytes:
        producer = self._open.pop(self._random.randrange(len(self._open)))
        commit = self._random.random() < 0.5
        marker = end_transaction_marker(
            commit=commit, producer_id=producer, producer_epoch=0, coordinator_epoch=1, timestamp=stamp
        )
        return bytes(marker)

    def write_with_ours(self, log: PartitionLog) -> None:
        for kind, epoch, data in self.steps:
            if kind == "roll":
                log.roll(NOW)
            else:
                origin = Origin.CLIENT if kind == "CLIENT" else Origin.COORDINATOR
                append_as_leader(log, bytearray(data), leader_epoch=epoch, wall_ms=NOW, origin=origin)
            log.advance_high_watermark(log.log_end_offset)

    def for_kafka(self) -> str:
        lines = (
            "roll" if kind == "roll" else f"append {epoch} {kind} {data.hex()}" for kind, epoch, data in self.steps
        )
        return "\n".join(lines) + "\n"


def open_ours(path: Path, *, clean: bool = False, recovery_point: int = 0) -> PartitionLog:
    log = PartitionLog.open(
        SystemDisk(), str(path), PARTITION, SETTINGS, clean=clean, recovery_point=recovery_point, wall_ms=NOW
    )
    log.advance_high_watermark(log.log_end_offset)
    return log


def describe_ours(log: PartitionLog, timestamps: list[int]) -> Result:
    def joined(entries: list[tuple[object, ...]]) -> str:
        return " ".join(":".join(map(str, entry)) for entry in entries)

    while isinstance(aborted := log.aborted_transactions(0, log.log_end_offset), ColdRead):
        aborted.load()
    hits = [log.offset_for_timestamp(timestamp) for timestamp in timestamps]
    return {
        "log": f"{log.log_start_offset} {log.log_end_offset} {log.last_stable_offset}",
        "segments": joined([(segment.base_offset, segment.size) for segment in log.segments]),
        "epochs": joined(list(log.epochs.entries)),
        "producers": joined(
            [
                (
                    state.producer_id,
                    state.producer_epoch,
                    state.last_sequence,
                    state.last_offset,
                    state.transaction_first_offset,
                )
                for state in sorted(log.producers.all(), key=lambda state: state.producer_id)
            ]
        ),
        "aborted": joined(list(aborted)),
        "timestamps": " ".join("-" if hit is None else str(hit.offset) for hit in hits),
        "batches": joined(read_batches(log)),
    }


def read_batches(log: PartitionLog) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        while isinstance(read := log.read(offset, max_bytes=1 << 20), ColdRead):
            read.load()
        assert read.slice is not None
        for _, header in batches(read.slice.read()):
            found.append((header.base_offset, header.last_offset, header.partition_leader_epoch))
            offset = header.next_offset
    return found


STAMPS = [NOW + step for step in range(-100, 1400, 37)]
TIMESTAMPS = ",".join(map(str, STAMPS))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("ending", ["closed", "crashed"])
def test_kafka_reads_our_files_as_we_do(kafka: Callable[..., Result], tmp_path: Path, seed: int, ending: str) -> None:
    path = tmp_path / "t-0"
    log = open_ours(path)
    RandomBatches(seed).write_with_ours(log)
    expected = describe_ours(log, STAMPS)
    if ending == "closed":
        log.close()
        found = kafka("describe", path, CONFIG, "clean", log.log_end_offset, TIMESTAMPS)
    else:
        log.flush(sealed_only=True)
        found = kafka("describe", path, CONFIG, "crashed", log.checkpoint(), TIMESTAMPS)
    assert found == expected


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("ending", ["close", "kill"])
def test_we_read_kafkas_files_as_kafka_does(
    kafka: Callable[..., Result], tmp_path: Path, seed: int, ending: str
) -> None:
    path = tmp_path / "t-0"
    written = kafka("write", path, CONFIG, "crashed", 0, stdin=f"{RandomBatches(10 + seed).for_kafka()}{ending}\n")
    copy = tmp_path / "copy" / "t-0"
    shutil.copytree(path, copy)
    clean = ending == "close"
    recovery_point = int(written["end"]) if clean else 0
    expected = kafka("describe", copy, CONFIG, "clean" if clean else "crashed", recovery_point, TIMESTAMPS)
    ours = open_ours(path, clean=clean, recovery_point=recovery_point)
    assert describe_ours(ours, STAMPS) == expected


def test_kafka_and_we_append_to_one_log_in_turn(kafka: Callable[..., Result], tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    log = open_ours(path)

    def sent(sequence: int) -> bytearray:
        records = [Record(-1, NOW + sequence, None, bytes(90))]
        return encode_batch(records, producer_id=9, producer_epoch=0, base_sequence=sequence)

    for number in range(40):
        append_as_leader(log, sent(number), leader_epoch=1, wall_ms=NOW)
    log.close()
    lines = "".join(f"append 2 CLIENT {sent(number).hex()}\n" for number in range(40, 80))
    written = kafka("write", path, CONFIG, "clean", 40, stdin=f"{lines}close\n")
    assert written["end"] == "80"
    again = open_ours(path, clean=True, recovery_point=80)
    assert again.epochs.entries == ((1, 0), (2, 40))
    assert append_as_leader(again, sent(80), leader_epoch=3, wall_ms=NOW).base_offset == 80


@pytest.fixture
def dump(tools: Tools) -> Callable[..., str]:
    def run(*arguments: str) -> str:
        done = tools.run("org.apache.kafka.tools.DumpLogSegments", *arguments)
        assert done.code == 0, done.output[-3000:]
        return done.output

    return run


COMPLAINTS = re.compile(
    r"mismatch|not found in|corrupt|exception|out of order|found timestamp|error|isvalid: false", re.I
)


def test_dump_log_segments_reads_all_our_files_without_errors(dump: Callable[..., str], tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    log = open_ours(path)
    RandomBatches(3).write_with_ours(log)
    log.close()

    def listed(*suffixes: str) -> str:
        return ",".join(str(file) for file in sorted(path.iterdir()) if file.suffix in suffixes)

    deep = dump("--deep-iteration", "--print-data-log", "--files", listed(".log"))
    assert not COMPLAINTS.search(re.sub(r"payload: .*", "", deep))
    assert deep.count("baseOffset:") == len(read_batches(log))
    assert "endTxnMarker" in deep
    indexes = listed(".index", ".timeindex")
    for check in ("--verify-index-only", "--index-sanity-check"):
        output = dump(check, "--files", indexes)
        assert not COMPLAINTS.search(output), output
    transactions = dump("--files", listed(".txnindex"))
    assert transactions.count("producerId") == len(describe_ours(log, [])["aborted"].split())
    snapshots = dump("--files", listed(".snapshot"))
    assert not COMPLAINTS.search(snapshots)
    for state in log.producers.all():
        assert f"producerId: {state.producer_id} " in snapshots
    assert f"lastSequence: {max(state.last_sequence for state in log.producers.all())}" in snapshots


def test_dump_log_segments_reads_an_active_segment_after_a_crash(dump: Callable[..., str], tmp_path: Path) -> None:
    log = PartitionLog.open(
        SystemDisk(), str(tmp_path / "t-0"), PARTITION, replace(SETTINGS, segment_bytes=1 << 30), wall_ms=NOW
    )
    for number in range(700):
        data = encode_batch([Record(-1, NOW + number, None, bytes(500))])
        append_as_leader(log, data, leader_epoch=1, wall_ms=NOW)
    stem = str(tmp_path / "t-0" / f"{0:020d}")
    assert Path(f"{stem}.index").stat().st_size > 0
    output = dump("--verify-index-only", "--files", f"{stem}.index,{stem}.timeindex")
    assert not COMPLAINTS.search(output), output
