"""Who is dead? Each file in `scenarios/` is a story: what happens at which millisecond, and what is done about it.

    broker ID@EPOCH LISTENERS in DIRECTORIES     a broker that is registered
    MS verb ID@EPOCH …                           an input of the machine

Output is what the machine wants done; `look again at MS` is its next deadline. `transcripts.py` explains the format.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import transcripts
from strandline.controller.failure_detector import Effect, FailureDetector, Probe
from strandline.controller.settings import ControllerSettings
from strandline.metadata.image import Image
from strandline.metadata.values import BrokerInfo
from strandline.model.ids import Endpoint, Uuid
from strandline.protocol.messages.metadata_records import (
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
)
from strandline.protocol.types import Message

HERE = Path(__file__).parent / "scenarios"


class Story:
    def __init__(self, *, enabled: bool) -> None:
        self.image = Image()
        self.deaths = FailureDetector(self.image.latest, ControllerSettings(100, "c", failure_detection=enabled))

    def tell(self, line: str) -> Iterator[str]:
        first, *words = line.split()
        if first == "broker":
            self.register(words)
            return
        effects = self.step(int(first), words)
        yield from map(described, effects)
        deadline_ms = self.deaths.next_deadline_ms()
        if deadline_ms is not None:
            yield f"look again at {deadline_ms}"

    def register(self, words: list[str]) -> None:
        """broker 1@10 a:1,b:2 in d1,d2 [fenced]"""
        broker_id, epoch = map(int, words[0].split("@"))
        self.write(
            RegisterBrokerRecord(
                broker_id=broker_id,
                broker_epoch=epoch,
                rack=None,
                fenced="fenced" in words,
                log_dirs=directories(words[3]),
                end_points=[
                    BrokerEndpoint(name=f"L{index}", host=each.host, port=each.port)
                    for index, each in enumerate(endpoints(words[1]))
                ],
            )
        )

    def write(self, *records: Message) -> None:
        self.image.replay_batch(self.image.end_offset, records)
        self.image.commit(self.image.end_offset)

    def broker(self, broker_id: int) -> BrokerInfo:
        broker = self.image.latest.broker(broker_id)
        assert broker is not None
        return broker

    def step(self, now_ms: int, words: list[str]) -> list[Effect] | list[str]:
        verb, deaths = words[0], self.deaths
        if verb == "time":
            return deaths.on_time(now_ms)
        if verb == "activated":
            predecessor = self.broker(100) if "after-its-predecessor" in words else None
            return deaths.on_activated(100, predecessor, now_ms)
        broker_id, epoch = map(int, words[1].split("@"))
        if verb == "lost":
            return deaths.on_connection_lost(broker_id, epoch, now_ms)
        if verb in ("refused", "answered"):
            return deaths.on_dialled(broker_id, epoch, verb == "refused", now_ms)
        if verb == "heard":
            return deaths.on_heartbeat(broker_id, epoch, now_ms)
        if verb == "newcomer":
            found = deaths.on_registration_refused(broker_id, directories(words[4]), endpoints(words[2]), now_ms)
            return found or ["refused as a duplicate"]
        assert verb == "turn", verb
        return [self.turn(broker_id, epoch)]

    def turn(self, broker_id: int, epoch: int) -> str:
        """The event that fences has its turn."""
        if not self.deaths.is_dead(broker_id, epoch):
            return "not fenced"
        self.deaths.on_fenced(broker_id, epoch)
        self.write(BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=epoch, fenced=1))
        return "fenced"


def directories(words: str) -> list[Uuid]:
    return [Uuid.of(7, 1000 + int(word.removeprefix("d"))) for word in words.split(",")]


def endpoints(words: str) -> list[Endpoint]:
    return [Endpoint(host, int(port)) for host, port in (word.split(":") for word in words.split(","))]


def described(effect: Effect | str) -> str:
    if isinstance(effect, str):
        return effect
    who = f"{effect.broker_id}@{effect.broker_epoch}"
    if isinstance(effect, Probe):
        return f"dial {who} {' '.join(map(str, effect.endpoints))}"
    return f"fence {who}: {effect.why}"


@pytest.mark.parametrize("path", sorted(HERE.glob("death-*.txt")), ids=lambda path: path.stem)
def test_a_transcript_says_what_happens(path: Path, rewrite: bool) -> None:
    written = path.read_text()
    story = Story(enabled="detection is off" not in written)
    transcripts.check(path, transcripts.replay(written, story.tell), rewrite=rewrite)


def test_there_are_stories() -> None:
    assert len(list(HERE.glob("death-*.txt"))) >= 12
