"""Group members of our own client with unmodified nodes, on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import pytest

from strandline.client.admin.committed_offsets import CommittedOffset
from strandline.client.client import Client
from strandline.client.consumer import GroupConsumer
from strandline.client.settings import GroupSettings
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import TopicPartition
from strandline.runtime.world import World
from strandline.simulation.disk import SimDisk
from strandline.simulation.nodes import PORT, format_node, node_config, node_program
from strandline.simulation.world import Machine, Simulation

T = TypeVar("T")
COOPERATIVE = GroupSettings(assignors=("cooperative-sticky",), offset_reset="earliest", session_timeout_ms=10_000)
EAGER = GroupSettings(offset_reset="earliest", session_timeout_ms=10_000)
CONSUMER = GroupSettings(protocol="consumer", offset_reset="earliest")
SETTINGS = {"offsets.topic.num.partitions": "2", "group.initial.rebalance.delay.ms": "100"}


def play(scenario: Callable[[Client, Machine], Awaitable[T]], *, max_virtual_s: int = 600) -> T:
    """One node, and the scenario with a client on another machine."""
    config = node_config("broker", overrides=SETTINGS)

    with Simulation(seed=1) as simulation:
        machine = simulation.machine("broker")
        format_node(config, SimDisk(machine.volume), simulation.random("format"))
        machine.boot(node_program(config, asyncio.Event()))

        async def program(world: World) -> T:
            async with Client(world, f"broker:{PORT}") as client:
                return await scenario(client, machine)

        return simulation.run(simulation.machine("client").boot(program), max_virtual_s=max_virtual_s)


async def fill(client: Client, partitions: int = 4, records: int = 40) -> None:
    await client.topics.create("t", partitions=partitions)
    async with client.producer() as producer:
        for number in range(records):
            await producer.send("t", b"%d" % number, partition=number % partitions)


async def read(consumer: GroupConsumer, found: list[int], until: Callable[[], bool]) -> None:
    while not until():
        for fetched in await consumer.poll(200):
            found += [int(record.value or b"") for record in fetched.records()]


@pytest.mark.parametrize("settings", [EAGER, COOPERATIVE, CONSUMER], ids=["eager", "cooperative", "consumer"])
def test_two_members_share_the_partitions_and_read_every_record_once(settings: GroupSettings) -> None:
    async def scenario(client: Client, machine: Machine) -> tuple[list[int], set[TopicPartition]]:
        await fill(client)
        found: list[int] = []
        async with client.consumer("g", ["t"], settings) as first:
            await read(first, found, lambda: len(first.assignment) == 4)
            async with client.consumer("g", ["t"], settings) as second:
                balanced = lambda: len(first.assignment) == len(second.assignment) == 2  # noqa: E731
                await asyncio.gather(read(first, found, balanced), read(second, found, balanced))
                assigned = {*first.assignment, *second.assignment}
                done = lambda: len(found) >= 40  # noqa: E731
                await asyncio.gather(read(first, found, done), read(second, found, done))
            await read(first, found, lambda: len(first.assignment) == 4)
        return found, assigned

    found, assigned = play(scenario)
    assert sorted(found) == list(range(40))
    assert assigned == {TopicPartition("t", number) for number in range(4)}


def test_the_next_member_continues_at_the_offsets_that_the_closed_one_committed() -> None:
    async def scenario(client: Client, machine: Machine) -> tuple[list[int], list[int]]:
        await fill(client, partitions=1, records=10)
        before: list[int] = []
        after: list[int] = []
        async with client.consumer("g", ["t"], EAGER) as consumer:
            await read(consumer, before, lambda: len(before) >= 10)
        async with client.producer() as producer:
            await producer.send("t", b"10")
        async with client.consumer("g", ["t"], EAGER) as consumer:
            await read(consumer, after, lambda: len(after) >= 1)
        return before, after

    assert play(scenario) == (list(range(10)), [10])


def test_with_auto_commit_polls_commit_what_earlier_polls_returned() -> None:
    async def scenario(client: Client, machine: Machine) -> list[int]:
        await fill(client, partitions=1, records=10)
        committed = []
        async with client.consumer("g", ["t"], EAGER) as consumer:
            found: list[int] = []
            await read(consumer, found, lambda: len(found) >= 10)
            offsets = await client.groups.offsets("g")
            committed.append(len(offsets))
            await asyncio.sleep(6)
            await consumer.poll(100)
            await asyncio.sleep(1)
            committed.append((await client.groups.offsets("g"))[TopicPartition("t", 0)].offset)
        return committed

    assert play(scenario) == [0, 10]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_that_does_not_poll_loses_its_partitions_to_the_others(protocol: str) -> None:
    settings = GroupSettings(
        protocol=protocol, offset_reset="earliest", session_timeout_ms=10_000, max_poll_interval_ms=15_000
    )
    revoked: list[Sequence[TopicPartition]] = []

    async def note(partitions: Sequence[TopicPartition]) -> None:
        revoked.append(partitions)

    async def scenario(client: Client, machine: Machine) -> ErrorCode:
        await fill(client)
        async with (
            client.consumer("g", ["t"], settings, on_revoked=note) as first,
            client.consumer("g", ["t"], settings) as second,
        ):
            balanced = lambda: len(first.assignment) == len(second.assignment) == 2  # noqa: E731
            await asyncio.gather(read(first, [], balanced), read(second, [], balanced))
            revoked.clear()
            await read(second, [], lambda: len(second.assignment) == 4)
            with pytest.raises(KafkaError) as error:
                await first.commit({TopicPartition("t", 0): CommittedOffset(1)})
            await asyncio.gather(read(first, [], balanced), read(second, [], balanced))
            return error.value.code

    assert play(scenario) == ErrorCode.UNKNOWN_MEMBER_ID
    assert len(revoked[0]) == 2


def test_a_changed_subscription_replaces_the_partitions() -> None:
    revoked: list[Sequence[TopicPartition]] = []

    async def note(partitions: Sequence[TopicPartition]) -> None:
        revoked.append(partitions)

    async def scenario(client: Client, machine: Machine) -> None:
        await fill(client)
        await client.topics.create("u", partitions=1)
        async with client.consumer("g", ["t"], EAGER, on_revoked=note) as consumer:
            await read(consumer, [], lambda: len(consumer.assignment) == 4)
            consumer.subscribe(["u"])
            await read(consumer, [], lambda: consumer.assignment == (TopicPartition("u", 0),))

    play(scenario)
    assert [len(each) for each in revoked] == [4]


@pytest.mark.parametrize("settings", [EAGER, CONSUMER], ids=["classic", "consumer"])
def test_members_survive_a_restart_of_their_coordinator(settings: GroupSettings) -> None:
    async def scenario(client: Client, machine: Machine) -> list[int]:
        await fill(client, partitions=1, records=10)
        found: list[int] = []
        async with client.consumer("g", ["t"], settings) as consumer:
            await read(consumer, found, lambda: len(found) >= 10)
            machine.kill()
            await asyncio.sleep(1)
            machine.boot(node_program(node_config("broker", overrides=SETTINGS), asyncio.Event()))
            async with client.producer() as producer:
                await producer.send("t", b"10")
            await read(consumer, found, lambda: len(found) >= 11)
        return found

    assert play(scenario) == list(range(11))


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_static_member_that_restarts_receives_its_partitions_without_a_rebalance(protocol: str) -> None:
    settings = GroupSettings(protocol=protocol, offset_reset="earliest", session_timeout_ms=10_000, instance_id="one")

    async def scenario(client: Client, machine: Machine) -> tuple[int, int]:
        await fill(client)
        generations = []
        for _ in range(2):
            async with client.consumer("g", ["t"], settings) as consumer:
                found: list[int] = []
                await read(consumer, found, lambda: len(consumer.assignment) == 4)
                generations.append(consumer.membership.generation)
        return generations[0], generations[1]

    before, after = play(scenario)
    assert before == after


@pytest.mark.parametrize("settings", [EAGER, CONSUMER], ids=["classic", "consumer"])
def test_a_new_partition_is_assigned_after_the_metadata_was_refreshed(settings: GroupSettings) -> None:
    async def scenario(client: Client, machine: Machine) -> int:
        await fill(client, partitions=1, records=1)
        async with client.consumer("g", ["t"], settings) as consumer:
            await read(consumer, [], lambda: len(consumer.assignment) == 1)
            await client.topics.grow("t", 3)
            await read(consumer, [], lambda: len(consumer.assignment) == 3)
            return len(consumer.assignment)

    assert play(scenario) == 3


def test_groups_are_listed_described_and_deleted() -> None:
    async def scenario(client: Client, machine: Machine) -> None:
        await fill(client)
        async with client.consumer("g", ["t"], EAGER) as consumer:
            await read(consumer, [], lambda: len(consumer.assignment) == 4)
            listed = await client.groups.list()
            assert [(each.group_id, each.state, each.coordinator) for each in listed] == [("g", "Stable", 1)]
            described = await client.groups.describe("g")
            assert (described.state, described.assignor, described.is_active) == ("Stable", "range", True)
            assert [each.assigned for each in described.members] == [consumer.assignment]
            assert described.members[0].topics == ("t",)
            with pytest.raises(KafkaError, match="NON_EMPTY_GROUP"):
                await client.groups.delete("g")
            failed = await client.groups.set_offsets("g", {TopicPartition("t", 0): CommittedOffset(3)})
            assert [error.code for error in failed.values()] == [ErrorCode.UNKNOWN_MEMBER_ID]
        assert await client.groups.set_offsets("g", {TopicPartition("t", 0): CommittedOffset(3, 0, "why")}) == {}
        assert (await client.groups.offsets("g"))[TopicPartition("t", 0)] == CommittedOffset(3, 0, "why")
        assert await client.groups.delete_offsets("g", [TopicPartition("t", 0)]) == {}
        assert TopicPartition("t", 0) not in await client.groups.offsets("g")
        await client.groups.delete("g")
        with pytest.raises(KafkaError, match="GROUP_ID_NOT_FOUND"):
            await client.groups.describe("g")

    play(scenario)


def test_a_consumer_group_is_described_with_its_epochs() -> None:
    async def scenario(client: Client, machine: Machine) -> None:
        await fill(client)
        async with client.consumer("g", ["t"], CONSUMER) as consumer:
            await read(consumer, [], lambda: len(consumer.assignment) == 4)
            await client.router.sleep(1_000)
            described = await client.groups.describe("g")
            assert (described.type, described.state, described.assignor) == ("consumer", "Stable", "uniform")
            (member,) = described.members
            assert member.assigned == member.target == consumer.assignment
            assert member.epoch == consumer.membership.generation == described.epoch
            await consumer.commit()
        assert sum(each.offset for each in (await client.groups.offsets("g")).values()) >= 0

    play(scenario)


def test_a_group_changes_its_protocol_while_it_runs() -> None:
    """A classic member is joined by one with the consumer protocol, and then leaves."""

    async def scenario(client: Client, machine: Machine) -> list[int]:
        await fill(client)
        found: list[int] = []
        async with client.consumer("g", ["t"], CONSUMER) as new:
            async with client.consumer("g", ["t"], COOPERATIVE) as old:
                balanced = lambda: len(old.assignment) == len(new.assignment) == 2  # noqa: E731
                await asyncio.gather(read(old, found, balanced), read(new, found, balanced))
                assert (await client.groups.describe("g")).type == "consumer"
                done = lambda: len(found) >= 40  # noqa: E731
                await asyncio.gather(read(old, found, done), read(new, found, done))
            await read(new, found, lambda: len(new.assignment) == 4)
        return sorted(found)

    assert play(scenario) == list(range(40))
