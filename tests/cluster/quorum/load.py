"""Metadata writes without end through every broker, and what was acknowledged: none of that may ever be missing."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from types import TracebackType
from typing import Self

from cluster.handlers.talk import Closed
from cluster.quorum.asking import TOPIC, Refused, create_topic, eventually, heard_by_all, set_config, topics
from cluster.quorum.inventory import inventory

WRITERS = 3
PATIENCE_MS = 2_000
# Enough to be always in the midst of a write, and few enough topics that restarts stay short.
PAUSE_S = 0.05


@dataclass
class MetadataLoad:
    """Makes topics and gives each a setting, one after the other in each of a few threads. A write that is refused or
    gets no answer may or may not have happened; one that is acknowledged has."""

    brokers: Sequence[str]
    prefix: str
    acked: dict[str, str | None] = field(default_factory=dict)
    """By topic: the value of retention.bytes, or None while only the topic itself is acknowledged."""
    unknown: int = 0
    longest_gap_s: float = 0.0
    _last: float = 0.0
    _numbers: itertools.count[int] = field(default_factory=itertools.count)
    _ending: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def __enter__(self) -> Self:
        self._last = time.monotonic()
        self._threads = [threading.Thread(target=self._write, args=(index,)) for index in range(WRITERS)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join()

    def wait_until_in_flow(self, count: int = 20, within_s: float = 90.0) -> None:
        """Until so many more writes are acknowledged."""
        wanted = len(self.acked) + count
        eventually(lambda: len(self.acked), lambda found: found >= wanted, within_s=within_s)

    def check(self) -> None:
        """Every broker has everything that was acknowledged."""
        heard_by_all(self.brokers)
        for broker in self.brokers:
            assert self._missing(broker) == []
        found = eventually(lambda: inventory(*self.brokers))["configs"]
        for name, value in self.acked.items():
            if value is not None:
                assert found[f"{TOPIC} {name}"]["retention.bytes"] == value, name

    def _missing(self, broker: str) -> list[str]:
        known = topics(broker)
        return [name for name in self.acked if name not in known]

    def _write(self, seed: int) -> None:
        random = Random(seed)
        while not self._ending.is_set():
            number = next(self._numbers)
            name = f"{self.prefix}-{number}"
            # A new topic is known to the controller when it is acknowledged; its setting may go through any broker.
            try:
                one, other = random.choices(self.brokers, k=2)
                create_topic(one, name, timeout_ms=PATIENCE_MS)
                self._note(name, None)
                value = str(1_000_000 + number)
                set_config(other, TOPIC, name, "retention.bytes", value, timeout_s=PATIENCE_MS / 1000)
                self._note(name, value)
            except (OSError, Closed, Refused):
                self.unknown += 1
            time.sleep(PAUSE_S)

    def _note(self, name: str, value: str | None) -> None:
        now = time.monotonic()
        self.longest_gap_s = max(self.longest_gap_s, now - self._last)
        self._last = now
        self.acked[name] = value
