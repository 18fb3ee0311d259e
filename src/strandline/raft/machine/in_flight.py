"""The requests of this replica that are under way: one per address at a time, and a rest after each failure.

What a controller asks about its own vote goes beside the rest: the leader may be long in answering that, and nobody
stops following meanwhile.

Every state begins with nothing under way: whatever the last one asked is no longer waited for, and its answer, should
it come, is passed over. That keeps late and doubled answers from meaning anything.
"""

from __future__ import annotations

from typing import Final

import msgspec

from strandline.model.ids import Endpoint
from strandline.protocol.messages.quorum import AddRaftVoterRequest, RemoveRaftVoterRequest, UpdateRaftVoterRequest
from strandline.raft.machine.effects import Send
from strandline.raft.machine.settings import QuorumSettings

_ABOUT_VOTERS: Final = (AddRaftVoterRequest, RemoveRaftVoterRequest, UpdateRaftVoterRequest)


class _Line(msgspec.Struct):
    awaited: Send | None = None
    expires_ms: int = 0
    rests_until_ms: int | None = None
    failures: int = 0


class InFlightRequests:
    def __init__(self, settings: QuorumSettings) -> None:
        self._settings = settings
        self._lines: dict[tuple[Endpoint, bool], _Line] = {}
        """To each address, by whether it is about voters."""

    def is_free(self, endpoint: Endpoint, now_ms: int, *, about_voters: bool = False) -> bool:
        """Whether a request may be sent there now."""
        line = self._lines.get((endpoint, about_voters))
        if line is None:
            return True
        return line.awaited is None and (line.rests_until_ms is None or line.rests_until_ms <= now_ms)

    @property
    def is_quiet(self) -> bool:
        """Nothing at all is under way but what is about voters."""
        return all(line.awaited is None for (_, about_voters), line in self._lines.items() if not about_voters)

    def is_awaited(self, send: Send) -> bool:
        line = self._lines.get(_line_of(send))
        return line is not None and line.awaited is send

    def sent(self, send: Send, now_ms: int) -> None:
        line = self._lines.setdefault(_line_of(send), _Line())
        line.awaited = send
        line.expires_ms = now_ms + self._settings.request_timeout_ms
        line.rests_until_ms = None

    def ended(self, send: Send, now_ms: int, *, was_of_use: bool) -> None:
        """After a failure the address rests, twice as long each time: one that stumbled waits little, one that is gone
        costs little."""
        line = self._lines[_line_of(send)]
        line.awaited = None
        if not was_of_use:
            line.rests_until_ms = now_ms + self._rest_ms(line.failures)
            line.failures += 1
        elif line.rests_until_ms is None:
            del self._lines[_line_of(send)]
        else:
            line.failures = 0

    def rest(self, endpoint: Endpoint, failures: int, now_ms: int) -> None:
        """What came from there was no failure by itself, but came to nothing; as it did `failures` times before."""
        self._lines.setdefault((endpoint, False), _Line()).rests_until_ms = now_ms + self._rest_ms(failures)

    def expired(self, now_ms: int) -> list[Send]:
        """What has waited for an answer too long; also ends the rests that are over."""
        sends: list[Send] = []
        for line in self._lines.values():
            if line.awaited is not None and line.expires_ms <= now_ms:
                sends.append(line.awaited)
            if line.rests_until_ms is not None and line.rests_until_ms <= now_ms:
                line.rests_until_ms = None
        return sends

    def forget(self) -> None:
        self._lines.clear()

    @property
    def deadline_ms(self) -> int | None:
        """The next time that somebody may be given up or asked again."""
        times = [line.expires_ms for line in self._lines.values() if line.awaited is not None]
        times += [line.rests_until_ms for line in self._lines.values() if line.rests_until_ms is not None]
        return min(times, default=None)

    def _rest_ms(self, failures: int) -> int:
        return min(self._settings.retry_backoff_ms << min(failures, 16), self._settings.retry_backoff_max_ms)


def _line_of(send: Send) -> tuple[Endpoint, bool]:
    return send.endpoint, isinstance(send.request, _ABOUT_VOTERS)
