"""The real disk: guarantees of handles while their descriptors are closed and reopened."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from strandline.runtime.disk import SystemDisk, write_atomically


@pytest.fixture
def disk() -> SystemDisk:
    return SystemDisk()


def test_a_file_reads_back_what_was_written_where_it_was_written(disk: SystemDisk, tmp_path: Path) -> None:
    file = disk.open(str(tmp_path / "a"), create=True)
    file.write_at(0, b"hello")
    file.write_at(3, memoryview(b"p me"))
    assert file.read_at(0, 100) == b"help me"
    assert file.read_at(5, 2) == b"me"
    assert file.size() == 7
    file.truncate(4)
    assert disk.read(file.path) == b"help"
    file.sync()
    file.close()


def test_opening_a_missing_file_does_not_create_it(disk: SystemDisk, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        disk.open(str(tmp_path / "missing"))
    assert disk.list(str(tmp_path)) == []


def test_a_cached_read_at_the_end_returns_no_more_than_the_file(disk: SystemDisk, tmp_path: Path) -> None:
    file = disk.open(str(tmp_path / "a"), create=True)
    file.write_at(0, b"hello")
    assert file.read_cached(3, 10) in (b"lo", None)


def test_more_files_than_descriptors_all_stay_usable(tmp_path: Path) -> None:
    disk = SystemDisk(max_open_files=3)
    files = [disk.open(str(tmp_path / f"{number}"), create=True) for number in range(10)]
    for turn in range(3):
        for number, file in enumerate(files):
            file.write_at(turn * 2, f"{number}{turn}".encode())
    assert [file.read_at(0, 10) for file in files] == [f"{n}0{n}1{n}2".encode() for n in range(10)]
    for file in files:
        file.close()


def test_a_handle_does_not_reopen_another_file_that_has_its_name(tmp_path: Path) -> None:
    disk = SystemDisk(max_open_files=1)
    disk.make_dirs(str(tmp_path / "topic-0"))
    old = disk.open(str(tmp_path / "topic-0" / "log"), create=True)
    old.write_at(0, b"old")
    disk.rename(str(tmp_path / "topic-0"), str(tmp_path / "topic-0-delete"))
    disk.make_dirs(str(tmp_path / "topic-0"))
    new = disk.open(str(tmp_path / "topic-0" / "log"), create=True)
    new.write_at(0, b"new")
    with pytest.raises(FileNotFoundError, match="another file"):
        old.write_at(0, b"OLD")
    assert new.read_at(0, 3) == b"new"


def test_a_handle_follows_its_own_rename(tmp_path: Path) -> None:
    disk = SystemDisk(max_open_files=1)
    file = disk.open(str(tmp_path / "a.swap"), create=True)
    file.write_at(0, b"kept")
    file.rename(str(tmp_path / "a"))
    disk.open(str(tmp_path / "other"), create=True)
    assert file.read_at(0, 4) == b"kept"
    assert disk.list(str(tmp_path)) == ["a", "other"]


def test_threads_that_evict_each_others_descriptors_never_use_the_wrong_file(tmp_path: Path) -> None:
    disk = SystemDisk(max_open_files=2)
    files = [disk.open(str(tmp_path / f"{number}"), create=True) for number in range(8)]
    failures: list[BaseException] = []

    def worker(number: int) -> None:
        mark = bytes([number]) * 64
        try:
            for turn in range(300):
                file = files[number * 2 + turn % 2]
                file.write_at(0, mark)
                assert file.read_at(0, 64) == mark
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=worker, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert [file.read_at(0, 1) for file in files] == [bytes([n // 2]) for n in range(8)]


def test_descriptors_are_closed(tmp_path: Path) -> None:
    disk = SystemDisk(max_open_files=5)
    before = len(os.listdir("/dev/fd"))
    files = [disk.open(str(tmp_path / f"{number}"), create=True) for number in range(50)]
    assert len(os.listdir("/dev/fd")) <= before + 5
    for file in files:
        file.close()
    assert len(os.listdir("/dev/fd")) == before


def test_an_atomic_write_replaces_the_whole_file(disk: SystemDisk, tmp_path: Path) -> None:
    path = str(tmp_path / "checkpoint")
    write_atomically(disk, path, b"a long first version")
    write_atomically(disk, path, b"short")
    assert disk.read(path) == b"short"
    assert disk.list(str(tmp_path)) == ["checkpoint"]


def test_a_locked_directory_cannot_be_locked_again_until_released(disk: SystemDisk, tmp_path: Path) -> None:
    lock = disk.lock(str(tmp_path / ".lock"))
    with pytest.raises(BlockingIOError):
        disk.lock(str(tmp_path / ".lock"))
    lock.release()
    disk.lock(str(tmp_path / ".lock")).release()


def test_names_are_listed_in_order_and_trees_are_removed_whole(disk: SystemDisk, tmp_path: Path) -> None:
    for name in ("b", "a", "c/d"):
        disk.make_dirs(str(tmp_path / name))
    assert disk.list(str(tmp_path)) == ["a", "b", "c"]
    disk.remove_tree(str(tmp_path / "c"))
    assert not disk.exists(str(tmp_path / "c"))
    assert disk.is_dir(str(tmp_path / "a"))
    with pytest.raises(OSError) as caught:
        disk.remove(str(tmp_path / "nothing"))
    assert caught.value.errno == errno.ENOENT


def test_usage_and_times_are_those_of_the_volume(disk: SystemDisk, tmp_path: Path) -> None:
    total, usable = disk.usage(str(tmp_path))
    assert total >= usable > 0
    path = tmp_path / "a"
    path.write_bytes(b"x")
    os.utime(path, ns=(0, 5_000_000_000))
    assert disk.modified_ms(str(path)) == 5_000
    assert disk.size(str(path)) == 1
    disk.sync_dir(str(tmp_path))


def test_a_buffer_in_use_is_not_reused(disk: SystemDisk) -> None:
    first = disk.buffer(100_000)
    second = disk.buffer(100_000)
    assert first.obj is not second.obj
    second = second[10:20]  # a part of it is enough to hold it
    assert disk.buffer(70_000).obj is not second.obj
    given_back = id(disk.buffer(100_000).obj)
    smaller = disk.buffer(70_000)
    assert (id(smaller.obj), len(smaller)) == (given_back, 70_000)
