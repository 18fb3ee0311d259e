"""Continuous metadata writes through every broker; acknowledged writes must never be lost."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from types import TracebackType
from typing import Self

from cluster.connection import ConnectionClosed
from cluster.quorum.admin_requests import (
    TOPIC,
    RequestFailed,
    create_topic,
    eventually,
    set_config,
    topics,
    wait_until_replayed_by_all,
)
from cluster.quorum.inventory import inventory

WRITERS = 3
TIMEOUT_MS = 2_000
# Short enough that some write is always in flight, long enough that restarts with all topics stay short.
PAUSE_S = 0.05


@dataclass
class MetadataLoad:
    """Each of a few threads creates topics and sets a config of each. A write that fails or gets no response may or may
    not be committed; an acknowledged write is committed."""

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

    def wait_for_acks(self, count: int = 20, within_s: float = 90.0) -> None:
        """Waits until this many more writes are acknowledged."""
        wanted = len(self.acked) + count
        eventually(lambda: len(self.acked), lambda found: found >= wanted, within_s=within_s)

    def check(self) -> None:
        """Every broker has every acknowledged write."""
        wait_until_replayed_by_all(self.brokers)
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
            # The controller knows an acknowledged topic, so its config can be set through any broker.
            try:
                one, other = random.choices(self.brokers, k=2)
                create_topic(one, name, timeout_ms=TIMEOUT_MS)
                self._acknowledge(name, None)
                value = str(1_000_000 + number)
                set_config(other, TOPIC, name, "retention.bytes", value, timeout_s=TIMEOUT_MS / 1000)
                self._acknowledge(name, value)
            except (OSError, ConnectionClosed, RequestFailed):
                self.unknown += 1
            time.sleep(PAUSE_S)

    def _acknowledge(self, name: str, value: str | None) -> None:
        now = time.monotonic()
        self.longest_gap_s = max(self.longest_gap_s, now - self._last)
        self._last = now
        self.acked[name] = value
