"""The failure detector, by transcripts: a file in `scenarios/` says what happens when, and the effects.

    broker ID@EPOCH LISTENERS in DIRECTORIES     a registered broker
    MS input ID@EPOCH …                          an input of the machine
        effect                                   what it returns; `next deadline MS` is when it wants to be called

`tests/transcripts.py` reads and compares them.
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


class DetectorScenario:
    def __init__(self, *, enabled: bool) -> None:
        self.image = Image()
        self.detector = FailureDetector(self.image.latest, ControllerSettings(100, "c", failure_detection=enabled))

    def run(self, line: str) -> Iterator[str]:
        first, *words = line.split()
        if first == "broker":
            self.register(words)
            return
        effects = self.step(int(first), words)
        yield from map(described, effects)
        deadline_ms = self.detector.next_deadline_ms()
        if deadline_ms is not None:
            yield f"next deadline {deadline_ms}"

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
        verb, detector = words[0], self.detector
        if verb == "time":
            return detector.on_time(now_ms)
        if verb == "activated":
            predecessor = self.broker(100) if "with-predecessor" in words else None
            return detector.on_activated(100, predecessor, now_ms)
        broker_id, epoch = map(int, words[1].split("@"))
        if verb == "lost":
            return detector.on_connection_lost(broker_id, epoch, now_ms)
        if verb in ("refused", "accepted"):
            return detector.on_probed(broker_id, epoch, verb == "refused", now_ms)
        if verb == "heartbeat":
            return detector.on_heartbeat(broker_id, epoch, now_ms)
        if verb == "registration":
            found = detector.on_registration_rejected(broker_id, directories(words[4]), endpoints(words[2]), now_ms)
            return found or ["rejected as a duplicate"]
        assert verb == "decision", verb
        return [self.fence(broker_id, epoch)]

    def fence(self, broker_id: int, epoch: int) -> str:
        """The decision that fences the broker."""
        if not self.detector.has_failed(broker_id, epoch):
            return "not fenced"
        self.detector.on_fenced(broker_id, epoch)
        self.write(BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=epoch, fenced=1))
        return "fenced"


def directories(words: str) -> list[Uuid]:
    return [Uuid.of(7, 1000 + int(word.removeprefix("d"))) for word in words.split(",")]


def endpoints(words: str) -> list[Endpoint]:
    return [Endpoint(host, int(port)) for host, port in (word.split(":") for word in words.split(","))]


def described(effect: Effect | str) -> str:
    if isinstance(effect, str):
        return effect
    broker = f"{effect.broker_id}@{effect.broker_epoch}"
    if isinstance(effect, Probe):
        return f"probe {broker} {' '.join(map(str, effect.endpoints))}"
    return f"fence {broker}: {effect.why}"


@pytest.mark.parametrize("path", sorted(HERE.glob("failure-*.txt")), ids=lambda path: path.stem)
def test_the_failure_detector_follows_its_transcript(path: Path, rewrite: bool) -> None:
    written = path.read_text()
    scenario = DetectorScenario(enabled="detection is off" not in written)
    transcripts.check(path, transcripts.replay(written, scenario.run), rewrite=rewrite)


def test_there_are_transcripts() -> None:
    assert len(list(HERE.glob("failure-*.txt"))) >= 12
