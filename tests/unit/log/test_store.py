"""The logs of a node: opened on first use, in several directories, by topic id; and the periodic steps."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from strandline.log import maintenance
from strandline.log.directory import DirectoryInUse
from strandline.log.directory_health import Condition
from strandline.log.settings import LogSettings
from strandline.log.store import LogStore
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import TopicPartition, Uuid
from strandline.runtime.disk import Disk
from unit.log.failing_disk import FailingDisk
from unit.log.logs import SMALL, WALL_MS, append, batch, delete_expired, fill, read_all

TOPIC = Uuid.of(1, 1000)
OTHER_TOPIC = Uuid.of(1, 2000)


def open_store(path: Path, names: Sequence[str] = ("one",), disk: Disk | None = None) -> LogStore:
    for name in names:
        (path / name).mkdir(exist_ok=True)
    directories = {str(path / name): Uuid.of(9, 1000 + number) for number, name in enumerate(names)}
    return LogStore.open(disk or FailingDisk(), directories, Random(5))


def crash(store: LogStore) -> None:
    """The process is killed: only its locks are released."""
    for directory in store.directories:
        directory.release()


def partition(number: int, topic: str = "orders") -> TopicPartition:
    return TopicPartition(topic, number)


def test_a_log_is_created_with_its_topic_id_and_found_again(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    log = store.open_log(partition(3), TOPIC, SMALL, wall_ms=WALL_MS)
    assert store.log(partition(3)) is log
    assert store.open_log(partition(3), TOPIC, SMALL, wall_ms=WALL_MS) is log
    fill(log, 10)
    assert (tmp_path / "one" / "orders-3" / "partition.metadata").read_text() == f"version: 0\ntopic_id: {TOPIC}"
    maintenance.close(store, 7)
    again = open_store(tmp_path)
    assert again.partitions() == [partition(3)]
    assert again.log(partition(3)) is None
    assert again.directories[0].clean_broker_epoch == 7
    assert len(read_all(again.open_log(partition(3), TOPIC, SMALL, wall_ms=WALL_MS))) == 10


def test_start_up_opens_no_log(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for number in range(20):
        append(store.open_log(partition(number), TOPIC, SMALL, wall_ms=WALL_MS), batch(1))
    crash(store)
    disk = FailingDisk()
    again = open_store(tmp_path, disk=disk)
    assert len(again.partitions()) == 20
    assert [path for path in disk.opened_paths if "orders" in path] == []


def test_a_directory_is_used_by_one_process_at_a_time(tmp_path: Path) -> None:
    store = open_store(tmp_path, ["one", "two"])
    with pytest.raises(DirectoryInUse, match="in use by another process"):
        open_store(tmp_path, ["one", "two"])
    maintenance.close(store)
    open_store(tmp_path, ["one", "two"])


def test_a_new_log_is_created_in_the_given_directory_or_the_one_with_the_fewest(tmp_path: Path) -> None:
    store = open_store(tmp_path, ["one", "two"])
    for number in range(4):
        store.open_log(partition(number), TOPIC, SMALL, wall_ms=WALL_MS)
    assert [len(directory.partitions) for directory in store.directories] == [2, 2]
    second = store.directories[1]
    for number in range(4, 8):
        store.open_log(partition(number), TOPIC, SMALL, wall_ms=WALL_MS, directory_id=second.id)
    assert len(second.partitions) == 6
    store.open_log(partition(8), TOPIC, SMALL, wall_ms=WALL_MS)
    assert store.directory_of(partition(8)) is store.directories[0]


def test_a_cordoned_directory_gets_only_logs_that_name_it(tmp_path: Path) -> None:
    store = open_store(tmp_path, ["one", "two"])
    first, second = store.directories
    store.cordoned = frozenset({first.id})
    for number in range(3):
        store.open_log(partition(number), TOPIC, SMALL, wall_ms=WALL_MS)
    store.open_log(partition(3), TOPIC, SMALL, wall_ms=WALL_MS, directory_id=first.id)
    assert [len(directory.partitions) for directory in store.directories] == [1, 3]
    store.cordoned = frozenset({first.id, second.id})
    store.open_log(partition(4), TOPIC, SMALL, wall_ms=WALL_MS)
    assert store.directory_of(partition(4)) is first, "it must go somewhere"


def test_a_topic_that_is_deleted_and_recreated_does_not_get_the_old_records(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    fill(store.open_log(partition(0), TOPIC, SMALL, wall_ms=WALL_MS), 5)
    maintenance.close(store)
    again = open_store(tmp_path)
    log = again.open_log(partition(0), OTHER_TOPIC, SMALL, wall_ms=WALL_MS)
    assert (log.log_end_offset, log.high_watermark) == (0, 0)
    strays = [entry.name for entry in (tmp_path / "one").iterdir() if entry.name.endswith("-stray")]
    assert len(strays) == 1
    assert strays[0].startswith("orders-0.")


def test_partitions_that_are_not_assigned_to_the_node_become_stray(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for number, topic in enumerate((TOPIC, TOPIC, OTHER_TOPIC)):
        store.open_log(partition(number), topic, SMALL, wall_ms=WALL_MS)
    maintenance.close(store)
    again = open_store(tmp_path)
    assert again.mark_strays({partition(0): TOPIC, partition(2): TOPIC}) == [partition(1), partition(2)]
    assert again.partitions() == [partition(0)]


def test_a_deleted_log_is_renamed_then_removed(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    log = store.open_log(partition(0), TOPIC, SMALL, wall_ms=WALL_MS)
    fill(log, 5)
    held = log.read(0, max_bytes=1000)
    assert store.delete_log(partition(0), remove_at_ms=60_000)
    assert not store.delete_log(partition(0))
    assert store.log(partition(0)) is None
    assert store.partitions() == []
    # Reads of the removed log fail, and the directory stays online.
    assert held is not None
    with pytest.raises(KafkaError):
        log.flush()
    with pytest.raises(KafkaError):
        append(log, batch(1))
    assert store.directories[0].health.condition is Condition.ONLINE
    assert maintenance.remove_deleted(store, 59_999) == 0
    assert maintenance.remove_deleted(store, 60_000) == 1
    assert [entry.name for entry in (tmp_path / "one").iterdir() if entry.is_dir()] == []


def test_an_unfinished_deletion_continues_after_a_restart(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.open_log(partition(0), TOPIC, SMALL, wall_ms=WALL_MS)
    store.delete_log(partition(0), remove_at_ms=60_000)
    crash(store)
    again = open_store(tmp_path)
    assert again.partitions() == []
    assert maintenance.remove_deleted(again, 0) == 1


def test_checkpoints_keep_the_entries_of_unopened_logs(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for number in range(3):
        fill(store.open_log(partition(number), TOPIC, SMALL, wall_ms=WALL_MS), 5 + number)
    log = store.log(partition(1))
    assert log is not None
    log.delete_records_before(3)
    maintenance.close(store)
    again = open_store(tmp_path)
    directory = tmp_path / "one"
    fill(again.open_log(partition(0), TOPIC, SMALL, wall_ms=WALL_MS), 1)
    maintenance.checkpoint_recovery_points(again)
    maintenance.checkpoint_log_starts(again)
    maintenance.checkpoint_high_watermarks(again)
    expected = "0\n3\norders 0 12\norders 1 12\norders 2 14\n"
    assert (directory / "recovery-point-offset-checkpoint").read_text() == expected.replace("0 12", "0 10")
    assert (directory / "log-start-offset-checkpoint").read_text() == "0\n1\norders 1 3\n"
    assert (directory / "replication-offset-checkpoint").read_text() == expected
    opened = again.open_log(partition(1), TOPIC, SMALL, wall_ms=WALL_MS)
    assert (opened.log_start_offset, opened.high_watermark) == (3, 12)


def test_the_high_watermark_is_restored_after_a_crash_and_a_loss_below_it_is_reported(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    fill(store.open_log(partition(0), TOPIC, SMALL, wall_ms=WALL_MS), 5)
    maintenance.checkpoint_high_watermarks(store)
    crash(store)
    again = open_store(tmp_path)
    log = again.open_log(partition(0), TOPIC, SMALL, wall_ms=WALL_MS)
    assert (log.high_watermark, log.flushed_offset) == (10, 0)
    crash(again)
    path = tmp_path / "one" / "orders-0" / f"{0:020d}.log"
    path.write_bytes(path.read_bytes()[:-10])
    third = open_store(tmp_path)
    shorter = third.open_log(partition(0), TOPIC, SMALL, wall_ms=WALL_MS)
    assert (shorter.high_watermark, shorter.lost_up_to) == (8, 10)
    assert list(third.losses) == [partition(0)]


def test_a_shutdown_is_clean_only_if_all_logs_were_opened_since_a_crash(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for number in range(2):
        fill(store.open_log(partition(number), TOPIC, SMALL, wall_ms=WALL_MS), 5)
    crash(store)
    store = open_store(tmp_path)
    assert not store.directories[0].is_clean
    assert store.unrecovered() == [partition(0), partition(1)]
    store.open_log(partition(0), TOPIC, SMALL, wall_ms=WALL_MS)
    maintenance.close(store)
    store = open_store(tmp_path)
    assert not store.directories[0].is_clean
    for topic_partition in store.unrecovered():
        store.open_log(topic_partition, TOPIC, SMALL, wall_ms=WALL_MS)
    maintenance.close(store)
    store = open_store(tmp_path)
    assert store.directories[0].is_clean
    assert store.unrecovered() == []
    assert not (tmp_path / "one" / ".kafka_cleanshutdown").exists()


def test_a_crash_after_a_clean_start_is_not_a_clean_shutdown(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    fill(store.open_log(partition(0), TOPIC, SMALL, wall_ms=WALL_MS), 5)
    maintenance.close(store)
    crash(open_store(tmp_path))
    assert not open_store(tmp_path).directories[0].is_clean


def test_a_damaged_checkpoint_is_replaced_by_reading_the_logs(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    fill(store.open_log(partition(0), TOPIC, SMALL, wall_ms=WALL_MS), 5)
    maintenance.close(store)
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        (tmp_path / "one" / name).write_bytes(b"0\n7\ngarb")
    log = open_store(tmp_path).open_log(partition(0), TOPIC, SMALL, wall_ms=WALL_MS)
    assert len(read_all(log)) == 5


class TestFailingDirectory:
    def test_the_others_stay_online(self, tmp_path: Path) -> None:
        disk = FailingDisk()
        store = open_store(tmp_path, ["one", "two"], disk)
        first, second = (store.open_log(partition(number), TOPIC, SMALL, wall_ms=WALL_MS) for number in range(2))
        append(first, batch(1))
        append(second, batch(1))
        disk.fail("write", str(tmp_path / "one" / "orders-0" / f"{0:020d}.log"), errno.EIO)
        with pytest.raises(KafkaError):
            append(first, batch(1))
        assert [directory.health.is_online for directory in store.directories] == [False, True]
        append(second, batch(1))
        third = store.open_log(partition(2), TOPIC, SMALL, wall_ms=WALL_MS)
        assert store.directory_of(partition(2)) is store.directories[1]
        append(third, batch(1))
        with pytest.raises(KafkaError) as raised:
            store.open_log(partition(3), TOPIC, SMALL, wall_ms=WALL_MS, directory_id=store.directories[0].id)
        assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        disk.mend()
        maintenance.close(store)
        assert not (tmp_path / "one" / ".kafka_cleanshutdown").exists()
        assert (tmp_path / "two" / ".kafka_cleanshutdown").exists()

    def test_one_that_cannot_be_read_at_start_up_is_offline(self, tmp_path: Path) -> None:
        disk = FailingDisk()
        disk.fail("list", "one")
        store = open_store(tmp_path, ["one", "two"], disk)
        assert [directory.health.condition for directory in store.directories] == [Condition.OFFLINE, Condition.ONLINE]
        store.open_log(partition(0), TOPIC, SMALL, wall_ms=WALL_MS)
        assert store.directory_of(partition(0)) is store.directories[1]

    def test_a_full_one_gets_no_new_logs_while_another_has_room(self, tmp_path: Path) -> None:
        disk = FailingDisk()
        store = open_store(tmp_path, ["one", "two"], disk)
        log = store.open_log(partition(0), TOPIC, SMALL, wall_ms=WALL_MS)
        disk.fail("write", ".log", errno.ENOSPC)
        with pytest.raises(KafkaError):
            append(log, batch(1))
        disk.mend()
        for number in range(1, 4):
            store.open_log(partition(number), TOPIC, SMALL, wall_ms=WALL_MS)
            assert store.directory_of(partition(number)) is store.directories[1]

    def test_a_log_that_could_not_be_created_may_be_created_in_another(self, tmp_path: Path) -> None:
        disk = FailingDisk()
        store = open_store(tmp_path, ["one", "two"], disk)
        disk.fail("open", "partition.metadata", errno.ENOSPC, times=1)
        with pytest.raises(KafkaError):
            store.open_log(partition(0), TOPIC, SMALL, wall_ms=WALL_MS)
        store.open_log(partition(0), TOPIC, SMALL, wall_ms=WALL_MS)
        assert store.directory_of(partition(0)) is store.directories[1]


class TestPeriodicSteps:
    def test_retention_deletes_segments_and_removes_their_files_after_the_delay(self, tmp_path: Path) -> None:
        settings = replace(SMALL, retention_ms=1000, file_delete_delay_ms=500)
        store = open_store(tmp_path)
        log = store.open_log(partition(0), TOPIC, settings, wall_ms=WALL_MS)
        fill(log, 40)
        assert maintenance.logs_with_expired_segments(store, WALL_MS) == []
        assert maintenance.logs_with_expired_segments(store, WALL_MS + 10**6) == [log]
        store.segments_to_remove.extend((600, segment) for segment in delete_expired(log, WALL_MS + 10**6))
        assert (log.log_start_offset, log.log_end_offset) == (80, 80)
        assert maintenance.remove_deleted(store, 599) == 0
        assert maintenance.remove_deleted(store, 600) == 3

    def test_retention_skips_an_offline_directory_silently(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        store = open_store(tmp_path)
        log = store.open_log(partition(0), TOPIC, replace(SMALL, retention_ms=1), wall_ms=WALL_MS)
        fill(log, 40)
        log.health.fail("the disk failed")
        caplog.clear()
        assert maintenance.logs_with_expired_segments(store, WALL_MS + 10**6) == []
        unopened = {partition(1): replace(SMALL, retention_ms=1)}
        assert maintenance.unopened_with_old_segments(store, unopened, WALL_MS + 10**6) == []
        assert caplog.records == []

    def test_unopened_logs_with_old_segments_are_found(self, tmp_path: Path) -> None:
        store = open_store(tmp_path)
        for number in range(3):
            fill(store.open_log(partition(number), TOPIC, SMALL, wall_ms=WALL_MS), 5 * number)
        maintenance.close(store)
        again = open_store(tmp_path)
        settings = {
            partition(0): replace(SMALL, retention_ms=0),
            partition(1): replace(SMALL, retention_bytes=10),
            partition(2): SMALL,
        }
        assert maintenance.unopened_with_old_segments(again, settings, 1 << 50) == [partition(1)]
        settings[partition(2)] = replace(SMALL, retention_ms=1000)
        assert maintenance.unopened_with_old_segments(again, settings, 1 << 50) == [partition(1), partition(2)]

    def test_idle_producers_expire(self, tmp_path: Path) -> None:
        store = open_store(tmp_path)
        log = store.open_log(partition(0), TOPIC, LogSettings(), wall_ms=WALL_MS)
        append(log, batch(1, producer_id=1, sequence=0))
        assert maintenance.expire_producers(store, WALL_MS + 86_399_999) == 0
        assert maintenance.expire_producers(store, WALL_MS + 86_400_001) == 1

    def test_idle_logs_close_their_files(self, tmp_path: Path) -> None:
        store = open_store(tmp_path)
        log = store.open_log(partition(0), TOPIC, SMALL, wall_ms=WALL_MS)
        fill(log, 3)
        maintenance.release_idle(store)
        maintenance.release_idle(store)
        assert log.segments[-1].file is None
        fill(log, 1)
        assert len(read_all(log)) == 4

    def test_sizes_include_unopened_logs(self, tmp_path: Path) -> None:
        store = open_store(tmp_path)
        for number in range(2):
            fill(store.open_log(partition(number), TOPIC, SMALL, wall_ms=WALL_MS), 5 + number)
        expected = store.sizes(store.directories[0])
        assert expected[partition(0)] > 0
        maintenance.close(store)
        again = open_store(tmp_path)
        again.open_log(partition(0), TOPIC, SMALL, wall_ms=WALL_MS)
        assert again.sizes(again.directories[0]) == expected

    def test_a_truncation_lowers_the_checkpoints_first(self, tmp_path: Path) -> None:
        store = open_store(tmp_path)
        log = store.open_log(partition(0), TOPIC, SMALL, wall_ms=WALL_MS)
        fill(log, 10)
        log.flush()
        maintenance.checkpoint_recovery_points(store)
        assert "orders 0 20\n" in (tmp_path / "one" / "recovery-point-offset-checkpoint").read_text()
        step = log.begin_truncation(4)
        step.run()
        assert "orders 0 4\n" in (tmp_path / "one" / "recovery-point-offset-checkpoint").read_text()
        # A periodic write in between must not raise it again.
        maintenance.checkpoint_recovery_points(store)
        step.apply()
        maintenance.checkpoint_recovery_points(store)
        assert "orders 0 4\n" in (tmp_path / "one" / "recovery-point-offset-checkpoint").read_text()


def test_an_incomplete_partition_metadata_on_a_full_disk_does_not_take_the_directory_offline(tmp_path: Path) -> None:
    home = tmp_path / "one" / "orders-0"
    home.mkdir(parents=True)
    (home / "partition.metadata").write_text("")
    disk = FailingDisk()
    disk.fail("write", "partition.metadata", errno.ENOSPC)
    store = open_store(tmp_path, disk=disk)
    assert store.mark_strays({partition(0): TOPIC}) == []
    with pytest.raises(KafkaError) as raised:
        store.open_log(partition(0), TOPIC, SMALL, wall_ms=WALL_MS)
    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    disk.mend()
    assert store.open_log(partition(0), TOPIC, SMALL, wall_ms=WALL_MS).log_end_offset == 0
