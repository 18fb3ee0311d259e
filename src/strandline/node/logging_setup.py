"""Logging of a node process: one line per event on standard error, in the layout of Kafka's server.log."""

from __future__ import annotations

import logging
import sys
from typing import TextIO


class _StandardError(logging.StreamHandler[TextIO]):
    """Looks `sys.stderr` up for each line: a program that embeds a node may replace it."""

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
