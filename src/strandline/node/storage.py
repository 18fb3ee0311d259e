"""A node's directories: formatting and describing them, and verifying them at start.

`format_storage` and `storage_info` implement `strandline storage`; `open_storage` is the first step of a starting node,
before it locks or opens anything. All of it is blocking disk access. Invariants: meta.properties is written last, so a
directory whose formatting was interrupted counts as unformatted; a node never starts on a directory of another cluster
or node; an emptied metadata directory is never formatted implicitly, since a voter that lost its vote could vote twice.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from enum import Enum
from random import Random

import msgspec

from strandline.metadata.cluster_image import METADATA_VERSION
from strandline.metadata.features import (
    ELIGIBLE_LEADER_REPLICAS,
    KRAFT_VERSION,
    SERVED_FEATURES,
    SUPPORTED_FEATURES,
    bootstrap_records,
)
from strandline.metadata.record_versions import ELR_SINCE
from strandline.model.config_keys.addresses import parse_voter
from strandline.model.ids import METADATA_PARTITION, Uuid, random_uuid
from strandline.node.config import Config
from strandline.node.meta_properties import (
    MetaProperties,
    MetaPropertiesUnreadable,
    read_meta_properties,
    write_meta_properties,
)
from strandline.node.metadata_versions import LATEST_RELEASE, metadata_version_of, release_of
from strandline.protocol.messages.metadata_records import FeatureLevelRecord
from strandline.raft.disk.snapshots import write_bootstrap_checkpoint, write_first_voters
from strandline.raft.machine.voters import Voter, VoterSet
from strandline.runtime.disk import Disk


class StorageError(Exception):
    """Directories that cannot be formatted or started on; the message says what to do."""


class FormatPlan(msgspec.Struct, frozen=True):
    """The options of `storage format`. At most one of the three ways to start a quorum is set."""

    standalone: bool = False
    initial_controllers: str | None = None
    no_initial_controllers: bool = False
    ignore_formatted: bool = False
    release_version: str | None = None
    features: Mapping[str, int] | None = None


class FormatReport(msgspec.Struct, frozen=True):
    cluster_id: str
    node_id: int
    formatted: Mapping[str, Uuid]
    """Directory ids of the newly formatted directories, by path."""
    skipped: tuple[str, ...]
    release: str
    voters: VoterSet | None


class DirectoryState(Enum):
    FORMATTED = "formatted"
    UNFORMATTED = "not formatted"
    MISSING = "missing"
    BROKEN = "broken"


class DirectoryInfo(msgspec.Struct, frozen=True):
    """One directory: its meta.properties if it is formatted, otherwise the problem."""

    path: str
    state: DirectoryState
    meta: MetaProperties | None = None
    problem: str | None = None


class StorageInfo(msgspec.Struct, frozen=True):
    directories: tuple[DirectoryInfo, ...]
    problems: tuple[str, ...]


class Storage(msgspec.Struct, frozen=True):
    """The verified directories of a node. `offline` has the failed ones, with the reasons."""

    cluster_id: str
    node_id: int
    directory_ids: Mapping[str, Uuid]
    offline: Mapping[str, str]
    metadata_log_dir: str


def format_storage(
    config: Config, cluster_id: str, plan: FormatPlan, *, disk: Disk, random: Random, wall_ms: int
) -> FormatReport:
    """Formats the node's directories; with `ignore_formatted` only those that are not formatted."""
    _check_plan(config, cluster_id, plan)
    level, features = _feature_levels(config, plan)
    info = storage_info(config, disk=disk)
    _check_ownership(config, info, cluster_id)
    taken = [each.path for each in info.directories if each.meta is not None]
    broken = [each.problem for each in info.directories if each.state is DirectoryState.BROKEN]
    if broken:
        raise StorageError(str(broken[0]))
    if taken and not plan.ignore_formatted:
        raise StorageError(
            f"{taken[0]} is formatted already. To format only the new directories, add "
            "--ignore-formatted; to format it again, empty it first (all data in it is lost)"
        )
    ids = {path: random_uuid(random) for path in config.all_directories if path not in taken}
    voters = _first_voters(config, plan, ids)
    for path, directory_id in ids.items():
        _make_dirs(disk, path)
        if path == config.metadata_log_dir and voters is not None:
            partition = f"{path}/{METADATA_PARTITION}"
            _make_dirs(disk, partition)
            write_first_voters(disk, partition, voters, wall_ms=wall_ms)
        write_bootstrap_checkpoint(disk, path, features, metadata_version=level, wall_ms=wall_ms)
        write_meta_properties(disk, path, MetaProperties(cluster_id, config.node.node_id, directory_id))
    return FormatReport(cluster_id, config.node.node_id, ids, tuple(taken), release_of(level), voters)


def format_if_empty(config: Config, *, disk: Disk, random: Random, wall_ms: int) -> FormatReport | None:
    """Formats a new standalone cluster, for temporary nodes, if all directories of this node are empty."""
    for path in config.all_directories:
        if disk.exists(path) and disk.list(path):
            return None
    plan = FormatPlan(standalone=not config.quorum.voters)
    return format_storage(config, str(random_uuid(random)), plan, disk=disk, random=random, wall_ms=wall_ms)


def storage_info(config: Config, *, disk: Disk) -> StorageInfo:
    """The state of every directory, and the problems of and between them."""
    directories = tuple(_directory_info(disk, path) for path in config.all_directories)
    problems = [each.problem for each in directories if each.problem is not None]
    known = [(each.path, each.meta) for each in directories if each.meta is not None]
    for index, (path, meta) in enumerate(known):
        for earlier_path, earlier in known[:index]:
            problems += _differences(path, meta, earlier_path, earlier)
    return StorageInfo(directories, tuple(problems))


def open_storage(config: Config, *, disk: Disk, random: Random) -> Storage:
    """Verifies the directories of a starting node. Raises StorageError.

    A directory that is missing or empty beside a formatted metadata directory is an error: its disk may not be mounted,
    and formatting it implicitly would bring its partitions back empty. Directories without a directory id get one.
    """
    info = storage_info(config, disk=disk)
    by_path = {each.path: each for each in info.directories}
    metadata_dir = by_path[config.metadata_log_dir]
    if metadata_dir.meta is None:
        raise StorageError(_not_formatted(config, metadata_dir, random))
    cluster_id = metadata_dir.meta.cluster_id
    if cluster_id is None:
        raise StorageError(f"{metadata_dir.path}/meta.properties names no cluster.id; restore the file from a backup")
    _check_ownership(config, info, cluster_id)
    directory_ids: dict[str, Uuid] = {}
    offline: dict[str, str] = {}
    for path, each in by_path.items():
        if each.state is DirectoryState.BROKEN:
            offline[path] = str(each.problem)
            continue
        if each.meta is None:
            raise StorageError(_not_mounted(config, each, cluster_id))
        try:
            directory_ids[path] = _directory_id(disk, path, each.meta, cluster_id, config.node.node_id, random)
        except OSError as error:
            if path == config.metadata_log_dir:
                raise StorageError(f"{path} cannot be written: {error.strerror}") from error
            offline[path] = f"{path} cannot be written: {error.strerror}"
    _check_copies(directory_ids)
    return Storage(cluster_id, config.node.node_id, directory_ids, offline, config.metadata_log_dir)


def format_command(config: Config, cluster_id: str) -> str:
    """The command that formats this node's directories."""
    how = ""
    if config.node.is_controller and not config.quorum.voters:
        how = " --standalone" if len(config.quorum.bootstrap_servers) == 1 else " --initial-controllers …"
    return f"strandline storage format --cluster-id {cluster_id} -c {config.source}{how}"


def _check_plan(config: Config, cluster_id: str, plan: FormatPlan) -> None:
    ways = [plan.standalone, plan.initial_controllers is not None, plan.no_initial_controllers]
    if not cluster_id or any(character.isspace() for character in cluster_id):
        raise StorageError(
            f"{cluster_id!r} is not a cluster id: it must not be empty or contain spaces; "
            "`strandline storage random-uuid` makes one"
        )
    if sum(ways) > 1:
        raise StorageError("--standalone, --initial-controllers and --no-initial-controllers exclude each other")
    if config.quorum.voters and (plan.standalone or plan.initial_controllers):
        raise StorageError(
            "controller.quorum.voters sets static voters, so --standalone and --initial-controllers cannot be used; "
            "remove controller.quorum.voters and set controller.quorum.bootstrap.servers for a quorum that can change"
        )
    if plan.standalone and not config.node.is_controller:
        raise StorageError(
            "--standalone makes this node the only controller, but process.roles does not contain controller"
        )
    if config.node.is_controller and not config.quorum.voters and not any(ways):
        raise StorageError(
            "choose how the quorum starts: --standalone for a single controller, "
            "--initial-controllers id@host:port:directory,… for several (the same on each), or "
            "--no-initial-controllers for a controller that will join a running cluster"
        )


def _feature_levels(config: Config, plan: FormatPlan) -> tuple[int, list[FeatureLevelRecord]]:
    """The metadata version, and the records that finalize it (first) and the other features."""
    wanted = dict(plan.features or {})
    _check_features(config, plan, wanted)
    try:
        metadata_version = wanted.get(METADATA_VERSION) or metadata_version_of(plan.release_version or LATEST_RELEASE)
    except ValueError as error:
        raise StorageError(str(error)) from error
    if wanted.get(ELIGIBLE_LEADER_REPLICAS) and metadata_version < ELR_SINCE:
        raise StorageError(
            f"{ELIGIBLE_LEADER_REPLICAS}=1 needs {METADATA_VERSION} {release_of(ELR_SINCE)} or later, "
            f"not {release_of(metadata_version)}"
        )
    levels = {
        record.name: record.feature_level
        for record in bootstrap_records(metadata_version)
        if isinstance(record, FeatureLevelRecord)
    }
    levels.update(wanted)
    # kraft.version is not a metadata record: the snapshot of the first voters carries it.
    levels.pop(KRAFT_VERSION, None)
    return metadata_version, [FeatureLevelRecord(name=name, feature_level=at) for name, at in levels.items() if at > 0]


def _check_features(config: Config, plan: FormatPlan, wanted: Mapping[str, int]) -> None:
    for name, level in wanted.items():
        if name not in SUPPORTED_FEATURES:
            raise StorageError(f"{name} is not a feature: features are {', '.join(SUPPORTED_FEATURES)}")
        least, most = SUPPORTED_FEATURES[name][0], SERVED_FEATURES.get(name, 0)
        if not least <= level <= most:
            raise StorageError(f"{name}={level} cannot be finalized: levels {least} to {most} are served")
    if METADATA_VERSION in wanted and plan.release_version is not None:
        raise StorageError(f"--release-version and --feature {METADATA_VERSION} exclude each other: give one")
    dynamic = not config.quorum.voters
    if KRAFT_VERSION in wanted and wanted[KRAFT_VERSION] != int(dynamic):
        why = (
            "without controller.quorum.voters it is dynamic" if dynamic else "controller.quorum.voters makes it static"
        )
        raise StorageError(
            f"{KRAFT_VERSION}={wanted[KRAFT_VERSION]} does not fit this quorum ({why}): leave --feature "
            f"{KRAFT_VERSION} out"
        )


def _first_voters(config: Config, plan: FormatPlan, ids: dict[str, Uuid]) -> VoterSet | None:
    """The initial voters; the metadata directory of a voter gets the directory id from --initial-controllers."""
    listener = config.controller_listener_names[0]
    if plan.standalone:
        at = next(each for each in config.listeners if each.name == listener)
        if at.advertised_port == 0:
            raise StorageError(f"listeners: {listener} needs a fixed port, since it is part of the voter set")
        directory_id = ids.get(config.metadata_log_dir)
        if directory_id is None:
            return None
        return VoterSet((Voter(config.node.node_id, directory_id, ((listener, at.advertised(0)),)),))
    if plan.initial_controllers is None:
        return None
    voters = sorted(
        (_parse_initial_controller(text, listener) for text in plan.initial_controllers.split(",")),
        key=lambda voter: voter.id,
    )
    try:
        voter_set = VoterSet(tuple(voters))
    except ValueError as error:
        raise StorageError(f"--initial-controllers: {error}") from error
    own = voter_set.voter(config.node.node_id)
    if own is not None and config.metadata_log_dir in ids:
        ids[config.metadata_log_dir] = own.directory_id
    return voter_set


def _parse_initial_controller(text: str, listener: str) -> Voter:
    address, _, directory_id = text.strip().rpartition(":")
    try:
        voter = parse_voter(address)
        return Voter(voter.id, Uuid.parse(directory_id), ((listener, voter.endpoint),))
    except ValueError as error:
        raise StorageError(
            f"--initial-controllers: {text!r} is not id@host:port:directory, for example "
            f"1@localhost:9093:JEXY6aqzQY-32P5TStzaFg ({error})"
        ) from error


def _directory_info(disk: Disk, path: str) -> DirectoryInfo:
    try:
        if not disk.exists(path):
            return DirectoryInfo(path, DirectoryState.MISSING, problem=f"{path} does not exist")
        if not disk.is_dir(path):
            return DirectoryInfo(path, DirectoryState.BROKEN, problem=f"{path} is not a directory")
        disk.list(path)
        meta = read_meta_properties(disk, path)
    except OSError as error:
        return DirectoryInfo(path, DirectoryState.BROKEN, problem=f"{path} cannot be read: {error.strerror}")
    except MetaPropertiesUnreadable as error:
        return DirectoryInfo(path, DirectoryState.BROKEN, problem=str(error))
    if meta is None:
        return DirectoryInfo(path, DirectoryState.UNFORMATTED, problem=f"{path} is not formatted")
    return DirectoryInfo(path, DirectoryState.FORMATTED, meta)


def _make_dirs(disk: Disk, path: str) -> None:
    """Creates directories that survive a power loss: their parents are synced too."""
    missing = []
    at = path
    while at and not disk.exists(at):
        missing.append(at)
        at = os.path.dirname(at)
    disk.make_dirs(path)
    for directory in reversed(missing):
        disk.sync_dir(os.path.dirname(directory) or ".")


def _differences(path: str, meta: MetaProperties, other_path: str, other: MetaProperties) -> list[str]:
    problems = []
    if meta.cluster_id != other.cluster_id:
        problems.append(f"{path} belongs to cluster {meta.cluster_id}, {other_path} to cluster {other.cluster_id}")
    if meta.node_id != other.node_id:
        problems.append(f"{path} belongs to node {meta.node_id}, {other_path} to node {other.node_id}")
    if meta.directory_id is not None and meta.directory_id == other.directory_id:
        problems.append(f"{path} and {other_path} have the same directory.id {meta.directory_id}: one is a copy")
    return problems


def _check_ownership(config: Config, info: StorageInfo, cluster_id: str) -> None:
    """Formatted directories must belong to this cluster and this node."""
    for each in info.directories:
        if each.meta is None:
            continue
        theirs = each.meta
        if theirs.cluster_id not in (None, cluster_id):
            raise StorageError(
                f"{each.path} belongs to cluster {theirs.cluster_id}, not to {cluster_id}. "
                "Point log.dirs at this cluster's directories, or use the other cluster's id"
            )
        if theirs.node_id not in (None, config.node.node_id):
            raise StorageError(
                f"{each.path} belongs to node {theirs.node_id}, but node.id is {config.node.node_id}. "
                "Point log.dirs at this node's directories, or set node.id to the node whose data this is"
            )


def _check_copies(directory_ids: Mapping[str, Uuid]) -> None:
    seen: dict[Uuid, str] = {}
    for path, directory_id in directory_ids.items():
        if directory_id in seen:
            raise StorageError(
                f"{seen[directory_id]} and {path} have the same directory.id {directory_id}: one is a copy of the "
                "other. Take the copy out of log.dirs"
            )
        seen[directory_id] = path


def _directory_id(disk: Disk, path: str, meta: MetaProperties, cluster_id: str, node_id: int, random: Random) -> Uuid:
    """The id of a directory; a directory without an id gets one."""
    if meta.complete and meta.directory_id is not None:
        return meta.directory_id
    directory_id = meta.directory_id or random_uuid(random)
    write_meta_properties(disk, path, MetaProperties(cluster_id, node_id, directory_id))
    return directory_id


def _not_mounted(config: Config, each: DirectoryInfo, cluster_id: str) -> str:
    return (
        f"{each.problem}, unlike {config.metadata_log_dir}. If it held data, its disk may not be mounted: mount it and "
        "start again. To format it empty (the replicas in it are lost) run once\n"
        f"  {format_command(config, cluster_id)} --ignore-formatted"
    )


def _not_formatted(config: Config, metadata_dir: DirectoryInfo, random: Random) -> str:
    if metadata_dir.state is DirectoryState.BROKEN:
        return str(metadata_dir.problem)
    if config.node.is_controller:
        cluster_id = str(random_uuid(random))
        which = "For a new cluster run once"
    else:
        cluster_id = "<id of the cluster>"
        which = "To let this broker join the cluster run once"
    return (
        f"{metadata_dir.problem}. If it held data, its disk may not be mounted: do not format it then. {which}\n"
        f"  {format_command(config, cluster_id)}"
    )
