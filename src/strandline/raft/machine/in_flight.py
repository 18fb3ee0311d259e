"""The requests of this replica that are in flight: one per endpoint at a time, with a backoff after each failure.

Requests about this controller's own voter entry use a slot of their own, beside the other requests to the leader: the
leader may take long to respond to them, and the follower continues to fetch meanwhile.

Every role starts with nothing in flight: a response to a request of an earlier role is ignored, so late and duplicated
responses have no effect.
"""

from __future__ import annotations

from typing import Final

import msgspec

from strandline.model.ids import Endpoint
from strandline.protocol.messages.quorum import AddRaftVoterRequest, RemoveRaftVoterRequest, UpdateRaftVoterRequest
from strandline.raft.machine.effects import Send
from strandline.raft.machine.settings import QuorumSettings

_ABOUT_VOTERS: Final = (AddRaftVoterRequest, RemoveRaftVoterRequest, UpdateRaftVoterRequest)


class _Slot(msgspec.Struct):
    request: Send | None = None
    deadline_ms: int = 0
    backoff_until_ms: int | None = None
    failures: int = 0


class InFlightRequests:
    def __init__(self, settings: QuorumSettings) -> None:
        self._settings = settings
        self._slots: dict[tuple[Endpoint, bool], _Slot] = {}
        """Slots by endpoint, and by whether the request is about voters."""

    def may_send(self, endpoint: Endpoint, now_ms: int, *, about_voters: bool = False) -> bool:
        """Whether the endpoint has no request in flight and no backoff."""
        slot = self._slots.get((endpoint, about_voters))
        if slot is None:
            return True
        return slot.request is None and (slot.backoff_until_ms is None or slot.backoff_until_ms <= now_ms)

    @property
    def is_empty(self) -> bool:
        """Whether no request is in flight, except requests about voters."""
        return all(slot.request is None for (_, about_voters), slot in self._slots.items() if not about_voters)

    def __contains__(self, send: Send) -> bool:
        slot = self._slots.get(_key_of(send))
        return slot is not None and slot.request is send

    def on_sent(self, send: Send, now_ms: int) -> None:
        slot = self._slots.setdefault(_key_of(send), _Slot())
        slot.request = send
        slot.deadline_ms = now_ms + self._settings.request_timeout_ms
        slot.backoff_until_ms = None

    def on_completed(self, send: Send, now_ms: int, *, succeeded: bool) -> None:
        """The backoff doubles with each failure: after one failure the retry is quick, a failed node costs little."""
        slot = self._slots[_key_of(send)]
        slot.request = None
        if not succeeded:
            slot.backoff_until_ms = now_ms + self._backoff_ms(slot.failures)
            slot.failures += 1
        elif slot.backoff_until_ms is None:
            del self._slots[_key_of(send)]
        else:
            slot.failures = 0

    def back_off(self, endpoint: Endpoint, failures: int, now_ms: int) -> None:
        """The response was no failure by itself, but could not be used, as `failures` responses before it."""
        self._slots.setdefault((endpoint, False), _Slot()).backoff_until_ms = now_ms + self._backoff_ms(failures)

    def expired(self, now_ms: int) -> list[Send]:
        """The requests that have timed out. Backoffs that are over are removed."""
        sends: list[Send] = []
        for slot in self._slots.values():
            if slot.request is not None and slot.deadline_ms <= now_ms:
                sends.append(slot.request)
            if slot.backoff_until_ms is not None and slot.backoff_until_ms <= now_ms:
                slot.backoff_until_ms = None
        return sends

    def clear(self) -> None:
        self._slots.clear()

    @property
    def deadline_ms(self) -> int | None:
        """The time at which the next request times out or the next backoff ends."""
        times = [slot.deadline_ms for slot in self._slots.values() if slot.request is not None]
        times += [slot.backoff_until_ms for slot in self._slots.values() if slot.backoff_until_ms is not None]
        return min(times, default=None)

    def _backoff_ms(self, failures: int) -> int:
        return min(self._settings.retry_backoff_ms << min(failures, 16), self._settings.retry_backoff_max_ms)


def _key_of(send: Send) -> tuple[Endpoint, bool]:
    return send.endpoint, isinstance(send.request, _ABOUT_VOTERS)
