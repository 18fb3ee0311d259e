"""`strandline server FILE.properties`: runs one node in the foreground, with Kafka's config keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.cli.errors import CommandFailed
from strandline.cli.options import parse_pairs
from strandline.cli.preconditions import check_file, reject_windows

if TYPE_CHECKING:
    import argparse


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="a server.properties file with Kafka's configs")
    parser.add_argument(
        "--override", metavar="KEY=VALUE", action="append", default=[], help="override a config of FILE"
    )
    parser.add_argument(
        "--auto-format",
        action="store_true",
        help="format empty directories as a new standalone cluster (throwaway nodes)",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    overrides = parse_pairs(arguments.override, "--override")
    return serve(arguments.file, overrides, auto_format=arguments.auto_format)


def serve(file: str, overrides: dict[str, str] | None = None, *, auto_format: bool = False) -> int:
    reject_windows("server")
    from strandline.runtime.event_loop import disable_garbage_collection

    disable_garbage_collection()
    check_file(file)
    overrides = overrides or {}
    from strandline.node.config import InvalidConfig
    from strandline.node.storage import StorageError

    try:
        if auto_format:
            _format(file, overrides)
        from strandline.node.node import run_node

        return run_node(file, overrides)
    except (InvalidConfig, StorageError) as error:
        raise CommandFailed(str(error)) from error


def _format(file: str, overrides: dict[str, str]) -> None:
    import random
    import time

    from strandline.node.config import Config
    from strandline.node.storage import format_if_empty
    from strandline.runtime.disk import SystemDisk

    config = Config.load(file, overrides)
    try:
        format_if_empty(config, disk=SystemDisk(), random=random.SystemRandom(), wall_ms=time.time_ns() // 1_000_000)
    except OSError as error:
        raise CommandFailed(f"{error.filename or config.log_dirs[0]} cannot be formatted: {error.strerror}") from error
