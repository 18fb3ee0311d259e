"""The simulated disk: it behaves like the real one, and what a power loss leaves on it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from strandline.runtime.disk import Disk, File, SystemDisk, write_atomically
from strandline.simulation.disk import PowerLoss, SimDisk
from strandline.simulation.journal import Journal
from strandline.simulation.volume import SECTOR_BYTES, UnsyncedChanges, Volume


@pytest.fixture
def disk() -> SimDisk:
    disk = SimDisk(Volume())
    disk.make_dirs("/data")
    disk.sync_dir("/")
    return disk


def found(disk: SimDisk, seed: int = 0, unsynced: UnsyncedChanges | None = None) -> SimDisk:
    return SimDisk(disk.volume.after_power_loss(Random(seed), unsynced))


def file_with(disk: SimDisk, path: str, data: bytes) -> File:
    """A file whose name and content are durable."""
    file = disk.open(path, create=True)
    file.write_at(0, data)
    file.sync()
    disk.sync_dir(os.path.dirname(path))
    return file


class RealAndSimulated:
    """Performs the same operations on a real and a simulated disk and compares the results."""

    def __init__(self, root: str, random: Random) -> None:
        self.random = random
        self.disks: list[tuple[Disk, str]] = [(SystemDisk(), root), (SimDisk(Volume()), "/data")]
        self.disks[1][0].make_dirs("/data")

    def path(self) -> str:
        return "/".join(self.random.choice("ab") for _ in range(self.random.randint(1, 3)))

    def both(self, act: Callable[[Disk, str], object]) -> None:
        results: list[object] = []
        for disk, root in self.disks:
            try:
                results.append(act(disk, root))
            except OSError as error:
                results.append(errno.errorcode[error.errno or 0])
        assert results[0] == results[1]

    def step(self) -> None:
        path, other = self.path(), self.path()
        position, size = self.random.randint(0, 9000), self.random.randint(0, 9000)
        data = self.random.randbytes(self.random.randint(1, 6000))
        choice = self.random.randrange(9)
        match choice:
            case 0:
                self.both(lambda disk, root: disk.make_dirs(f"{root}/{path}"))
            case 1:
                self.both(lambda disk, root: disk.open(f"{root}/{path}", create=True).write_at(position, data))
            case 2:
                self.both(lambda disk, root: disk.open(f"{root}/{path}").truncate(size))
            case 3:
                self.both(lambda disk, root: disk.open(f"{root}/{path}").read_at(position, size))
            case 4:
                self.both(lambda disk, root: disk.rename(f"{root}/{path}", f"{root}/{other}"))
            case 5:
                self.both(lambda disk, root: disk.remove(f"{root}/{path}"))
            case 6:
                self.both(lambda disk, root: (disk.exists(f"{root}/{path}"), disk.is_dir(f"{root}/{path}")))
            case 7:
                self.both(lambda disk, root: disk.list(f"{root}/{path}"))
            case 8:
                self.both(lambda disk, root: disk.read(f"{root}/{path}"))


@pytest.mark.parametrize("seed", range(20))
def test_results_equal_those_of_the_real_disk(seed: int, tmp_path: Path) -> None:
    twins = RealAndSimulated(str(tmp_path), Random(seed))
    for _ in range(150):
        twins.step()


def test_synced_data_and_names_survive_every_power_loss(disk: SimDisk) -> None:
    file_with(disk, "/data/a", b"x" * 5000)
    for seed in range(50):
        assert found(disk, seed).read("/data/a") == b"x" * 5000


def test_a_synced_file_whose_name_was_not_synced_may_be_lost(disk: SimDisk) -> None:
    file = disk.open("/data/a", create=True)
    file.write_at(0, b"data")
    file.sync()
    outcomes = {found(disk, seed).exists("/data/a") for seed in range(50)}
    assert outcomes == {True, False}
    for seed in range(50):
        after = found(disk, seed)
        assert not after.exists("/data/a") or after.read("/data/a") == b"data"


def test_unsynced_appends_leave_every_kind_of_tail(disk: SimDisk) -> None:
    old = bytes([1]) * 700
    file = file_with(disk, "/data/a", old)
    for number in range(10):
        file.write_at(700 + number * 700, bytes([number + 2]) * 700)
    whole = file.read_at(0, 100_000)
    kinds = set()
    for seed in range(300):
        content = found(disk, seed).read("/data/a")
        assert content[:700] == old
        assert len(content) <= len(whole)
        for start in range(0, len(content), SECTOR_BYTES):
            sector, written = content[start : start + SECTOR_BYTES], whole[start : start + SECTOR_BYTES]
            matching = sum(1 for a, b in zip(sector, written, strict=False) if a == b)
            # A sector is old, new, or new up to the end of one of its writes.
            assert sector[:matching] == written[:matching]
            assert not any(sector[matching:])
        if content == old:
            kinds.add("lost")
        elif content == whole:
            kinds.add("kept")
        elif whole.startswith(content):
            kinds.add("prefix")
        else:
            kinds.add("torn")
    assert kinds == {"lost", "kept", "prefix", "torn"}


def test_an_overwritten_sector_is_old_or_new_never_mixed(disk: SimDisk) -> None:
    file = file_with(disk, "/data/a", b"o" * 4096)
    file.write_at(0, b"n" * 4096)
    seen = set()
    for seed in range(100):
        content = found(disk, seed).read("/data/a")
        assert len(content) == 4096
        sectors = [content[start : start + SECTOR_BYTES] for start in range(0, 4096, SECTOR_BYTES)]
        assert all(sector in (b"o" * SECTOR_BYTES, b"n" * SECTOR_BYTES) for sector in sectors)
        seen.add(len(set(sectors)))
    assert seen == {1, 2}


def test_a_truncation_is_a_barrier_for_the_writes_after_it(disk: SimDisk) -> None:
    file = file_with(disk, "/data/a", b"o" * 4000)
    file.truncate(0)
    file.write_at(0, b"n" * 1000)
    for seed in range(100):
        content = found(disk, seed).read("/data/a")
        assert content == b"o" * 4000 or (len(content) <= 1000 and b"o" not in content)


def test_a_rename_is_atomic(disk: SimDisk) -> None:
    file_with(disk, "/data/a", b"old")
    file = disk.open("/data/a.tmp", create=True)
    file.write_at(0, b"new")
    file.sync()
    disk.sync_dir("/data")
    disk.rename("/data/a.tmp", "/data/a")
    outcomes = set()
    for seed in range(50):
        after = found(disk, seed)
        outcomes.add((after.read("/data/a"), after.exists("/data/a.tmp")))
    assert outcomes == {(b"old", True), (b"new", False)}


def test_renaming_before_syncing_may_leave_an_empty_file_under_the_new_name(disk: SimDisk) -> None:
    file_with(disk, "/data/a", b"old")
    file = disk.open("/data/a.tmp", create=True)
    file.write_at(0, b"new")
    disk.rename("/data/a.tmp", "/data/a")
    assert b"" in {found(disk, seed).read("/data/a") for seed in range(200)}


def test_a_prefix_of_the_name_changes_survives_a_power_loss(disk: SimDisk) -> None:
    for name in "abc":
        disk.open(f"/data/{name}", create=True)
    disk.remove("/data/a")
    outcomes = {"".join(found(disk, seed).list("/data")) for seed in range(100)}
    assert outcomes == {"", "a", "ab", "abc", "bc"}


def test_the_name_of_a_synced_file_may_be_durable_ahead_of_others(disk: SimDisk) -> None:
    disk.open("/data/a", create=True)
    disk.open("/data/b", create=True).sync()
    disk.rename("/data/a", "/data/c")
    outcomes = {"".join(found(disk, seed).list("/data")) for seed in range(200)}
    assert outcomes == {"", "a", "ab", "b", "bc"}


def test_synced_files_of_a_lost_directory_are_lost(disk: SimDisk) -> None:
    disk.make_dirs("/data/topic-0")
    file = disk.open("/data/topic-0/log", create=True)
    file.write_at(0, b"data")
    file.sync()
    disk.sync_dir("/data/topic-0")
    assert not found(disk, unsynced=UnsyncedChanges.LOST).exists("/data/topic-0")
    disk.sync_dir("/data")
    assert found(disk, unsynced=UnsyncedChanges.LOST).read("/data/topic-0/log") == b"data"


def test_removed_files_may_reappear_with_their_durable_content(disk: SimDisk) -> None:
    file = file_with(disk, "/data/a", b"durable")
    file.write_at(0, b"cached!")
    disk.remove("/data/a")
    after = found(disk, unsynced=UnsyncedChanges.LOST)
    assert after.read("/data/a") == b"durable"
    disk.sync_dir("/data")
    assert not found(disk, unsynced=UnsyncedChanges.LOST).exists("/data/a")


def test_an_atomic_write_is_atomic_at_every_operation(disk: SimDisk) -> None:
    write_atomically(disk, "/data/a", b"old" * 1000)
    journal = Journal()
    start = disk.volume.after_power_loss(Random(), UnsyncedChanges.KEPT)
    copy = start.after_power_loss(Random(), UnsyncedChanges.KEPT)
    write_atomically(SimDisk(start, journal=journal), "/data/a", b"new" * 2000)
    seen = set()
    for operation in journal.replay(copy):
        for seed in range(30):
            content = SimDisk(copy.after_power_loss(Random(seed))).read("/data/a")
            assert content in (b"old" * 1000, b"new" * 2000), operation
            seen.add(content)
    assert len(seen) == 2
    assert SimDisk(copy.after_power_loss(Random(), UnsyncedChanges.LOST)).read("/data/a") == b"new" * 2000


def test_replaying_the_journal_rebuilds_the_same_volume(disk: SimDisk) -> None:
    journal = Journal()
    first = SimDisk(Volume(), journal=journal)
    first.make_dirs("/data/t")
    file = first.open("/data/t/a", create=True)
    for number in range(20):
        file.write_at(number * 100, bytes([number]) * 150)
    file.sync()
    file.truncate(900)
    first.rename("/data/t/a", "/data/t/b")
    file.write_at(0, b"through the handle")
    again = Volume()
    moments = list(journal.replay(again))
    assert moments == list(range(first.operations + 1))
    for seed in range(20):
        a = SimDisk(first.volume.after_power_loss(Random(seed)))
        b = SimDisk(again.after_power_loss(Random(seed)))
        assert a.is_dir("/data/t") == b.is_dir("/data/t")
        if a.is_dir("/data/t"):
            names = a.list("/data/t")
            assert names == b.list("/data/t")
            assert [a.read(f"/data/t/{name}") for name in names] == [b.read(f"/data/t/{name}") for name in names]


def test_power_is_lost_at_the_given_operation_and_nothing_changes_afterwards(disk: SimDisk) -> None:
    file = file_with(disk, "/data/a", b"")
    calls: list[str] = []
    disk.when_power_is_lost = lambda: calls.append("off")
    disk.lose_power_at = disk.operations + 2
    file.write_at(0, b"1")
    file.write_at(1, b"2")
    with pytest.raises(PowerLoss):
        file.write_at(2, b"3")
    for attempt in (lambda: file.write_at(3, b"4"), lambda: disk.read("/data/a"), lambda: disk.sync_dir("/data")):
        with pytest.raises(PowerLoss):
            attempt()
    assert calls == ["off"]
    assert found(disk, unsynced=UnsyncedChanges.KEPT).read("/data/a") == b"12"


def test_power_can_be_lost_between_any_two_removals_of_a_tree(disk: SimDisk) -> None:
    for name in "abc":
        disk.make_dirs("/data/t")
        disk.open(f"/data/t/{name}", create=True)
    disk.lose_power_at = disk.operations + 2
    with pytest.raises(PowerLoss):
        disk.remove_tree("/data/t")
    assert found(disk, unsynced=UnsyncedChanges.KEPT).list("/data/t") == ["c"]


def test_after_a_power_loss_the_page_cache_is_cold(disk: SimDisk) -> None:
    file = file_with(disk, "/data/a", b"x" * 10_000)
    assert file.read_cached(0, 100) == b"x" * 100
    file = found(disk).open("/data/a")
    assert file.read_cached(0, 100) is None
    assert file.read_at(0, 100) == b"x" * 100
    assert file.read_cached(0, 100) == b"x" * 100
    assert file.read_cached(0, 5000) is None
    assert file.read_cached(20_000, 10) == b""


def test_the_next_sync_does_not_repair_a_failed_one(disk: SimDisk) -> None:
    file = file_with(disk, "/data/a", b"old!")
    file.write_at(0, b"lost")
    disk.fail("sync", code=errno.EIO, times=1)
    with pytest.raises(OSError) as caught:
        file.sync()
    assert caught.value.errno == errno.EIO
    file.sync()
    assert file.read_at(0, 4) == b"lost"
    assert found(disk, unsynced=UnsyncedChanges.KEPT).read("/data/a") == b"old!"


def test_faults_apply_to_the_given_paths_and_number_of_calls(disk: SimDisk) -> None:
    disk.make_dirs("/data/1")
    disk.make_dirs("/data/10")
    bad, good = disk.open("/data/1/a", create=True), disk.open("/data/10/a", create=True)
    fault = disk.fail("write", "read", under="/data/1", after=1, times=2)
    bad.write_at(0, b"first")
    with pytest.raises(OSError):
        bad.write_at(0, b"second")
    good.write_at(0, b"fine")
    with pytest.raises(OSError):
        bad.read_at(0, 5)
    assert bad.read_at(0, 5) == b"secst"
    disk.remove_fault(fault)


def test_a_read_only_directory_can_be_read_and_not_changed(disk: SimDisk) -> None:
    file = file_with(disk, "/data/a", b"kept")
    disk.make_read_only("/data")
    assert file.read_at(0, 4) == b"kept"
    for attempt in (lambda: file.write_at(0, b"x"), lambda: disk.remove("/data/a"), lambda: disk.make_dirs("/data/b")):
        with pytest.raises(OSError) as caught:
            attempt()
        assert caught.value.errno == errno.EROFS


def test_a_full_disk_writes_what_fits_and_fails_with_enospc() -> None:
    disk = SimDisk(Volume(capacity_bytes=3 * 4096))
    file = disk.open("/a", create=True)
    file.write_at(0, b"x" * 5000)
    assert disk.usage("/") == (3 * 4096, 4096)
    with pytest.raises(OSError) as caught:
        file.write_at(5000, b"y" * 10_000)
    assert caught.value.errno == errno.ENOSPC
    assert file.size() == 3 * 4096
    file.truncate(5000)
    assert disk.usage("/")[1] == 4096


def test_sparse_files_use_only_the_space_that_was_written() -> None:
    disk = SimDisk(Volume(capacity_bytes=100 * 4096))
    file = disk.open("/index", create=True)
    file.truncate(10 * 1024 * 1024)
    file.write_at(9_000_000, b"entry")
    assert file.size() == 10 * 1024 * 1024
    assert file.read_at(8_999_999, 7) == b"\0entry\0"
    assert disk.volume.used_bytes() == 4096


def test_a_lock_is_exclusive_until_released_or_until_its_process_ends() -> None:
    volume = Volume()
    first, second = SimDisk(volume), SimDisk(volume)
    lock = first.lock("/.lock")
    with pytest.raises(BlockingIOError):
        second.lock("/.lock")
    lock.release()
    second.lock("/.lock")
    with pytest.raises(BlockingIOError):
        first.lock("/.lock")
    second.switch_off()
    first.lock("/.lock")


def test_a_closed_handle_never_opens_another_file_of_its_name(disk: SimDisk) -> None:
    file = file_with(disk, "/data/a", b"old")
    file.close()
    assert file.read_at(0, 3) == b"old"
    file.close()
    disk.remove("/data/a")
    file_with(disk, "/data/a", b"new")
    with pytest.raises(FileNotFoundError):
        file.read_at(0, 3)


def test_modification_times_come_from_the_virtual_clock() -> None:
    now = [5]
    disk = SimDisk(Volume(), now_ms=lambda: now[0])
    file = disk.open("/a", create=True)
    now[0] = 9
    file.write_at(0, b"x")
    now[0] = 11
    assert disk.modified_ms("/a") == 9


def test_every_power_loss_leaves_the_certain_size_of_a_file(disk: SimDisk) -> None:
    random = Random(7)
    file = file_with(disk, "/data/log", b"")
    size = 0
    for _ in range(200):
        match random.randrange(5):
            case 0:
                file.sync()
            case 1:
                size = random.randint(0, size)
                file.truncate(size)
            case 2 if size:
                position = random.randrange(size)
                file.write_at(position, random.randbytes(min(600, size - position)))
            case 3 if random.random() < 0.2:
                fault = disk.fail("sync", times=1)
                with pytest.raises(OSError):
                    file.sync()
                disk.remove_fault(fault)
            case _:
                file.write_at(size, random.randbytes(2000))
                size += 2000
        certain = disk.volume.file("/data/log").certain_size()
        now = disk.read("/data/log")[:certain]
        for seed in range(5):
            assert found(disk, seed).read("/data/log")[:certain] == now
    file.sync()
    assert disk.volume.file("/data/log").certain_size() <= size


def test_the_certain_size_of_a_synced_file_is_its_whole_size(disk: SimDisk) -> None:
    file = file_with(disk, "/data/log", b"x" * 5000)
    assert disk.volume.file("/data/log").certain_size() == 5000
    file.write_at(5000, b"y")
    assert disk.volume.file("/data/log").certain_size() == 5000
    file.truncate(100)
    assert disk.volume.file("/data/log").certain_size() == 100
