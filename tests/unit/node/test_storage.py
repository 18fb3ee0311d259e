from __future__ import annotations

import errno
from random import Random

import pytest

from strandline.metadata.features import bootstrap_records
from strandline.model.ids import Endpoint, Uuid
from strandline.node.config import Config
from strandline.node.meta_properties import (
    MetaProperties,
    MetaPropertiesUnreadable,
    read_meta_properties,
    write_meta_properties,
)
from strandline.node.metadata_versions import metadata_version_of, release_of
from strandline.node.storage import (
    METADATA_PARTITION,
    DirectoryState,
    FormatPlan,
    FormatReport,
    StorageError,
    format_if_empty,
    format_storage,
    open_storage,
    storage_info,
)
from strandline.protocol.messages.metadata_records import FeatureLevelRecord
from strandline.raft.disk.snapshots import read_bootstrap_checkpoint, read_snapshot
from strandline.simulation.disk import PowerLoss, SimDisk
from strandline.simulation.volume import Volume

CLUSTER = "4L6g3nShT-eMCtK--X86sw"
FIRST_VOTERS = f"{METADATA_PARTITION}/00000000000000000000-0000000000.checkpoint"
WALL_MS = 1_700_000_000_000


def config(**change: str) -> Config:
    properties = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": "localhost:9093",
        "log.dirs": "/data/a,/data/b",
    }
    properties.update({name.replace("_", "."): value for name, value in change.items()})
    return Config.of(properties, where="node.properties")


def broker(**change: str) -> Config:
    return config(process_roles="broker", listeners="PLAINTEXT://localhost:9092", **change)


def formatted(disk: SimDisk, of: Config | None = None, cluster_id: str = CLUSTER, **plan: object) -> FormatReport:
    format_plan = FormatPlan(**({"standalone": True} | plan))  # type: ignore[arg-type]
    return format_storage(of or config(), cluster_id, format_plan, disk=disk, random=Random(1), wall_ms=WALL_MS)


def opened(disk: SimDisk, of: Config | None = None) -> dict[str, Uuid]:
    return dict(open_storage(of or config(), disk=disk, random=Random(2)).directory_ids)


def test_formatting_with_standalone_makes_this_node_the_only_voter() -> None:
    disk = SimDisk(Volume())
    report = formatted(disk)
    assert sorted(report.formatted) == ["/data/a", "/data/b"]
    assert disk.read("/data/a/meta.properties").decode() == (
        f"version=1\ncluster.id={CLUSTER}\nnode.id=1\ndirectory.id={report.formatted['/data/a']}\n"
    )
    snapshot = read_snapshot(disk, f"/data/a/{FIRST_VOTERS}")
    assert snapshot.kraft_version == 1 and snapshot.voters == report.voters
    assert report.voters is not None
    (voter,) = report.voters.voters
    assert (voter.id, voter.directory_id) == (1, report.formatted["/data/a"])
    assert voter.listeners == (("CONTROLLER", Endpoint("localhost", 9093)),)
    assert not disk.exists(f"/data/b/{FIRST_VOTERS}")


def test_every_directory_gets_the_initial_feature_levels() -> None:
    disk = SimDisk(Volume())
    formatted(disk, release_version="4.0")
    for path in ("/data/a", "/data/b"):
        assert read_bootstrap_checkpoint(disk, path) == [
            FeatureLevelRecord(name="metadata.version", feature_level=25),
            FeatureLevelRecord(name="group.version", feature_level=1),
            FeatureLevelRecord(name="transaction.version", feature_level=2),
        ]


def test_feature_levels_can_be_chosen() -> None:
    disk = SimDisk(Volume())
    levels = {"eligible.leader.replicas.version": 0, "group.version": 0, "metadata.version": 29, "kraft.version": 1}
    formatted(disk, features=levels)
    assert read_bootstrap_checkpoint(disk, "/data/a") == [
        FeatureLevelRecord(name="metadata.version", feature_level=29),
        FeatureLevelRecord(name="transaction.version", feature_level=2),
    ]


def test_a_new_cluster_starts_with_the_served_feature_levels() -> None:
    disk = SimDisk(Volume())
    formatted(disk)
    assert read_bootstrap_checkpoint(disk, "/data/a") == bootstrap_records()


def test_a_node_starts_on_formatted_directories() -> None:
    disk = SimDisk(Volume())
    report = formatted(disk)
    storage = open_storage(config(), disk=disk, random=Random(2))
    assert (storage.cluster_id, storage.node_id) == (CLUSTER, 1)
    assert storage.directory_ids == report.formatted
    assert storage.offline == {}


def test_initial_controllers_set_the_directory_id_of_each_voter() -> None:
    disk = SimDisk(Volume())
    controllers = "3@h3:9093:07R5amHmR32VDA6jHkGbTA,1@[::1]:9093:JEXY6aqzQY-32P5TStzaFg"
    report = formatted(disk, standalone=False, initial_controllers=controllers)
    assert report.formatted["/data/a"] == Uuid.parse("JEXY6aqzQY-32P5TStzaFg")
    voters = read_snapshot(disk, f"/data/a/{FIRST_VOTERS}").voters
    assert voters is not None
    assert [voter.id for voter in voters.voters] == [1, 3]
    assert voters.voters[0].listeners == (("CONTROLLER", Endpoint("::1", 9093)),)


def test_a_controller_that_joins_later_gets_no_voters() -> None:
    disk = SimDisk(Volume())
    report = formatted(disk, standalone=False, no_initial_controllers=True)
    assert report.voters is None
    assert not disk.exists(f"/data/a/{FIRST_VOTERS}")


def test_static_voters_and_brokers_need_no_quorum_option() -> None:
    fixed = config(controller_quorum_voters="1@localhost:9093")
    assert formatted(SimDisk(Volume()), fixed, standalone=False).voters is None
    assert formatted(SimDisk(Volume()), broker(), standalone=False).voters is None


@pytest.mark.parametrize(
    ("of", "plan", "why"),
    [
        (config(), {"standalone": False}, "choose how the quorum starts"),
        (config(), {"no_initial_controllers": True}, "exclude each other"),
        (broker(), {}, "process.roles does not contain controller"),
        (config(controller_quorum_voters="1@localhost:9093"), {}, "sets static voters"),
        (config(), {"standalone": False, "initial_controllers": "1@localhost:9093"}, "is not id@host:port:directory"),
        (
            config(),
            {"standalone": False, "initial_controllers": "1@a:1:JEXY6aqzQY-32P5TStzaFg,1@b:1:07R5amHmR32VDA6jHkGbTA"},
            "must be unique",
        ),
        (config(listeners="PLAINTEXT://localhost:9092,CONTROLLER://localhost:0"), {}, "needs a fixed port"),
        (config(), {"release_version": "2.8"}, "'2.8' is not a known release"),
        (
            config(),
            {"features": {"metadata.version": 99}},
            "metadata.version=99 cannot be finalized: levels 7 to 30 are served",
        ),
        (config(), {"features": {"group.flavour": 1}}, "group.flavour is not a feature"),
        (config(), {"features": {"kraft.version": 0}}, "kraft.version=0 does not fit this quorum"),
        (
            config(controller_quorum_voters="1@localhost:9093"),
            {"standalone": False, "features": {"kraft.version": 1}},
            "controller.quorum.voters makes it static",
        ),
        (config(), {"features": {"metadata.version": 20}, "release_version": "4.0"}, "exclude each other"),
        (
            config(),
            {"features": {"eligible.leader.replicas.version": 1}, "release_version": "3.8"},
            "needs metadata.version 4.0-IV1 or later, not 3.8-IV0",
        ),
        (config(), {"cluster_id": "two words"}, "is not a cluster id"),
    ],
)
def test_formatting_rejects_invalid_options(of: Config, plan: dict[str, object], why: str) -> None:
    disk = SimDisk(Volume())
    with pytest.raises(StorageError, match=why):
        formatted(disk, of, **plan)  # type: ignore[arg-type]
    assert not disk.exists("/data")


def test_a_formatted_directory_is_not_formatted_again() -> None:
    disk = SimDisk(Volume())
    first = formatted(disk)
    with pytest.raises(StorageError, match=r"/data/a is formatted already.*--ignore-formatted"):
        formatted(disk)
    again = formatted(disk, config(log_dirs="/data/a,/data/b,/data/c"), ignore_formatted=True)
    assert (again.skipped, list(again.formatted)) == (("/data/a", "/data/b"), ["/data/c"])
    assert opened(disk)["/data/a"] == first.formatted["/data/a"]


def test_ignoring_formatted_directories_does_not_mean_adopting_another_clusters() -> None:
    disk = SimDisk(Volume())
    formatted(disk)
    with pytest.raises(StorageError, match=f"belongs to cluster {CLUSTER}, not to another"):
        formatted(disk, cluster_id="another", ignore_formatted=True)


def test_a_node_does_not_start_on_an_unformatted_directory_and_names_the_command() -> None:
    with pytest.raises(StorageError) as error:
        opened(SimDisk(Volume()))
    message = str(error.value)
    assert "/data/a does not exist" in message
    assert "strandline storage format --cluster-id " in message
    assert message.endswith(" -c node.properties --standalone")


def test_an_unformatted_broker_needs_the_id_of_its_cluster() -> None:
    with pytest.raises(StorageError, match=r"--cluster-id <id of the cluster> -c node\.properties$"):
        opened(SimDisk(Volume()), broker())


def test_a_node_does_not_start_on_a_directory_of_another_node() -> None:
    disk = SimDisk(Volume())
    formatted(disk)
    with pytest.raises(StorageError, match=r"/data/a belongs to node 1, but node\.id is 2"):
        opened(disk, config(node_id="2"))


def test_a_node_does_not_start_on_directories_of_two_clusters() -> None:
    disk = SimDisk(Volume())
    formatted(disk, config(log_dirs="/data/a"))
    formatted(disk, config(log_dirs="/data/b"), cluster_id="another")
    with pytest.raises(StorageError, match=f"/data/b belongs to cluster another, not to {CLUSTER}"):
        opened(disk)
    assert any(CLUSTER in problem and "another" in problem for problem in storage_info(config(), disk=disk).problems)


def test_a_copied_directory_is_detected() -> None:
    disk = SimDisk(Volume())
    formatted(disk, config(log_dirs="/data/a"))
    disk.make_dirs("/data/b")
    identity = read_meta_properties(disk, "/data/a")
    assert identity is not None
    write_meta_properties(disk, "/data/b", identity)
    with pytest.raises(StorageError, match=r"have the same directory\.id"):
        opened(disk)


def test_an_emptied_directory_beside_a_formatted_one_is_rejected_until_it_is_formatted() -> None:
    disk = SimDisk(Volume())
    first = formatted(disk)
    disk.remove_tree("/data/b")
    with pytest.raises(StorageError, match=r"may not be mounted(.|\n)*--ignore-formatted"):
        opened(disk)
    assert not disk.exists("/data/b")
    plan = FormatPlan(standalone=True, ignore_formatted=True)
    format_storage(config(), CLUSTER, plan, disk=disk, random=Random(3), wall_ms=WALL_MS)
    ids = opened(disk)
    assert ids["/data/a"] == first.formatted["/data/a"]
    assert ids["/data/b"] != first.formatted["/data/b"]


def test_an_emptied_metadata_directory_is_never_formatted_implicitly() -> None:
    disk = SimDisk(Volume())
    formatted(disk)
    disk.remove_tree("/data/a")
    with pytest.raises(StorageError, match="/data/a does not exist"):
        opened(disk)
    assert not disk.exists("/data/a")


def test_a_directory_without_an_id_is_given_one() -> None:
    disk = SimDisk(Volume())
    disk.make_dirs("/data/a")
    file = disk.open("/data/a/meta.properties", create=True)
    file.write_at(0, f"version=1\ncluster.id={CLUSTER}\nnode.id=1\n".encode())
    ids = opened(disk, config(log_dirs="/data/a"))
    assert read_meta_properties(disk, "/data/a") == MetaProperties(CLUSTER, 1, ids["/data/a"])


def test_a_directory_that_cannot_be_read_is_offline_unless_it_holds_the_metadata() -> None:
    disk = SimDisk(Volume())
    formatted(disk)
    disk.fail("read", under="/data/b", code=errno.EIO)
    storage = open_storage(config(), disk=disk, random=Random(2))
    assert list(storage.directory_ids) == ["/data/a"]
    assert "/data/b cannot be read" in storage.offline["/data/b"]
    disk.fail("read", under="/data/a", code=errno.EIO)
    with pytest.raises(StorageError, match="/data/a cannot be read"):
        opened(disk)


def test_a_damaged_meta_properties_does_not_count_as_unformatted() -> None:
    disk = SimDisk(Volume())
    formatted(disk)
    disk.open("/data/a/meta.properties").write_at(0, b"version=7")
    with pytest.raises(StorageError) as error:
        opened(disk)
    assert "version 7 is newer" in str(error.value) and "storage format" not in str(error.value)
    with pytest.raises(StorageError, match="is invalid"):
        formatted(disk, ignore_formatted=True)


@pytest.mark.parametrize("text", ["", "version=x", "version=1\nnode.id=one", "version=1\ndirectory.id=short", "\\u1"])
def test_an_invalid_meta_properties_is_rejected(text: str) -> None:
    disk = SimDisk(Volume())
    disk.make_dirs("/data")
    disk.open("/data/meta.properties", create=True).write_at(0, text.encode())
    with pytest.raises(MetaPropertiesUnreadable, match=r"/data/meta\.properties"):
        read_meta_properties(disk, "/data")


def test_version_0_of_meta_properties_is_read() -> None:
    disk = SimDisk(Volume())
    disk.make_dirs("/data")
    disk.open("/data/meta.properties", create=True).write_at(0, b"version=0\nbroker.id=3\ncluster.id=abc\n")
    assert read_meta_properties(disk, "/data") == MetaProperties("abc", 3, None)


def test_info_has_the_state_of_every_directory() -> None:
    disk = SimDisk(Volume())
    formatted(disk, config(log_dirs="/data/a"))
    disk.make_dirs("/data/b")
    info = storage_info(config(log_dirs="/data/a,/data/b,/data/c"), disk=disk)
    assert [each.state for each in info.directories] == [
        DirectoryState.FORMATTED,
        DirectoryState.UNFORMATTED,
        DirectoryState.MISSING,
    ]
    assert info.problems == ("/data/b is not formatted", "/data/c does not exist")


def test_format_if_empty_formats_only_empty_directories() -> None:
    disk = SimDisk(Volume())
    first = format_if_empty(config(), disk=disk, random=Random(1), wall_ms=WALL_MS)
    assert first is not None and opened(disk) == first.formatted
    assert format_if_empty(config(), disk=disk, random=Random(1), wall_ms=WALL_MS) is None
    disk.remove("/data/a/meta.properties")
    assert format_if_empty(config(), disk=disk, random=Random(1), wall_ms=WALL_MS) is None


def test_a_power_loss_while_formatting_leaves_directories_unformatted_or_complete() -> None:
    counting = SimDisk(Volume())
    formatted(counting)
    seen = set()
    for operation in range(counting.operations):
        disk = SimDisk(Volume())
        disk.lose_power_at = operation
        with pytest.raises(PowerLoss):
            formatted(disk)
        for seed in range(4):
            seen.add(_state_after(disk.volume.after_power_loss(Random(seed))))
    assert seen == {DirectoryState.MISSING, DirectoryState.UNFORMATTED, DirectoryState.FORMATTED}


def _state_after(volume: Volume) -> DirectoryState:
    disk = SimDisk(volume)
    (home,) = storage_info(config(log_dirs="/data/a"), disk=disk).directories
    if home.state is DirectoryState.FORMATTED:
        assert read_snapshot(disk, f"/data/a/{FIRST_VOTERS}").voters is not None
        assert read_bootstrap_checkpoint(disk, "/data/a")
    else:
        report = formatted(disk)
        assert opened(disk) == report.formatted
    return home.state


def test_formatted_directories_survive_a_power_loss() -> None:
    disk = SimDisk(Volume())
    report = formatted(disk)
    for seed in range(8):
        assert opened(SimDisk(disk.volume.after_power_loss(Random(seed)))) == report.formatted


@pytest.mark.parametrize(
    ("release", "level"), [("3.3-IV3", 7), ("3.7", 19), ("3.9.1", 21), ("4.0-IV1", 23), ("4.3", 30), ("4.3-IV0", 30)]
)
def test_a_release_is_its_last_metadata_version(release: str, level: int) -> None:
    assert metadata_version_of(release) == level


def test_a_metadata_version_has_a_release_name() -> None:
    assert release_of(30) == "4.3-IV0"
    assert release_of(99) == "level 99"
