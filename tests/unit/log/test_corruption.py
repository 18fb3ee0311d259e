"""Damage to any byte of any file of a log: the log opens, keeps the intact batches, and serves no corrupt one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from strandline.log.cold_reads import ColdRead
from strandline.log.partition_log import PartitionLog
from strandline.model.errors import ErrorCode, KafkaError
from strandline.records.batch import batches, crc_ok, read_header
from unit.log.logs import SMALL, WALL_MS, append, batch, files, fill, marker, open_log, read, truncate

KINDS = ("truncate", "flip", "duplicate", "zero", "garbage", "remove", "grow")


class IntactLog:
    """A log on disk before the damage, with several segments and epochs, producers, transactions, and an active segment
    that was not closed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        log = open_log(path)
        for number in range(30):
            append(log, batch(1 + number % 4, 90 + number, timestamp=WALL_MS + 50 * number), number // 9)
            append(log, batch(1, 40, timestamp=WALL_MS + 50 * number + 7, producer_id=7, sequence=number), number // 9)
            if number % 7 == 3:
                append(
                    log,
                    batch(1, 10, timestamp=WALL_MS, producer_id=9, sequence=number // 7, transactional=True),
                    number // 9,
                )
        marker(log, 9, commit=False)
        self.flushed = log.segments[2].base_offset
        log.flush()
        log.advance_high_watermark(log.log_end_offset)
        log.checkpoint()
        self.batches = list(all_batches(log))
        self.log_end_offset = log.log_end_offset
        log.segments[-1].spill()

    def copy_to(self, path: Path) -> Path:
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(self.path, path)
        return path


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> IntactLog:
    return IntactLog(tmp_path_factory.mktemp("intact"))


def all_batches(log: PartitionLog) -> Iterator[tuple[int, bytes]]:
    """The batches that a consumer gets if it skips damage: in order, with an error at each damaged offset."""
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        try:
            data = read(log, offset, max_bytes=700)
        except KafkaError as error:
            assert error.code is ErrorCode.CORRUPT_MESSAGE
            offset += 1
            continue
        position, header = next(iter(batches(data)))
        assert header.last_offset >= offset
        for position, header in batches(data):
            assert crc_ok(data, position, header.size_bytes)
            yield header.base_offset, data[position : position + header.size_bytes]
            offset = header.next_offset


def damage(path: Path, kind: str, at: int, length: int) -> None:
    data = bytearray(path.read_bytes())
    at = at % (len(data) + 1)
    end = min(len(data), at + length)
    if kind == "truncate":
        del data[at:]
    elif kind == "flip":
        if at < len(data):
            data[at] ^= 1 << (length % 8)
    elif kind == "duplicate":
        data[at:at] = data[at:end]
    elif kind == "zero":
        data[at:end] = bytes(end - at)
    elif kind == "garbage":
        data[at:end] = bytes((31 * number + length) % 256 for number in range(end - at))
    elif kind == "grow":
        data += bytes(length)
    path.write_bytes(bytes(data))
    if kind == "remove":
        path.unlink()


def same_batch(written: bytes | None, found: bytes, *, is_last: bool) -> bool:
    """The checksum does not cover the leader epoch, and no batch behind the last one shows that it is wrong."""
    if is_last and written is not None:
        return written[:12] + written[16:] == found[:12] + found[16:]
    return written == found


def first_difference(before: bytes, after: bytes | None) -> int:
    if after is None:
        return 0
    for position, (old, new) in enumerate(zip(before, after, strict=False)):
        if old != new:
            return position
    return min(len(before), len(after))


def offset_at(intact: IntactLog, name: str, position: int) -> int:
    """The base offset of the batch that holds this byte of a .log file; the log end after the last batch."""
    data = (intact.path / "orders-0" / name).read_bytes()
    for start, header in batches(data):
        if position < start + header.size_bytes:
            return header.base_offset
    following = [int(other[:20]) for other in files(intact.path, ".log") if other > name]
    return min(following, default=intact.log_end_offset)


@given(
    number=st.integers(0, 1000),
    kind=st.sampled_from(KINDS),
    at=st.integers(0, 8000),
    length=st.integers(1, 600),
    clean=st.booleans(),
)
@example(number=0, kind="remove", at=0, length=1, clean=False)
@example(number=0, kind="remove", at=0, length=1, clean=True)
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_damage_to_any_file_leaves_the_batches_before_it_and_serves_nothing_corrupt(
    intact: IntactLog, tmp_path: Path, number: int, kind: str, at: int, length: int, clean: bool
) -> None:
    path = intact.copy_to(tmp_path / "copy")
    names = files(path)
    name = names[number % len(names)]
    target = path / "orders-0" / name
    before = target.read_bytes()
    damage(target, kind, at, length)
    after = target.read_bytes() if target.exists() else None

    log = open_log(path, recovery_point=intact.log_end_offset if clean else intact.flushed, clean=clean)
    found = dict(all_batches(log))

    written = dict(intact.batches)
    for base_offset, data in found.items():
        assert same_batch(written.get(base_offset), data, is_last=base_offset == max(written))
    if name.endswith(".log"):
        whole_below = offset_at(intact, name, first_difference(before, after))
        expected = {offset for offset in written if offset < whole_below}
        if after is None and offset_at(intact, name, 0) == 0:
            expected = set()
    else:
        expected = set(written)
    assert expected <= set(found)
    # Appends continue from there, and the log opens again.
    append(log, batch(1), 1 << 30)
    log.close()
    again = open_log(path, recovery_point=log.log_end_offset, clean=True)
    assert again.log_end_offset == log.log_end_offset
    assert read_header(read(again, again.log_end_offset - 1)).base_offset == log.log_end_offset - 1


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex", ".snapshot"])
@pytest.mark.parametrize("kind", ["remove", "truncate", "zero", "garbage"])
def test_a_log_without_its_indexes_and_snapshots_serves_the_same(
    intact: IntactLog, tmp_path: Path, suffix: str, kind: str
) -> None:
    path = intact.copy_to(tmp_path / "copy")
    expected = open_log(path)
    path = intact.copy_to(tmp_path / "copy")
    for name in files(path, suffix):
        damage(path / "orders-0" / name, kind, 0, 5000)

    log = open_log(path)

    assert list(all_batches(log)) == intact.batches
    for timestamp in range(WALL_MS - 10, WALL_MS + 1600, 75):
        assert log.offset_for_timestamp(timestamp) == expected.offset_for_timestamp(timestamp)
    assert log.max_timestamp_offset() == expected.max_timestamp_offset()
    state = log.producers.get(7)
    assert state is not None
    assert [sent.last_sequence for sent in state.batches] == [25, 26, 27, 28, 29]
    assert log.aborted_transactions(0, log.log_end_offset) == expected.aborted_transactions(0, log.log_end_offset)
    assert log.epochs.entries == expected.epochs.entries


def test_a_damaged_batch_in_an_old_segment_is_not_served_and_its_neighbours_are(
    intact: IntactLog, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = intact.copy_to(tmp_path / "copy")
    first = path / "orders-0" / files(path, ".log")[0]
    position, header = list(batches(first.read_bytes()))[3]
    damage(first, "flip", position + 70, 1)
    log = open_log(path, recovery_point=intact.log_end_offset, clean=True)

    found = dict(all_batches(log))

    assert set(dict(intact.batches)) - set(found) == {header.base_offset}
    reports = [record for record in caplog.records if "damaged at position" in record.getMessage()]
    assert len(reports) == 1
    with pytest.raises(KafkaError) as raised:
        read(log, header.base_offset)
    assert raised.value.code is ErrorCode.CORRUPT_MESSAGE


def test_a_log_of_an_old_message_format_is_not_opened_and_not_truncated_as_damage(tmp_path: Path) -> None:
    import zlib

    message = bytes([1, 0]) + WALL_MS.to_bytes(8, "big") + (-1).to_bytes(4, "big", signed=True) + b"\0\0\0\5hello"
    old = (
        (0).to_bytes(8, "big")
        + (len(message) + 4).to_bytes(4, "big")
        + zlib.crc32(message).to_bytes(4, "big")
        + message
    )
    directory = tmp_path / "orders-0"
    directory.mkdir()
    (directory / f"{0:020d}.log").write_bytes(old * 3)

    with pytest.raises(Exception, match="messages of format 1"):
        open_log(tmp_path, SMALL)
    assert (directory / f"{0:020d}.log").read_bytes() == old * 3


def test_damage_is_not_reported_by_a_reader_that_began_before_a_truncation(tmp_path: Path) -> None:
    fill(open_log(tmp_path), 10, size=1000)
    log = open_log(tmp_path, recovery_point=18)
    file = log.segments[0].log_file()
    file.write_at(100, bytes([file.read_at(100, 1)[0] ^ 1]))
    stale = log.read(0, max_bytes=1000)
    assert isinstance(stale, ColdRead)
    truncate(log, 4)
    stale.load()
    assert log.is_intact
    current = log.read(0, max_bytes=1000)
    assert isinstance(current, ColdRead)
    current.load()
    assert not log.is_intact and log.damaged_at == 0
    truncate(log, 2)
    assert log.damaged_at == 0
    truncate(log, 0)
    assert log.is_intact
