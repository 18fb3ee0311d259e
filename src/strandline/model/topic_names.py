"""Which topic names are legal. A name is part of paths on disk and of command lines."""

from __future__ import annotations

import re
from typing import Final

from strandline.model.errors import ErrorCode, KafkaError

_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def check_topic_name(name: str) -> None:
    """Raises INVALID_TOPIC_EXCEPTION unless the name is legal."""
    if name in (".", ".."):
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "a topic may not be named '.' or '..'")
    if not _LEGAL.fullmatch(name):
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            "A topic name has 1 to 249 characters, each an ASCII letter, a digit, '.', '_' or '-'.",
        )
