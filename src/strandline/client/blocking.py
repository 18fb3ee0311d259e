"""The client for code without an event loop, such as scripts and Spark tasks: every call returns its result.

    with BlockingClient("127.0.0.1:9092") as client:
        client.run(lambda each: each.topics.create("orders", partitions=3))    # any call of `Client`
        with client.transactional_producer("copier-1") as producer, producer.transaction():
            producer.send("orders", [Outgoing(b"value", key=b"key")])
        ends = client.list_offsets({partition: LATEST})
        batches = client.fetch_raw({partition: 0})
        client.commit("billing", {partition: CommittedOffset(7)})

The asyncio shells run unchanged on an event loop in a thread of this client (docs/decisions). Objects of one client may
be used from several threads. A call that is interrupted (Ctrl-C) is cancelled in the loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Generic, Self, TypeVar

import msgspec

from strandline.client.admin.committed_offsets import CommittedOffset, Committer, commit_offsets
from strandline.client.admin.offsets import ListedOffset
from strandline.client.admin.raw_fetch import RawBatches, RawFetchSettings
from strandline.client.client import Client
from strandline.client.consumer import GroupConsumer
from strandline.client.core.fetched_records import FetchedPartition
from strandline.client.producer import Delivered, Delivery, Producer
from strandline.client.settings import ClientSettings, FetcherSettings, GroupSettings, ProducerSettings
from strandline.client.transactional_producer import TransactionalProducer
from strandline.model.errors import KafkaError
from strandline.model.ids import TopicPartition
from strandline.runtime.world import World, system_world

T = TypeVar("T")
P = TypeVar("P", bound=Producer)


class Outgoing(msgspec.Struct, frozen=True):
    """A record to produce."""

    value: bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


class _LoopThread:
    """An event loop in a thread, from `start` to `stop`."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="strandline-client", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def run(self, work: Callable[[], Awaitable[T]]) -> T:
        async def program() -> T:
            return await work()

        future = asyncio.run_coroutine_threadsafe(program(), self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class BlockingClient:
    def __init__(self, bootstrap: str, settings: ClientSettings | None = None) -> None:
        self._bootstrap = bootstrap
        self._settings = settings
        self._thread = _LoopThread()
        self._world: World | None = None
        self._client: Client | None = None

    def __enter__(self) -> Self:
        self._world = system_world(threads=1)
        self._thread.start()

        async def connect() -> Client:
            assert self._world is not None
            return Client(self._world, self._bootstrap, self._settings)

        try:
            self._client = self._thread.run(connect)
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        client = self._opened()

        async def close() -> None:
            await client.__aexit__(None, None, None)

        try:
            self._thread.run(close)
        finally:
            self._stop()

    def _stop(self) -> None:
        self._thread.stop()
        if self._world is not None:
            self._world.close()

    def _opened(self) -> Client:
        if self._client is None:
            raise RuntimeError("use this client in a `with` block")
        return self._client

    def run(self, work: Callable[[Client], Awaitable[T]]) -> T:
        """The result of any coroutine of the asyncio client."""
        client = self._opened()
        return self._thread.run(lambda: work(client))

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], *, read_committed: bool = False
    ) -> dict[TopicPartition, ListedOffset | KafkaError]:
        return self.run(lambda client: client.list_offsets(wanted, read_committed=read_committed))

    def fetch_raw(
        self, positions: Mapping[TopicPartition, int], settings: RawFetchSettings | None = None
    ) -> dict[TopicPartition, RawBatches | KafkaError]:
        """Batches as bytes, from these offsets on; waits up to `max_wait_ms` of the settings for new ones."""
        return self.run(lambda client: client.fetch_raw(positions, settings))

    def committed(
        self, group_id: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, CommittedOffset]:
        return self.run(lambda client: client.groups.offsets(group_id, partitions, require_stable=True))

    def commit(
        self, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset], member: Committer | None = None
    ) -> None:
        """Raises KafkaError if an offset was not committed."""

        async def work(client: Client) -> None:
            failed = await commit_offsets(client.coordinators, group_id, offsets, member)
            for error in failed.values():
                raise error

        self.run(work)

    def producer(self, settings: ProducerSettings | None = None) -> BlockingProducer[Producer]:
        return BlockingProducer(self._thread, self._opened().producer, settings)

    def transactional_producer(
        self, transactional_id: str, settings: ProducerSettings | None = None
    ) -> BlockingTransactionalProducer:
        client = self._opened()
        return BlockingTransactionalProducer(
            self._thread, lambda given: client.transactional_producer(transactional_id, given), settings
        )

    def consumer(
        self,
        group_id: str,
        topics: Iterable[str],
        settings: GroupSettings | None = None,
        fetching: FetcherSettings | None = None,
    ) -> BlockingConsumer:
        client = self._opened()
        return BlockingConsumer(self._thread, lambda: client.consumer(group_id, topics, settings, fetching))


class BlockingProducer(Generic[P]):
    def __init__(
        self,
        thread: _LoopThread,
        make: Callable[[ProducerSettings | None], P],
        settings: ProducerSettings | None,
    ) -> None:
        self._thread = thread
        self._make = make
        self._settings = settings
        self._producer: P | None = None

    def __enter__(self) -> Self:
        async def enter() -> P:
            return await self._make(self._settings).__aenter__()

        self._producer = self._thread.run(enter)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.run(lambda: self._entered().__aexit__(kind, error, trace))

    def send(self, topic: str, records: Iterable[Outgoing]) -> Deliveries:
        """Buffers the records; waits for buffer space. Many records in one call are cheaper than a call for each."""
        producer = self._entered()

        async def work() -> list[Delivery]:
            return [
                await producer.send(
                    topic,
                    each.value,
                    key=each.key,
                    headers=each.headers,
                    partition=each.partition,
                    timestamp_ms=each.timestamp_ms,
                )
                for each in records
            ]

        return Deliveries(self._thread, self._thread.run(work))

    def flush(self) -> None:
        self._thread.run(self._entered().flush)

    def _entered(self) -> P:
        if self._producer is None:
            raise RuntimeError("use this producer in a `with` block")
        return self._producer


class Deliveries:
    """The outcomes of records that were sent together."""

    def __init__(self, thread: _LoopThread, pending: list[Delivery]) -> None:
        self._thread = thread
        self._pending = pending

    def result(self) -> list[Delivered]:
        """Waits for all of them, in the order of the records. Raises the error of the first that failed."""

        async def work() -> list[Delivered]:
            return [await each for each in self._pending]

        return self._thread.run(work)


class BlockingTransactionalProducer(BlockingProducer[TransactionalProducer]):
    def begin(self) -> None:
        async def work() -> None:
            self._entered().begin()

        self._thread.run(work)

    def commit(self) -> None:
        self._thread.run(self._entered().commit)

    def abort(self) -> None:
        self._thread.run(self._entered().abort)

    def send_offsets(
        self, offsets: Mapping[TopicPartition, CommittedOffset], group_id: str, member: Committer | None = None
    ) -> None:
        self._thread.run(lambda: self._entered().send_offsets(offsets, group_id, member))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Begins; commits at the end of the block, or aborts after an exception in it."""
        block = self._entered().transaction()
        self._thread.run(block.__aenter__)
        try:
            yield
        except BaseException as error:
            kind, trace = type(error), error.__traceback__
            raised = error
            self._thread.run(lambda: block.__aexit__(kind, raised, trace))
            raise
        self._thread.run(lambda: block.__aexit__(None, None, None))


class BlockingConsumer:
    """A member of a group. Poll it regularly: between polls its thread keeps the membership for
    `max_poll_interval_ms`."""

    def __init__(self, thread: _LoopThread, make: Callable[[], GroupConsumer]) -> None:
        self._thread = thread
        self._make = make
        self._consumer: GroupConsumer | None = None

    def __enter__(self) -> Self:
        async def enter() -> GroupConsumer:
            return await self._make().__aenter__()

        self._consumer = self._thread.run(enter)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.run(lambda: self._entered().__aexit__(kind, error, trace))

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        return self._entered().assignment

    @property
    def membership(self) -> Committer:
        return self._entered().membership

    def poll(self, timeout_ms: int) -> list[FetchedPartition]:
        return self._thread.run(lambda: self._entered().poll(timeout_ms))

    def commit(self, offsets: Mapping[TopicPartition, CommittedOffset] | None = None) -> None:
        self._thread.run(lambda: self._entered().commit(offsets))

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        return self._thread.run(lambda: self._entered().committed(partitions))

    def position(self, partition: TopicPartition) -> int:
        return self._entered().position(partition)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        async def work() -> None:
            self._entered().seek(partition, offset)

        self._thread.run(work)

    def _entered(self) -> GroupConsumer:
        if self._consumer is None:
            raise RuntimeError("use this consumer in a `with` block")
        return self._consumer
