"""Resolving offset ranges to offsets of a partition, and printing records."""

from __future__ import annotations

import argparse
import io
import json
import sys

import pytest

from strandline.cli.consume import PartitionRange, _ConsumeRun, _resolved
from strandline.cli.errors import CommandFailed
from strandline.cli.offset_range import parse_offsets
from strandline.cli.record_printer import make_printer
from strandline.client.client import Client
from strandline.model.errors import ErrorCode
from strandline.model.ids import TopicPartition
from strandline.runtime.world import World
from strandline.simulation.world import Simulation
from unit.client.fake_broker import PORT, FakeBroker

PARTITION = TopicPartition("t", 0)


def arguments(**given: object) -> argparse.Namespace:
    options = {
        "topic": "t",
        "num": None,
        "format": "json",
        "json": False,
        "meta_only": False,
        "read_committed": False,
        "print_control_records": False,
    }
    return argparse.Namespace(**{**options, **given})


async def filled(client: Client) -> None:
    async with client.producer() as producer:
        for number in range(10):
            await producer.send("t", b"%d" % number, key=b"k", headers=[("h", b"x")], timestamp_ms=number)


RANGES = {
    "start": PartitionRange(0, 0, None),
    "end": PartitionRange(10, 10, None),
    ":end": PartitionRange(0, 0, 10),
    "+3": PartitionRange(3, 3, None),
    "+30": PartitionRange(10, 10, None),
    "-4": PartitionRange(6, 6, None),
    "-40": PartitionRange(0, 0, None),
    "5": PartitionRange(5, 5, None),
    "50": PartitionRange(10, 50, None),  # beyond the end: waits at the end and prints nothing before 50
    "2:6": PartitionRange(2, 2, 6),
    "2:60": PartitionRange(2, 2, 10),
    "-4:-2": PartitionRange(6, 6, 8),
    "50:60": PartitionRange(10, 50, 10),
}


@pytest.mark.parametrize("text", RANGES)
def test_offset_specs_are_resolved_to_offsets(text: str) -> None:
    async def program(world: World) -> dict[TopicPartition, PartitionRange]:
        async with Client(world, f"broker:{PORT}") as client:
            await filled(client)
            return await _resolved(client, [PARTITION], parse_offsets(text, 0), read_committed=False)

    with Simulation(1) as simulation:
        simulation.machine("broker").boot(FakeBroker("broker", {"t": 1}).run)
        ranges = simulation.run(simulation.machine("client").boot(program))
    assert ranges == {PARTITION: RANGES[text]}


@pytest.mark.parametrize(
    ("range_", "empty"),
    [
        (PartitionRange(0, 0, None), False),
        (PartitionRange(3, 3, 3), True),
        (PartitionRange(10, 50, 10), True),
        (PartitionRange(2, 2, 3), False),
    ],
)
def test_an_empty_range_is_not_consumed(range_: PartitionRange, empty: bool) -> None:
    assert range_.is_empty is empty


def consumed(monkeypatch: pytest.MonkeyPatch, offsets: str, broker: FakeBroker | None = None, **given: object) -> str:
    options = arguments(**given)

    async def program(world: World) -> None:
        async with Client(world, f"broker:{PORT}") as client:
            await filled(client)
            await _ConsumeRun(options, parse_offsets(offsets, 0), None, make_printer(options)).run(client)

    screen = io.TextIOWrapper(io.BytesIO())
    monkeypatch.setattr(sys, "stdout", screen)
    with Simulation(1) as simulation:
        simulation.machine("broker").boot((broker or FakeBroker("broker", {"t": 1})).run)
        simulation.run(simulation.machine("client").boot(program), max_virtual_s=60)
    screen.seek(0)
    return screen.read()


def test_consuming_stops_at_the_end_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    assert consumed(monkeypatch, "2:5", format="%o=%v ") == "2=2 3=3 4=4 "
    assert consumed(monkeypatch, "-2:end", format="%k%v%h{%k%v}\\n") == "k8hx\nk9hx\n"


@pytest.mark.parametrize("code", [ErrorCode.CORRUPT_MESSAGE, ErrorCode.KAFKA_STORAGE_ERROR])
def test_a_damaged_batch_stops_consuming_with_its_offset_and_advice(
    monkeypatch: pytest.MonkeyPatch, code: ErrorCode
) -> None:
    broker = FakeBroker("broker", {"t": 1})
    broker.damage[PARTITION] = (10, code)
    with pytest.raises(CommandFailed, match=f"t-0 from offset 10: the broker .*{code.name}.*-o with a later offset"):
        consumed(monkeypatch, "start", broker, format="%v ")


def test_consuming_stops_after_the_number_of_records(monkeypatch: pytest.MonkeyPatch) -> None:
    assert consumed(monkeypatch, "start", format="%v ", num=3) == "0 1 2 "


def test_records_are_json_unless_a_format_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = consumed(monkeypatch, "9:end").splitlines()
    assert [json.loads(line) for line in lines] == [
        {
            "topic": "t",
            "key": "k",
            "value": "9",
            "headers": [{"key": "h", "value": "x"}],
            "timestamp": 9,
            "partition": 0,
            "offset": 9,
        }
    ]
    assert '"value_size":1' in consumed(monkeypatch, "9:end", meta_only=True)
