"""Power losses of a whole node: a sample. All: `PYTHONPATH=src:tests python -m simulation.power_loss --all`."""

from __future__ import annotations

import asyncio
from functools import lru_cache
from random import Random

import pytest

from simulation.power_loss.log_check import BrokenPromise
from simulation.power_loss.node_check import NodeRecording
from simulation.power_loss.search import chosen_operations, search
from strandline.client.client import Client
from strandline.client.settings import ProducerSettings
from strandline.model.errors import ErrorCode, KafkaError, NodeFault
from strandline.model.ids import TopicPartition
from strandline.runtime.world import World
from strandline.simulation.disk import SimDisk
from strandline.simulation.nodes import PORT, format_node, node_config, node_program
from strandline.simulation.volume import UnsyncedChanges, Volume
from strandline.simulation.world import Simulation

MODES = ["flush", "replicated"]


@lru_cache(maxsize=2)
def recorded(mode: str) -> NodeRecording:
    return NodeRecording(1, mode, 1000)


@pytest.mark.parametrize("mode", MODES)
def test_a_node_keeps_its_promises_wherever_power_is_lost(mode: str) -> None:
    recording = recorded(mode)
    operations = chosen_operations(recording, 25, Random(f"sample of {mode}"))
    broken = [str(finding) for finding in search(recording, operations, variants=1) if finding is not None]
    assert broken == []


@pytest.mark.parametrize("mode", MODES)
def test_the_workload_has_operations_of_every_kind(mode: str) -> None:
    history = recorded(mode).workload.history
    doing = {change.doing for changes in history.topics.values() for change in changes}
    assert doing == {"create", "delete", "grow", "configure"}
    assert any(sent.idempotent for sent in history.sent)
    assert any(not sent.idempotent for sent in history.sent)
    assert len(history.deletions) > 5
    assert len(history.producer_ids) > 3
    assert len(recorded(mode).journal.operations) > 2000


def test_the_check_detects_missing_syncs_of_records() -> None:
    recording = NodeRecording(2, "flush", 200)
    operations = recording.journal.operations
    operations[:] = [each for each in operations if not (each.kind == "sync" and each.path.startswith("/data/w"))]
    volume = Volume()
    for _ in recording.journal.replay(volume):
        pass
    with pytest.raises(BrokenPromise):
        recording.check(volume.after_power_loss(Random(1), UnsyncedChanges.LOST), 1 << 40, Random(1))


def test_the_check_detects_missing_syncs_of_metadata() -> None:
    recording = NodeRecording(2, "replicated", 200)
    operations = recording.journal.operations
    formatted_at = recording.workload.history.formatted_at
    kept = [
        each
        for number, each in enumerate(operations)
        if number < formatted_at or not (each.kind == "sync" and "__cluster_metadata" in each.path)
    ]
    operations[:] = kept
    volume = Volume()
    for _ in recording.journal.replay(volume):
        pass
    with pytest.raises((BrokenPromise, NodeFault)):
        recording.check(volume.after_power_loss(Random(1), UnsyncedChanges.LOST), 1 << 40, Random(1))


@pytest.mark.parametrize("seed", range(6))
def test_a_node_survives_repeated_power_losses_while_its_clients_go_on(seed: int) -> None:
    """Not replayed from a journal: the node loses power at a drawn operation and restarts under the same clients."""
    config = node_config("node1", overrides={"log.flush.interval.messages": "1"})
    sent: list[bytes] = []

    async def write(world: World) -> None:
        async with (
            Client(world, f"node1:{PORT}") as client,
            client.producer(ProducerSettings(linger_ms=0)) as producer,
        ):
            try:
                await client.topics.create("orders", partitions=1, replication_factor=1)
            except KafkaError as error:
                # The power was lost after the topic was created and before the response: the client retried.
                assert error.code is ErrorCode.TOPIC_ALREADY_EXISTS
            for number in range(150):
                value = str(number).encode()
                await (await producer.send("orders", value, partition=0))
                sent.append(value)

    async def read(world: World) -> list[bytes]:
        values: list[bytes] = []
        async with Client(world, f"node1:{PORT}") as client, client.fetcher() as fetcher:
            fetcher.assign(TopicPartition("orders", 0), 0)
            while len(values) < len(sent):
                for fetched in await fetcher.poll(5_000):
                    values.extend(record.value or b"" for record in fetched.records())
        return values

    with Simulation(seed) as simulation:
        machine = simulation.machine("node1")
        format_node(config, SimDisk(machine.volume), simulation.random("format"))
        draws = simulation.random("losses")

        async def boots() -> None:
            for _ in range(6):
                machine.boot(node_program(config, asyncio.Event()))
                await asyncio.sleep(0)
                machine.disk.lose_power_at = draws.randint(1, 120)
                process = machine.process
                while process is not None and process.alive and len(sent) < 150:
                    await asyncio.sleep(0.05)
                if len(sent) >= 150:
                    machine.disk.lose_power_at = None
                    return
            machine.boot(node_program(config, asyncio.Event()))

        async def scenario() -> None:
            booting = asyncio.ensure_future(boots())
            await simulation.machine("writer").boot(write)
            await booting
            assert await simulation.machine("reader").boot(read) == sent
            assert machine.boots > 1

        simulation.run(scenario(), max_virtual_s=1_000)
