"""Interrupted compaction: damage, full disks, abandoned passes, power losses."""

from __future__ import annotations

import errno
import random

import pytest
from msgspec.structs import replace

from strandline.log.compaction.cleaner import Cleaning, Uncleanable
from strandline.model.errors import ErrorCode, KafkaError
from strandline.simulation.disk import SimDisk
from strandline.simulation.journal import Journal
from strandline.simulation.volume import UnsyncedChanges, Volume
from unit.log.compaction.compacted_log import SETTINGS, CompactedLog
from unit.log.logs import truncate_fully


@pytest.fixture
def log() -> CompactedLog:
    return CompactedLog()


class TestDamage:
    def test_a_damaged_batch_is_not_rewritten(self, log: CompactedLog) -> None:
        log.put(("a", "1"), ("a", "2"))
        log.put(("b", "1"))
        log.roll()
        path = log.log.segments[0].path(".log")
        file = log.disk.open(path)
        file.write_at(75, bytes([file.read_at(75, 1)[0] ^ 1]))
        data = log.disk.read(path)
        with pytest.raises(Uncleanable, match=r"t-0.*offset 0"):
            log.clean()
        assert log.disk.read(path) == data
        assert not [name for name in log.disk.list(log.path) if name.endswith((".cleaned", ".swap"))]

    def test_damage_in_the_clean_part_leaves_no_files_of_an_unfinished_group(self, log: CompactedLog) -> None:
        log.put(("a", "1"))
        log.roll()
        log.clean()
        log.put(("a", "2"))
        log.roll()
        path = log.log.segments[0].path(".log")
        file = log.disk.open(path)
        file.write_at(65, bytes([file.read_at(65, 1)[0] ^ 1]))
        with pytest.raises(Uncleanable):
            log.clean()
        assert not [name for name in log.disk.list(log.path) if name.endswith((".cleaned", ".swap"))]
        assert log.checkpoint == 1

    def test_an_incomplete_file_is_not_cleaned(self, log: CompactedLog) -> None:
        log.put(("a", "1"), ("a", "2"))
        log.roll()
        segment = log.log.segments[0]
        log.disk.open(segment.path(".log")).truncate(segment.size - 1)
        with pytest.raises(Uncleanable):
            log.clean()

    @pytest.mark.parametrize("kind", ["read", "create", "write", "sync", "rename"])
    def test_a_failing_disk_ends_the_pass_and_leaves_the_log_unchanged(self, kind: str) -> None:
        disk = SimDisk(Volume())
        log = CompactedLog(disk=disk)
        log.put(("a", "1"), ("a", "2"))
        log.roll()
        log.log.flush()
        before = log.contents()
        fault = disk.fail(kind, code=errno.ENOSPC)
        with pytest.raises(KafkaError) as failure:
            log.clean()
        assert failure.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        disk.remove_fault(fault)
        assert log.contents() == before
        assert log.clean().done
        assert log.contents() == [(1, "a", "2")]

    def test_a_pass_can_be_abandoned_between_steps(self, log: CompactedLog) -> None:
        for n in range(2000):
            log.put((f"key{n % 7}", "v" * 400))
        log.roll()
        before = log.contents()
        cleaning = Cleaning(log.log, log.look(), wall_ms=log.now, random=random.Random(1))
        for _ in range(6):
            assert cleaning.step() is None
        assert [name for name in log.disk.list(log.path) if name.endswith(".cleaned")]
        cleaning.abandon()
        assert cleaning.done
        assert not [name for name in log.disk.list(log.path) if name.endswith((".cleaned", ".swap"))]
        assert log.contents() == before

    def test_a_pass_ends_when_segments_are_removed_from_the_log(self, log: CompactedLog) -> None:
        log.put(("a", "1"), ("a", "2"))
        log.roll()
        log.put(("b", "1"))
        log.roll()
        cleaning = Cleaning(log.log, log.look(), wall_ms=log.now, random=random.Random(1))
        cleaning.step()
        truncate_fully(log.log, 50)
        while not cleaning.done:
            assert cleaning.step() is None
        assert cleaning.end_offset == 0
        assert log.log.log_end_offset == 50

    def test_a_replacement_of_removed_segments_is_discarded(self, log: CompactedLog) -> None:
        log.put(("a", "1"), ("a", "2"))
        log.roll()
        cleaning = Cleaning(log.log, log.look(), wall_ms=log.now, random=random.Random(1))
        replacement = None
        while replacement is None:
            replacement = cleaning.step()
        truncate_fully(log.log, 50)
        assert log.log.replace_segments(replacement) == [replacement.new]
        replacement.new.remove()
        assert log.contents() == []


def fill_for_crash(log: CompactedLog) -> dict[str, str]:
    model: dict[str, str] = {}
    for n in range(120):
        log.put((f"key{n % 11}", str(n)))
        model[f"key{n % 11}"] = str(n)
        if n % 13 == 12:
            log.put(
                *[(f"seven{n % 3}", str(n))], producer_id=7, producer_epoch=0, base_sequence=n // 13, transactional=True
            )
            log.end_transaction(7, commit=n % 2 == 0)
            if n % 2 == 0:
                model[f"seven{n % 3}"] = str(n)
        if n % 30 == 29:
            log.roll()
    return model


def committed(log: CompactedLog) -> dict[str, str | None]:
    """The last value of each key, as a read_committed consumer sees it."""
    aborted = [entry for segment in log.log.segments for entry in (segment.aborted or ())]
    seen: dict[str, str | None] = {}
    for header, records in log.batches():
        dropped = any(
            header.is_transactional
            and entry.producer_id == header.producer_id
            and entry.first_offset <= header.base_offset <= entry.last_offset
            for entry in aborted
        )
        if not header.is_control and not dropped:
            for record in records:
                assert record.key is not None
                seen[record.key.decode()] = None if record.value is None else record.value.decode()
    return seen


def load_aborted(log: CompactedLog) -> None:
    reader = log.log.aborted_transactions(0, log.log.log_end_offset)
    if not isinstance(reader, list):
        reader.load()


def test_a_power_loss_at_any_operation_loses_no_record_and_restores_no_removed_one() -> None:
    settings = replace(SETTINGS, segment_bytes=4000, index_interval_bytes=200)
    journal = Journal()
    log = CompactedLog(settings, SimDisk(Volume(), journal=journal))
    model = fill_for_crash(log)
    log.log.flush()
    flushed = len(journal.operations)
    end_offset = log.log.log_end_offset
    log.clean()
    assert committed(log) == model
    volume = Volume()
    rng = random.Random(11)
    for moment in journal.replay(volume):
        if moment < flushed:
            continue
        for fate in (UnsyncedChanges.LOST, UnsyncedChanges.KEPT, UnsyncedChanges.MIXED):
            again = CompactedLog(settings, SimDisk(volume.after_power_loss(rng, fate)))
            load_aborted(again)
            assert again.log.log_end_offset == end_offset
            assert committed(again) == model, f"power lost at operation {moment}, changes {fate.value}"
            assert not [name for name in again.disk.list(again.path) if name.endswith((".cleaned", ".swap"))]
            if moment % 5 == 0:
                again.clean()
                assert committed(again) == model
    assert len(journal.operations) - flushed > 20
