"""The entry point of the client: one object per cluster, from which producers, fetchers and admin calls are made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self

import msgspec

from strandline.client.admin.cluster import ClusterAdmin
from strandline.client.admin.configs import ConfigAdmin
from strandline.client.admin.elections import Election, elect_leaders
from strandline.client.admin.features import FeatureAdmin
from strandline.client.admin.groups import GroupAdmin
from strandline.client.admin.lag import group_lag
from strandline.client.admin.metrics_page import read_metrics
from strandline.client.admin.offsets import ListedOffset, list_offsets
from strandline.client.admin.quorum import QuorumAdmin
from strandline.client.admin.raw_fetch import RawBatches, RawFetchSettings, fetch_raw
from strandline.client.admin.reassignments import ReassignmentAdmin
from strandline.client.admin.topics import TopicAdmin
from strandline.client.admin.transactions import TransactionAdmin
from strandline.client.bootstrap import parse_bootstrap
from strandline.client.consumer import GroupConsumer, Listener
from strandline.client.coordinators import Coordinators
from strandline.client.core.descriptions import ClusterDescription, QuorumDescription, Reassignment, TopicDescription
from strandline.client.core.health import Health, assess
from strandline.client.core.unread import Lag
from strandline.client.fetcher import Fetcher
from strandline.client.producer import Producer
from strandline.client.routing import Router
from strandline.client.settings import ClientSettings, FetcherSettings, GroupSettings, ProducerSettings
from strandline.client.transactional_producer import TransactionalProducer
from strandline.model.errors import KafkaError
from strandline.model.ids import TopicPartition
from strandline.runtime.world import World

HEALTH_POLL_MS = 200
METRICS_TIMEOUT_MS = 1_000


class Client:
    """Connects on first use; leaving the `async with` closes every connection."""

    def __init__(self, world: World, bootstrap: str, settings: ClientSettings | None = None) -> None:
        self.router = Router(world, parse_bootstrap(bootstrap), settings)
        self.topics = TopicAdmin(self.router)
        self.configs = ConfigAdmin(self.router)
        self.cluster = ClusterAdmin(self.router)
        self.quorum = QuorumAdmin(self.router)
        self.features = FeatureAdmin(self.router)
        self.coordinators = Coordinators(self.router)
        self.groups = GroupAdmin(self.router, self.coordinators)
        self.transactions = TransactionAdmin(self.router, self.coordinators)
        self.reassignments = ReassignmentAdmin(self.router)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.router.close()

    def producer(self, settings: ProducerSettings | None = None) -> Producer:
        return Producer(self.router, settings)

    def transactional_producer(
        self, transactional_id: str, settings: ProducerSettings | None = None
    ) -> TransactionalProducer:
        settings = msgspec.structs.replace(settings or ProducerSettings(), transactional_id=transactional_id)
        return TransactionalProducer(self.router, self.coordinators, settings)

    def fetcher(self, settings: FetcherSettings | None = None) -> Fetcher:
        return Fetcher(self.router, settings)

    def consumer(
        self,
        group_id: str,
        topics: Iterable[str],
        settings: GroupSettings | None = None,
        fetching: FetcherSettings | None = None,
        *,
        on_assigned: Listener | None = None,
        on_revoked: Listener | None = None,
    ) -> GroupConsumer:
        return GroupConsumer(
            self.router,
            self.coordinators,
            group_id,
            topics,
            settings,
            fetching,
            on_assigned=on_assigned,
            on_revoked=on_revoked,
        )

    async def list_offsets(
        self, wanted: Mapping[TopicPartition, int], *, read_committed: bool = False
    ) -> dict[TopicPartition, ListedOffset | KafkaError]:
        return await list_offsets(self.router, wanted, read_committed=read_committed)

    async def fetch_raw(
        self, positions: Mapping[TopicPartition, int], settings: RawFetchSettings | None = None
    ) -> dict[TopicPartition, RawBatches | KafkaError]:
        return await fetch_raw(self.router, positions, settings)

    async def group_lag(self, group_id: str) -> dict[TopicPartition, Lag]:
        """How far the group is behind in every partition with a committed offset."""
        return await group_lag(self.router, await self.groups.offsets(group_id))

    async def elect_leaders(
        self, election: Election, partitions: Iterable[TopicPartition] | None
    ) -> dict[TopicPartition, KafkaError | None]:
        return await elect_leaders(self.router, election, partitions)

    async def until_healthy(self, timeout_ms: int) -> Health:
        """Polls until the cluster is healthy or the timeout has passed. Raises KafkaError if no broker responds."""
        deadline_ms = self.router.now_ms() + timeout_ms
        while True:
            try:
                described = cluster, quorum, _, _ = await self._described()
                if assess(*described).is_healthy or self.router.now_ms() + HEALTH_POLL_MS > deadline_ms:
                    # Not with every poll: brokers without a metrics page log a warning about an HTTP request.
                    return assess(*described, metrics=await self._metrics(cluster, quorum))
            except KafkaError:
                if self.router.now_ms() + HEALTH_POLL_MS > deadline_ms:
                    raise
            await self.router.sleep(HEALTH_POLL_MS)

    async def _described(
        self,
    ) -> tuple[ClusterDescription, QuorumDescription | str, list[TopicDescription], Sequence[Reassignment]]:
        """Instead of the quorum, the reason why no node could describe it."""
        cluster = await self.cluster.describe()
        topics = await self.topics.list()
        try:
            quorum = await self.quorum.describe()
        except KafkaError as error:
            return cluster, error.why or error.code.name, topics, ()
        return cluster, quorum, topics, await self.reassignments.ongoing()

    async def _metrics(
        self, cluster: ClusterDescription, quorum: QuorumDescription | str
    ) -> dict[int, dict[str, float]]:
        """The metrics of the unfenced brokers and of the active controller, by node id."""
        endpoints = {broker.id: broker.endpoint for broker in cluster.brokers if not broker.fenced}
        if isinstance(quorum, QuorumDescription):
            for _, endpoint in quorum.listeners.get(quorum.leader_id, [])[:1]:
                endpoints.setdefault(quorum.leader_id, endpoint)
        network = self.router.world.network
        return {
            node_id: await read_metrics(network, endpoint, METRICS_TIMEOUT_MS)
            for node_id, endpoint in endpoints.items()
        }
