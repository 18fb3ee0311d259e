"""The release names of metadata.version levels: accepted by `--release-version` and printed in reports."""

from __future__ import annotations

import re
from typing import Final

# The increments of each release, in order; the first is level 7, each next one a level higher.
_INCREMENTS: Final = {
    "3.3": (3,),
    "3.4": (0,),
    "3.5": (0, 1, 2),
    "3.6": (0, 1, 2),
    "3.7": (0, 1, 2, 3, 4),
    "3.8": (0,),
    "3.9": (0,),
    "4.0": (0, 1, 2, 3),
    "4.1": (0, 1),
    "4.2": (0, 1),
    "4.3": (0,),
}
_OLDEST_LEVEL: Final = 7
_NAMES: Final = tuple(f"{release}-IV{number}" for release, numbers in _INCREMENTS.items() for number in numbers)
_LEVELS: Final = {name: _OLDEST_LEVEL + index for index, name in enumerate(_NAMES)}
_RELEASE: Final = re.compile(r"([0-9]+\.[0-9]+)(?:\.[0-9]+)*")

LATEST_RELEASE: Final = _NAMES[-1]


def metadata_version_of(release: str) -> int:
    """The level of a release: `4.3-IV0` exactly, or `4.3` and `4.3.1` for the last level of that release."""
    if release in _LEVELS:
        return _LEVELS[release]
    match = _RELEASE.fullmatch(release)
    levels = [level for name, level in _LEVELS.items() if match and name.startswith(match[1] + "-")]
    if not levels:
        raise ValueError(f"{release!r} is not a known release; known are {', '.join(_NAMES)}")
    return levels[-1]


def release_of(metadata_version: int) -> str:
    index = metadata_version - _OLDEST_LEVEL
    return _NAMES[index] if 0 <= index < len(_NAMES) else f"level {metadata_version}"
