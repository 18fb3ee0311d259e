"""`strandline storage`: formats the directories of a node before its first start, or describes them."""

from __future__ import annotations

import argparse
import random
import time
from typing import TYPE_CHECKING, Any

from strandline.cli.errors import CommandFailed, UsageError
from strandline.cli.options import add_json_option, parse_pairs
from strandline.cli.output import hint, print_facts, print_json, print_table
from strandline.cli.preconditions import check_file, reject_windows

if TYPE_CHECKING:
    from strandline.node.config import Config


def configure(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(metavar="VERB", required=True)

    formatting = verbs.add_parser("format", help="format empty directories before the first start of a node")
    formatting.add_argument(
        "-t",
        "--cluster-id",
        metavar="ID",
        required=True,
        help="the cluster id (`strandline storage random-uuid` generates one)",
    )
    how = formatting.add_mutually_exclusive_group()
    how.add_argument("-s", "--standalone", action="store_true", help="this node is the first and only controller")
    how.add_argument("-I", "--initial-controllers", metavar="ID@HOST:PORT:DIRECTORY,…", help="the first controllers")
    how.add_argument("-N", "--no-initial-controllers", action="store_true", help="a controller that joins later")
    formatting.add_argument(
        "-g", "--ignore-formatted", action="store_true", help="skip directories that are already formatted"
    )
    formatting.add_argument("-r", "--release-version", metavar="VERSION", help="features as of this release of Kafka")
    formatting.add_argument("--feature", metavar="NAME=LEVEL", action="append", default=[], help="a feature's level")
    formatting.set_defaults(run=run_format)

    info = verbs.add_parser("info", help="show the state of a node's directories")
    info.set_defaults(run=run_info)

    uuid = verbs.add_parser("random-uuid", help="generate an id for a new cluster")
    uuid.set_defaults(run=run_random_uuid)

    for verb in (formatting, info):
        verb.add_argument("-c", "--config", metavar="FILE", required=True, help="the node's server.properties")
    for verb in (formatting, info, uuid):
        add_json_option(verb)


def run_random_uuid(arguments: argparse.Namespace) -> int:
    from strandline.model.ids import random_uuid

    made = str(random_uuid(random.SystemRandom()))
    if arguments.json:
        print_json({"uuid": made})
    else:
        print(made)
    return 0


def run_format(arguments: argparse.Namespace) -> int:
    reject_windows("storage format")
    config = _config(arguments.config)
    from strandline.node.storage import FormatPlan, StorageError, format_storage
    from strandline.runtime.disk import SystemDisk

    options: dict[str, Any] = {}
    if arguments.release_version:
        options["release_version"] = arguments.release_version
    plan = FormatPlan(
        standalone=arguments.standalone,
        initial_controllers=arguments.initial_controllers,
        no_initial_controllers=arguments.no_initial_controllers,
        ignore_formatted=arguments.ignore_formatted,
        features=_features(arguments.feature),
        **options,
    )
    wall_ms = time.time_ns() // 1_000_000
    try:
        report = format_storage(
            config, arguments.cluster_id, plan, disk=SystemDisk(), random=random.SystemRandom(), wall_ms=wall_ms
        )
    except StorageError as error:
        raise CommandFailed(str(error)) from error
    except OSError as error:
        raise CommandFailed(f"{error.filename}: {error.strerror}") from error
    if arguments.json:
        print_json(
            {
                "cluster_id": report.cluster_id,
                "node_id": report.node_id,
                "formatted": {path: str(directory_id) for path, directory_id in report.formatted.items()},
                "skipped": list(report.skipped),
                "release": report.release,
            }
        )
    else:
        rows = [(path, "formatted", str(directory_id)) for path, directory_id in report.formatted.items()]
        rows += [(path, "was formatted already", "-") for path in report.skipped]
        print_table(("DIRECTORY", "STATUS", "ID"), rows)
    return 0


def _features(pairs: list[str]) -> dict[str, int] | None:
    levels = parse_pairs(pairs, "--feature")
    if not all(level.isdigit() for level in levels.values()):
        raise UsageError("--feature takes NAME=LEVEL, where LEVEL is a number")
    return {name: int(level) for name, level in levels.items()} or None


def run_info(arguments: argparse.Namespace) -> int:
    reject_windows("storage info")
    config = _config(arguments.config)
    from strandline.node.storage import storage_info
    from strandline.runtime.disk import SystemDisk

    info = storage_info(config, disk=SystemDisk())
    directories = [
        {
            "path": each.path,
            "state": each.state.value,
            "cluster_id": each.meta.cluster_id if each.meta else None,
            "node_id": each.meta.node_id if each.meta else None,
            "directory_id": str(each.meta.directory_id) if each.meta and each.meta.directory_id else None,
        }
        for each in info.directories
    ]
    if arguments.json:
        print_json({"directories": directories, "problems": list(info.problems)})
    else:
        columns = ("path", "state", "cluster_id", "node_id", "directory_id")
        if len(directories) == 1:
            print_facts([(column.replace("_", " "), directories[0][column]) for column in columns])
        else:
            headings = [column.upper().replace("_", " ") for column in columns]
            print_table(headings, [[each[column] for column in columns] for each in directories])
    for problem in info.problems:
        hint(f"problem: {problem}")
    return 1 if info.problems else 0


def _config(path: str) -> Config:
    from strandline.node.config import Config, InvalidConfig

    check_file(path)
    try:
        return Config.load(path)
    except InvalidConfig as error:
        raise CommandFailed(str(error)) from error
