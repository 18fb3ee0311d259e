"""Which names a topic may have. They become directory names, so this is also what keeps them inside the log directory."""

from __future__ import annotations

import re
from typing import Final

MAX_NAME_LENGTH: Final = 249
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")


def topic_name_problem(name: str) -> str | None:
    """What is wrong with a topic's name, or None."""
    if not name:
        return "a topic's name may not be empty"
    if name in (".", ".."):
        return f"a topic may not be named {name!r}"
    if len(name) > MAX_NAME_LENGTH:
        return f"a topic's name may have {MAX_NAME_LENGTH} characters, not {len(name)}"
    if not _LEGAL.fullmatch(name):
        return f"topic name {name!r} is illegal: only ASCII letters, digits, '.', '_' and '-' are allowed"
    return None


def collision_key(name: str) -> str:
    """Names that differ only in '.' and '_' would collide in metric names."""
    return name.replace(".", "_")
