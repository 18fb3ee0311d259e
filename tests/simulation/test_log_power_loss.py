"""Power losses of one partition log: a sample. All: `PYTHONPATH=src:tests python -m simulation.power_loss --all`."""

from __future__ import annotations

from random import Random

import pytest

from simulation.power_loss.log_check import BrokenPromise, LogRecording
from simulation.power_loss.search import Finding, chosen_operations, draw, search
from strandline.simulation.disk import SimDisk
from strandline.simulation.volume import UnsyncedChanges, Volume


def findings(recording: LogRecording, sample: int | None, variants: int = 2) -> list[Finding]:
    operations = chosen_operations(recording, sample, Random(recording.name))
    return [finding for finding in search(recording, operations, variants) if finding is not None]


def found_at(recording: LogRecording, operation: int, unsynced: UnsyncedChanges) -> Volume:
    volume = Volume()
    for moment in recording.journal.replay(volume):
        if moment == operation:
            break
    return volume.after_power_loss(Random(0), unsynced)


@pytest.mark.parametrize("mode", ["flush", "replicated"])
@pytest.mark.parametrize("seed", range(1, 5))
def test_a_log_keeps_its_promises_wherever_power_is_lost(seed: int, mode: str) -> None:
    recording = LogRecording(seed, mode, 200)
    assert [str(finding) for finding in findings(recording, sample=60)] == []


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["flush", "replicated"])
def test_a_log_keeps_its_promises_at_every_disk_operation_of_a_short_run(mode: str) -> None:
    recording = LogRecording(77, mode, 60)
    assert [str(finding) for finding in findings(recording, sample=None, variants=3)] == []


@pytest.mark.parametrize(
    ("seed", "operations", "operation"),
    [
        # A sealed segment lost its end at a batch boundary and the next one was kept: a gap, not a prefix.
        (0, 100, 125),
        # The end of a truncated log reappeared, followed by newer segments, because the truncation was not synced.
        (3, 300, 757),
    ],
)
def test_power_losses_that_once_broke_a_promise(seed: int, operations: int, operation: int) -> None:
    recording = LogRecording(seed, "replicated", operations)
    broken = [finding for finding in search(recording, {operation}, 40) if finding is not None]
    assert [str(finding) for finding in broken] == []


@pytest.mark.parametrize(
    ("kind", "ending"), [("sync", ".log"), ("sync_dir", "/orders-0"), ("sync_dir", "/data")], ids=str
)
def test_the_check_detects_missing_syncs(kind: str, ending: str) -> None:
    recording = LogRecording(1, "flush", 60)
    operations = recording.journal.operations
    operations[:] = [each for each in operations if not (each.kind == kind and each.path.endswith(ending))]
    volume = Volume()
    for _ in recording.journal.replay(volume):
        pass
    with pytest.raises(BrokenPromise, match="has lost what was flushed"):
        recording.check(volume.after_power_loss(Random(0), UnsyncedChanges.LOST), 1 << 40, Random(0))


def test_the_check_detects_a_flipped_byte() -> None:
    recording = LogRecording(1, "flush", 60)
    volume = found_at(recording, len(recording.journal.operations), UnsyncedChanges.KEPT)
    disk = SimDisk(volume)
    path = next(f"/data/orders-0/{name}" for name in disk.list("/data/orders-0") if name.endswith(".log"))
    file = disk.open(path)
    file.write_at(80, bytes([file.read_at(80, 1)[0] ^ 1]))
    with pytest.raises(BrokenPromise):
        recording.check(volume, 1 << 40, Random(0))


def test_a_power_loss_is_a_function_of_operation_and_variant() -> None:
    first, second = LogRecording(5, "replicated", 50), LogRecording(5, "replicated", 50)
    assert first.journal.operations == second.journal.operations
    assert draw(first, 7, 1).random() == draw(second, 7, 1).random()
