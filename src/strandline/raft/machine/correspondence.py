"""The requests of this replica that are under way: one per address at a time, and a rest after each failure.

Every state begins with nothing under way: whatever the last one asked is no longer waited for, and its answer, should
it come, is passed over. That keeps late and doubled answers from meaning anything.
"""

from __future__ import annotations

import msgspec

from strandline.model.ids import Endpoint
from strandline.raft.machine.effects import Send
from strandline.raft.machine.settings import QuorumSettings


class _Address(msgspec.Struct):
    awaited: Send | None = None
    expires_ms: int = 0
    rests_until_ms: int | None = None
    failures: int = 0


class Correspondence:
    def __init__(self, settings: QuorumSettings) -> None:
        self._settings = settings
        self._addresses: dict[Endpoint, _Address] = {}

    def is_free(self, endpoint: Endpoint, now_ms: int) -> bool:
        """Whether a request may be sent there now."""
        address = self._addresses.get(endpoint)
        if address is None:
            return True
        return address.awaited is None and (address.rests_until_ms is None or address.rests_until_ms <= now_ms)

    @property
    def is_quiet(self) -> bool:
        """Nothing at all is under way."""
        return all(address.awaited is None for address in self._addresses.values())

    def is_awaited(self, send: Send) -> bool:
        address = self._addresses.get(send.endpoint)
        return address is not None and address.awaited is send

    def sent(self, send: Send, now_ms: int) -> None:
        address = self._addresses.setdefault(send.endpoint, _Address())
        address.awaited = send
        address.expires_ms = now_ms + self._settings.request_timeout_ms
        address.rests_until_ms = None

    def ended(self, send: Send, now_ms: int, *, was_of_use: bool) -> None:
        """After a failure the address rests, twice as long each time: one that stumbled waits little, one that is gone
        costs little."""
        address = self._addresses[send.endpoint]
        if was_of_use:
            del self._addresses[send.endpoint]
            return
        rest_ms = self._settings.retry_backoff_ms << min(address.failures, 16)
        address.awaited = None
        address.rests_until_ms = now_ms + min(rest_ms, self._settings.retry_backoff_max_ms)
        address.failures += 1

    def expired(self, now_ms: int) -> list[Send]:
        """What has waited for an answer too long; also ends the rests that are over."""
        sends: list[Send] = []
        for address in self._addresses.values():
            if address.awaited is not None and address.expires_ms <= now_ms:
                sends.append(address.awaited)
            if address.rests_until_ms is not None and address.rests_until_ms <= now_ms:
                address.rests_until_ms = None
        return sends

    def forget(self) -> None:
        self._addresses.clear()

    @property
    def deadline_ms(self) -> int | None:
        """The next time that somebody may be given up or asked again."""
        times = [address.expires_ms for address in self._addresses.values() if address.awaited is not None]
        times += [address.rests_until_ms for address in self._addresses.values() if address.rests_until_ms is not None]
        return min(times, default=None)
