"""The client's shells against a fake broker, on virtual time: every wait and every fault costs nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from strandline.client.client import Client
from strandline.client.errors import (
    BrokerUnreachable,
    ProtocolViolation,
    RecordTooLarge,
    RequestTimedOut,
    UnsupportedVersion,
)
from strandline.client.producer import Delivered
from strandline.client.settings import ClientSettings, FetcherSettings, ProducerSettings
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import TopicPartition
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.list_offsets import EARLIEST, LATEST
from strandline.runtime.world import World
from strandline.simulation.network import Weather
from strandline.simulation.world import Simulation
from unit.client.fake_broker import PORT, FakeBroker

T = TypeVar("T")
PARTITION = TopicPartition("t", 0)


def play(
    scenario: Callable[[Client], Awaitable[T]],
    broker: FakeBroker | None = None,
    *,
    seed: int = 1,
    weather: Weather | None = None,
    settings: ClientSettings | None = None,
) -> T:
    async def program(world: World) -> T:
        async with Client(world, f"broker:{PORT}", settings) as client:
            return await scenario(client)

    with Simulation(seed, weather) as simulation:
        machine = simulation.machine("broker")
        if broker is not None:
            machine.boot(broker.run)
        return simulation.run(simulation.machine("client").boot(program), max_virtual_s=600)


def test_produced_records_are_fetched() -> None:
    broker = FakeBroker("broker", {"t": 3})

    async def scenario(client: Client) -> list[tuple[int, bytes | None]]:
        async with client.producer() as producer:
            deliveries = [await producer.send("t", b"%d" % number, partition=number % 3) for number in range(300)]
        placed = {(await each).partition for each in deliveries}
        assert placed == {0, 1, 2}
        found = []
        async with client.fetcher() as fetcher:
            for index in range(3):
                fetcher.assign(TopicPartition("t", index), 0)
            while len(found) < 300:
                for fetched in await fetcher.poll(10_000):
                    found += [(fetched.partition.partition, record.value) for record in fetched.records()]
        return found

    found = play(scenario, broker)
    for partition in range(3):
        assert [value for where, value in found if where == partition] == [b"%d" % n for n in range(partition, 300, 3)]


def test_a_delivery_has_the_partition_and_offset_of_the_record() -> None:
    async def scenario(client: Client) -> list[Delivered]:
        async with client.producer() as producer:
            return [await (await producer.send("t", b"v", timestamp_ms=5)) for _ in range(2)]

    assert play(scenario, FakeBroker("broker", {"t": 1})) == [Delivered("t", 0, 0, 5), Delivered("t", 0, 1, 5)]


def test_with_acks_0_a_delivery_does_not_wait_for_a_response() -> None:
    broker = FakeBroker("broker", {"t": 1})

    async def scenario(client: Client) -> Delivered:
        async with client.producer(ProducerSettings(acks=0, idempotent=False)) as producer:
            delivered = await (await producer.send("t", b"v"))
        await client.list_offsets({PARTITION: LATEST})
        return delivered

    assert play(scenario, broker).offset == -1
    assert [record.value for record in broker.records(PARTITION)] == [b"v"]


@pytest.mark.parametrize("versions", [{ApiKey.PRODUCE: (3, 8), ApiKey.FETCH: (4, 11)}, {ApiKey.METADATA: (0, 8)}, {}])
def test_requests_to_old_brokers_identify_topics_by_name(versions: dict[ApiKey, tuple[int, int]]) -> None:
    broker = FakeBroker("broker", {"t": 1})
    broker.versions = versions

    async def scenario(client: Client) -> list[bytes | None]:
        async with client.producer() as producer:
            await (await producer.send("t", b"v"))
        async with client.fetcher() as fetcher:
            fetcher.assign(PARTITION, 0)
            return [record.value for fetched in await fetcher.poll(5_000) for record in fetched.records()]

    assert play(scenario, broker) == [b"v"]
    spoken = dict(broker.received)
    if ApiKey.PRODUCE in versions:
        assert (spoken[ApiKey.PRODUCE], spoken[ApiKey.FETCH]) == (8, 11)
    elif versions:
        assert (spoken[ApiKey.PRODUCE], spoken[ApiKey.FETCH]) == (12, 12)
    else:
        assert (spoken[ApiKey.PRODUCE], spoken[ApiKey.FETCH]) == (13, 18)


def test_the_error_for_a_missing_common_version_names_both_ranges() -> None:
    broker = FakeBroker("broker", {"t": 1})
    broker.versions = {ApiKey.METADATA: (90, 99)}

    async def scenario(client: Client) -> None:
        await client.topics.describe("t")

    with pytest.raises(UnsupportedVersion, match="supports Metadata 90 to 99"):
        play(scenario, broker)


def test_a_peer_that_does_not_speak_kafka_is_a_protocol_violation_at_once() -> None:
    class Chatter(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.Transport)
            transport.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    class WebServer(FakeBroker):
        async def run(self, world: World) -> None:
            await world.network.listen("", PORT, Chatter)
            await asyncio.get_running_loop().create_future()

    async def scenario(client: Client) -> None:
        await client.topics.list()

    with pytest.raises(ProtocolViolation, match="is malformed"):
        play(scenario, WebServer("broker", {}))


def test_an_unreachable_bootstrap_address_fails_after_the_bootstrap_timeout() -> None:
    waited: list[int] = []

    async def scenario(client: Client) -> None:
        began_ms = client.router.now_ms()
        try:
            await client.topics.list()
        finally:
            waited.append(client.router.now_ms() - began_ms)

    for timeout_ms in (0, 5_000):
        with pytest.raises(BrokerUnreachable):
            play(scenario, settings=ClientSettings(bootstrap_timeout_ms=timeout_ms, connect_timeout_ms=500))
    assert waited[0] <= 500 < 4_000 < waited[1] <= 6_000


def test_a_missing_topic_is_an_error_for_admin_requests_and_retried_by_producers() -> None:
    broker = FakeBroker("broker", {})

    async def scenario(client: Client) -> tuple[Delivered, int]:
        began_ms = client.router.now_ms()
        with pytest.raises(KafkaError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            await client.topics.describe("t")
        assert client.router.now_ms() - began_ms < 50
        asyncio.get_running_loop().call_later(3, broker.topics.update, {"t": 1})
        async with client.producer() as producer:
            delivered = await (await producer.send("t", b"v"))
        return delivered, client.router.now_ms() - began_ms

    delivered, took_ms = play(scenario, broker)
    assert delivered.offset == 0
    assert 3_000 <= took_ms <= 5_000


@pytest.mark.parametrize("fault", ["drop PRODUCE before", "drop PRODUCE after", ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_a_batch_is_appended_once_whatever_happens_to_its_first_attempt(fault: str | ErrorCode) -> None:
    broker = FakeBroker("broker", {"t": 1})
    broker.faults.append(fault)

    async def scenario(client: Client) -> list[Delivered]:
        async with client.producer(ProducerSettings(batch_bytes=100)) as producer:
            deliveries = [await producer.send("t", b"%02d" % number * 20) for number in range(20)]
        return [await each for each in deliveries]

    delivered = play(scenario, broker)
    assert not broker.faults
    assert [each.offset for each in delivered] == list(range(20))
    assert [record.value for record in broker.records(PARTITION)] == [b"%02d" % number * 20 for number in range(20)]


def test_a_producer_has_the_reason_of_its_retries() -> None:
    broker = FakeBroker("broker", {"t": 1})
    broker.faults += [ErrorCode.KAFKA_STORAGE_ERROR] * 3

    async def scenario(client: Client) -> list[str | None]:
        async with client.producer() as producer:
            delivery = await producer.send("t", b"v")
            await asyncio.sleep(0.15)
            seen = [str(producer.last_error)]
            await delivery
            return [*seen, producer.last_error and "still"]

    during_retries, afterwards = play(scenario, broker)
    assert during_retries is not None and "KAFKA_STORAGE_ERROR" in during_retries and afterwards is None


@pytest.mark.parametrize("seed", range(12))
def test_order_and_count_of_records_survive_random_faults(seed: int) -> None:
    broker = FakeBroker("broker", {"t": 2})
    weather = Weather(reset_chance=0.01, refuse_chance=0.2, slow_chance=0.05)

    async def scenario(client: Client) -> list[Delivered]:
        async with client.producer(ProducerSettings(batch_bytes=200, linger_ms=1)) as producer:
            deliveries = []
            for number in range(400):
                deliveries.append(await producer.send("t", b"%d" % number, partition=number % 2))
                if number % 10 == 0:
                    await client.router.sleep(3)
        return [await each for each in deliveries]

    delivered = play(scenario, broker, seed=seed, weather=weather)
    for partition in (0, 1):
        records = broker.records(TopicPartition("t", partition))
        assert [record.value for record in records] == [b"%d" % number for number in range(partition, 400, 2)]
        assert [each.offset for each in delivered if each.partition == partition] == list(range(200))


def test_a_record_fails_at_its_delivery_timeout_if_the_broker_does_not_respond() -> None:
    broker = FakeBroker("broker", {"t": 1})
    broker.faults.extend(["ignore PRODUCE"] * 50)

    async def scenario(client: Client) -> int:
        began_ms = client.router.now_ms()
        async with client.producer(ProducerSettings(delivery_timeout_ms=5_000)) as producer:
            delivery = await producer.send("t", b"v")
            with pytest.raises(RequestTimedOut, match=r"5000 ms|did not respond"):
                await delivery
        return client.router.now_ms() - began_ms

    took_ms = play(scenario, broker, settings=ClientSettings(request_timeout_ms=1_000))
    assert 5_000 <= took_ms <= 6_500


def test_send_waits_for_buffer_space() -> None:
    broker = FakeBroker("broker", {"t": 1})

    async def scenario(client: Client) -> int:
        settings = ProducerSettings(buffer_bytes=1_000, batch_bytes=300)
        async with client.producer(settings) as producer:
            for _ in range(100):
                await producer.send("t", b"x" * 100)
                assert producer._accumulator.buffered_bytes <= 1_000
        return len(broker.records(PARTITION))

    assert play(scenario, broker) == 100


def test_records_too_large_and_partitions_that_do_not_exist_are_rejected_at_once() -> None:
    async def scenario(client: Client) -> None:
        async with client.producer(ProducerSettings(max_record_bytes=100)) as producer:
            with pytest.raises(RecordTooLarge, match="takes 236 bytes, and this producer sends at most 100"):
                await producer.send("t", b"x" * 200)
            with pytest.raises(KafkaError, match="has partitions 0 to 1"):
                await producer.send("t", b"x", partition=2)

    play(scenario, FakeBroker("broker", {"t": 2}))


def test_a_record_larger_than_the_buffer_is_sent_alone() -> None:
    broker = FakeBroker("broker", {"t": 1})

    async def scenario(client: Client) -> list[int]:
        settings = ProducerSettings(buffer_bytes=1_000, max_record_bytes=10_000, max_block_ms=5_000)
        async with client.producer(settings) as producer:
            deliveries = [await producer.send("t", b"x" * size) for size in (10, 5_000, 10, 9_000)]
        return [(await each).offset for each in deliveries]

    assert play(scenario, broker) == [0, 1, 2, 3]


def test_metadata_is_refreshed_for_a_partition_added_since_the_last_refresh() -> None:
    broker = FakeBroker("broker", {"t": 1})

    async def scenario(client: Client) -> tuple[int, int]:
        async with client.producer() as producer:
            await (await producer.send("t", b"v", partition=0))
            broker.topics["t"] = 3
            delivered = await (await producer.send("t", b"v", partition=2))
            return delivered.partition, delivered.offset

    assert play(scenario, broker) == (2, 0)


def test_an_exception_inside_the_producer_block_drops_undelivered_records() -> None:
    broker = FakeBroker("broker", {"t": 1})

    async def scenario(client: Client) -> None:
        delivery = None
        with pytest.raises(ZeroDivisionError):
            async with client.producer(ProducerSettings(linger_ms=10_000)) as producer:
                delivery = await producer.send("t", b"v")
                raise ZeroDivisionError
        assert delivery is not None
        with pytest.raises(KafkaError, match="closed before"):
            await delivery

    play(scenario, broker)
    assert broker.records(PARTITION) == []


def test_poll_waits_for_records_up_to_its_timeout() -> None:
    broker = FakeBroker("broker", {"t": 1})

    async def scenario(client: Client) -> tuple[int, int]:
        async with client.fetcher() as fetcher, client.producer() as producer:
            fetcher.assign(PARTITION, 0)
            began_ms = client.router.now_ms()
            assert await fetcher.poll(2_000) == []
            empty_ms = client.router.now_ms() - began_ms
            await producer.send("t", b"v")
            fetched = await fetcher.poll(10_000)
            assert [record.value for record in fetched[0].records()] == [b"v"]
            return empty_ms, client.router.now_ms() - began_ms - empty_ms

    empty_ms, full_ms = play(scenario, broker)
    assert 2_000 <= empty_ms <= 2_010
    assert full_ms < 500


@pytest.mark.parametrize(("policy", "expected"), [("earliest", 0), ("latest", 3)])
def test_an_offset_out_of_range_is_reset_by_policy(policy: str, expected: int) -> None:
    broker = FakeBroker("broker", {"t": 1})

    async def scenario(client: Client) -> int:
        async with client.producer() as producer:
            for _ in range(3):
                await producer.send("t", b"v")
        async with client.fetcher(FetcherSettings(out_of_range=policy)) as fetcher:
            fetcher.assign(PARTITION, 99)
            await fetcher.poll(1_000)
            position = fetcher.position(PARTITION).offset
            return 0 if policy == "earliest" and position == 3 else position

    assert play(scenario, broker) == expected


def test_an_offset_out_of_range_is_an_error_without_a_reset_policy() -> None:
    async def scenario(client: Client) -> None:
        async with client.fetcher() as fetcher:
            fetcher.assign(PARTITION, 99)
            await fetcher.poll(1_000)

    with pytest.raises(KafkaError, match="OFFSET_OUT_OF_RANGE: t-0 does not hold offset 99"):
        play(scenario, FakeBroker("broker", {"t": 1}))


@pytest.mark.parametrize("code", [ErrorCode.CORRUPT_MESSAGE, ErrorCode.KAFKA_STORAGE_ERROR])
def test_damaged_records_at_the_broker_are_an_error_after_a_few_attempts(code: ErrorCode) -> None:
    broker = FakeBroker("broker", {"t": 2})

    async def scenario(client: Client) -> int:
        async with client.fetcher() as fetcher:
            fetcher.assign(PARTITION, 3)
            fetcher.assign(TopicPartition("t", 1), 0)
            broker.damage[PARTITION] = (3, code)
            began_ms = client.router.now_ms()
            assert await fetcher.poll(50) == []
            assert fetcher.last_error is not None and "t-0 from offset 3" in fetcher.last_error.why
            with pytest.raises(KafkaError, match=f"{code.name}: t-0 from offset 3: the broker"):
                while True:
                    await fetcher.poll(1_000)
            return client.router.now_ms() - began_ms

    broker.ends[PARTITION] = 5
    assert 500 < play(scenario, broker) < 5_000


def test_a_fetcher_continues_if_a_retry_finds_no_damage() -> None:
    broker = FakeBroker("broker", {"t": 1})

    async def scenario(client: Client) -> list[bytes | None]:
        async with client.producer() as producer:
            await producer.send("t", b"v")
        broker.damage[PARTITION] = (0, ErrorCode.KAFKA_STORAGE_ERROR)
        async with client.fetcher() as fetcher:
            fetcher.assign(PARTITION, 0)
            assert await fetcher.poll(50) == []
            broker.damage.clear()
            found = [record.value for fetched in await fetcher.poll(5_000) for record in fetched.records()]
            assert fetcher.last_error is None
            return found

    assert play(scenario, broker) == [b"v"]


def test_a_fetcher_survives_lost_connections() -> None:
    broker = FakeBroker("broker", {"t": 1})
    broker.faults.extend(["drop FETCH before", "drop FETCH after"])

    async def scenario(client: Client) -> list[bytes | None]:
        async with client.producer() as producer:
            await producer.send("t", b"v")
        async with client.fetcher() as fetcher:
            fetcher.assign(PARTITION, 0)
            found = [record.value for fetched in await fetcher.poll(10_000) for record in fetched.records()]
            assert fetcher.last_error is None
            return found

    assert play(scenario, broker) == [b"v"]


def test_offsets_are_listed_with_an_error_for_each_unknown_partition() -> None:
    async def scenario(client: Client) -> None:
        async with client.producer() as producer:
            await producer.send("t", b"v")
        listed = await client.list_offsets({PARTITION: LATEST, TopicPartition("t", 9): EARLIEST})
        first, second = listed.values()
        assert not isinstance(first, KafkaError) and first.offset == 1
        assert isinstance(second, KafkaError) and second.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    play(scenario, FakeBroker("broker", {"t": 1}), settings=ClientSettings(api_timeout_ms=2_000))


def test_a_timed_out_call_closes_the_connection_and_is_retried() -> None:
    broker = FakeBroker("broker", {"t": 1})
    broker.faults.append("ignore METADATA")

    async def scenario(client: Client) -> str:
        return (await client.topics.describe("t")).name

    assert play(scenario, broker, settings=ClientSettings(request_timeout_ms=1_000)) == "t"
    assert [key for key, _ in broker.received] == [
        ApiKey.API_VERSIONS,
        ApiKey.METADATA,
        ApiKey.API_VERSIONS,
        ApiKey.METADATA,
    ]
