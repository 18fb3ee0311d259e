"""Splitting the input into records, and the errors for records that are too large."""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from strandline.cli import produce
from strandline.cli.errors import CommandFailed
from strandline.cli.produce import _explain_error, _lines, _ProduceRun
from strandline.cli.with_client import explain_error
from strandline.client.client import Client
from strandline.client.errors import RecordTooLarge
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import TopicPartition
from strandline.runtime.world import World
from strandline.simulation.world import Simulation
from unit.client.fake_broker import PORT, FakeBroker


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", []),
        (b"a", [b"a"]),
        (b"a\n", [b"a"]),
        (b"\n", [b""]),
        (b"a\r\nb\r\n\r\n", [b"a", b"b", b""]),
        (b"a line of many chunks\nand\nanother one", [b"a line of many chunks", b"and", b"another one"]),
    ],
)
@pytest.mark.parametrize("chunk_bytes", [1, 3, 1_000])
def test_lines_are_split_independently_of_chunk_borders(
    content: bytes, expected: list[bytes], chunk_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(produce, "CHUNK_BYTES", chunk_bytes)
    (tmp_path / "input").write_bytes(content)

    async def gathered(source: int) -> list[bytes]:
        return [line async for lines in _lines(source) for line in lines]

    source = os.open(tmp_path / "input", os.O_RDONLY)
    try:
        assert asyncio.run(gathered(source)) == expected
    finally:
        os.close(source)


def produced(monkeypatch: pytest.MonkeyPatch, broker: FakeBroker, *lines: bytes) -> None:
    async def given(_source: int) -> AsyncIterator[list[bytes]]:
        yield list(lines)

    monkeypatch.setattr(produce, "_lines", given)
    options = argparse.Namespace(
        topic="t", key=None, partition=None, tombstone=False, acks="all", compression="none", quiet=True, json=False
    )

    async def program(world: World) -> None:
        async with Client(world, f"broker:{PORT}") as client:
            await _ProduceRun(options, [], 0).run(client)

    with Simulation(1) as simulation:
        simulation.machine("broker").boot(broker.run)
        simulation.run(simulation.machine("client").boot(program), max_virtual_s=60)


def test_the_broker_limits_the_size_of_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = FakeBroker("broker", {"t": 1})
    produced(monkeypatch, broker, b"x" * 2_000_000)
    assert [len(record.value or b"") for record in broker.records(TopicPartition("t", 0))] == [2_000_000]
    broker.faults.append(ErrorCode.MESSAGE_TOO_LARGE)
    with pytest.raises(KafkaError, match="MESSAGE_TOO_LARGE") as refused:
        produced(monkeypatch, broker, b"y" * 2_000_000)
    assert "raise max.message.bytes of the topic" in str(explain_error(refused.value, "-"))


def test_a_record_larger_than_any_request_is_not_attributed_to_the_topic() -> None:
    error = _explain_error(RecordTooLarge(200_000_000, 100_000_000), "t")
    assert isinstance(error, CommandFailed)
    assert "split it into several records" in str(error) and "max" not in str(error)
