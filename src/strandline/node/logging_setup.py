"""What a node says while it runs: one line per event on standard error, the way Kafka's readers know it."""

from __future__ import annotations

import logging
import sys
from typing import TextIO


class _StandardError(logging.StreamHandler[TextIO]):
    """Whatever standard error is at the moment, which a program that embeds a node may change."""

    @property
    def stream(self) -> TextIO:
        return sys.stderr

    @stream.setter
    def stream(self, stream: TextIO) -> None:
        pass


def configure_logging(level: str = "INFO") -> None:
    handler = _StandardError()
    handler.setFormatter(logging.Formatter("[%(asctime)s] %(levelname)s %(message)s (%(name)s)", "%Y-%m-%d %H:%M:%S"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    logging.getLogger("asyncio").setLevel("WARNING")
