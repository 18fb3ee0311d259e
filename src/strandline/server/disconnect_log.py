"""Logs why the server closes connections, without letting a hostile peer fill the log.

Of each client address and level the first disconnect in a minute is logged with its reason; the others of that minute
are counted, and the count is logged when the minute has passed. `server/connection` adds disconnects,
`server/processor` calls `report` about once a second. The number of addresses is bounded: those above the bound share
one entry.
"""

from __future__ import annotations

import logging

import msgspec

logger = logging.getLogger(__name__)

INTERVAL_MS = 60_000
MAX_ADDRESSES = 1_000
_OTHER_ADDRESSES = "other addresses"


class _Minute(msgspec.Struct):
    since_ms: int
    more: int = 0


class DisconnectLog:
    def __init__(self) -> None:
        self._minutes: dict[tuple[str, int], _Minute] = {}

    def add(self, level: int, client_host: str, listener: str, reason: str, now_ms: int) -> None:
        if not logger.isEnabledFor(level):
            return
        key = client_host, level
        if key not in self._minutes and len(self._minutes) >= MAX_ADDRESSES:
            key = _OTHER_ADDRESSES, level
        minute = self._minutes.get(key)
        if minute is not None and now_ms - minute.since_ms >= INTERVAL_MS:
            self._report(key, minute)
            minute = None
        if minute is not None:
            minute.more += 1
            return
        self._minutes[key] = _Minute(now_ms)
        logger.log(level, "closing the connection of %s on %s: %s", client_host, listener, reason)

    def report(self, now_ms: int) -> None:
        """Logs the counts of the minutes that have passed."""
        for key, minute in list(self._minutes.items()):
            if now_ms - minute.since_ms >= INTERVAL_MS:
                self._report(key, minute)

    def _report(self, key: tuple[str, int], minute: _Minute) -> None:
        del self._minutes[key]
        if minute.more:
            client_host, level = key
            logger.log(level, "%d more connections of %s were closed within a minute", minute.more, client_host)
