"""`strandline feature`: describes, upgrades and downgrades the feature levels of the cluster."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from strandline.cli.errors import UsageError
from strandline.cli.options import add_client_options, add_json_option, parse_pairs
from strandline.cli.output import print_json, print_table
from strandline.cli.with_client import with_client

if TYPE_CHECKING:
    from strandline.client.admin.features import Feature, UpgradeType
    from strandline.client.client import Client

METADATA_VERSION = "metadata.version"
LEVELS = """\
A level is a number; for metadata.version also a release, such as 4.3 or 4.3-IV0.

examples:
  strandline feature describe
  strandline feature upgrade metadata.version=4.3
  strandline feature downgrade metadata.version=4.2-IV1 --dry-run    (prints why, if it is not possible)
  strandline feature disable eligible.leader.replicas.version
"""


def configure(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    style = argparse.RawDescriptionHelpFormatter

    describe = verbs.add_parser("describe", help="show supported and finalized levels", allow_abbrev=False)
    describe.set_defaults(run=run_describe)

    upgrade = verbs.add_parser(
        "upgrade", help="raise feature levels", epilog=LEVELS, formatter_class=style, allow_abbrev=False
    )
    upgrade.add_argument("levels", metavar="NAME=LEVEL", nargs="*")
    upgrade.add_argument("-r", "--release-version", metavar="RELEASE", help="the metadata.version of this release")
    upgrade.set_defaults(run=run_upgrade)

    downgrade = verbs.add_parser(
        "downgrade", help="lower feature levels", epilog=LEVELS, formatter_class=style, allow_abbrev=False
    )
    downgrade.add_argument("levels", metavar="NAME=LEVEL", nargs="*")
    downgrade.add_argument("-r", "--release-version", metavar="RELEASE", help="the metadata.version of this release")
    downgrade.set_defaults(run=run_downgrade)

    disable = verbs.add_parser(
        "disable", help="set feature levels to 0", epilog=LEVELS, formatter_class=style, allow_abbrev=False
    )
    disable.add_argument("names", metavar="NAME", nargs="+")
    disable.set_defaults(run=run_disable)

    for verb in (downgrade, disable):
        verb.add_argument(
            "--unsafe",
            action="store_true",
            help="even if metadata would be lost (controllers reject that, Kafka's too)",
        )
    for verb in (upgrade, downgrade, disable):
        verb.add_argument("--dry-run", action="store_true", help="only check whether the change would be accepted")
    for verb in (describe, upgrade, downgrade, disable):
        add_client_options(verb)
        add_json_option(verb)


def run_describe(arguments: argparse.Namespace) -> int:
    async def work(client: Client) -> list[Feature]:
        return await client.features.describe()

    features = with_client(arguments, work, "describing features")
    if arguments.json:
        print_json(
            [
                {
                    "name": each.name,
                    "level": each.finalized,
                    "supported": list(each.supported or ()),
                    **({"release": _release(each.finalized)} if each.name == METADATA_VERSION else {}),
                }
                for each in features
            ]
        )
        return 0
    print_table(
        ("FEATURE", "LEVEL", "SUPPORTED"),
        [
            (
                each.name,
                _level_name(each.name, each.finalized),
                None if each.supported is None else "-".join(_level_name(each.name, at) for at in each.supported),
            )
            for each in features
        ],
    )
    return 0


def _level_name(feature: str, level: int) -> str:
    if feature != METADATA_VERSION:
        return str(level)
    return f"{level} ({_release(level)})"


def _release(level: int) -> str:
    from strandline.node.metadata_versions import release_of

    return release_of(level)


def parse_levels(words: list[str], release: str | None) -> dict[str, int]:
    pairs = parse_pairs(words, "feature")
    if release is not None:
        pairs[METADATA_VERSION] = release
    if not pairs:
        raise UsageError("give NAME=LEVEL; `strandline feature describe` lists the features")
    return {name: _level(name, text) for name, text in pairs.items()}


def _level(name: str, text: str) -> int:
    if text.isdigit():
        return int(text)
    if name != METADATA_VERSION:
        raise UsageError(f"{name}={text}: a level is a number")
    from strandline.node.metadata_versions import metadata_version_of

    try:
        return metadata_version_of(text)
    except ValueError as error:
        raise UsageError(f"{name}: {error}") from error


def run_upgrade(arguments: argparse.Namespace) -> int:
    from strandline.client.admin.features import UpgradeType

    return _update(arguments, parse_levels(arguments.levels, arguments.release_version), UpgradeType.UPGRADE)


def run_downgrade(arguments: argparse.Namespace) -> int:
    return _update(arguments, parse_levels(arguments.levels, arguments.release_version), _downgrade(arguments))


def run_disable(arguments: argparse.Namespace) -> int:
    return _update(arguments, dict.fromkeys(arguments.names, 0), _downgrade(arguments))


def _downgrade(arguments: argparse.Namespace) -> UpgradeType:
    from strandline.client.admin.features import UpgradeType

    return UpgradeType.UNSAFE_DOWNGRADE if arguments.unsafe else UpgradeType.SAFE_DOWNGRADE


def _update(arguments: argparse.Namespace, levels: dict[str, int], how: UpgradeType) -> int:
    async def work(client: Client) -> None:
        await client.features.update(levels, how, validate_only=arguments.dry_run)

    with_client(arguments, work, f"changing {', '.join(levels)}")
    if arguments.json:
        print_json({"levels": levels, "applied": not arguments.dry_run})
    else:
        status = "would be accepted" if arguments.dry_run else "ok"
        print_table(("FEATURE", "LEVEL", "STATUS"), [(name, level, status) for name, level in levels.items()])
    return 0
