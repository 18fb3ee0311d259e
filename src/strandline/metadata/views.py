"""Read access to the metadata image at one offset.

`image.latest` shows every replayed record, `image.committed` every committed one; `image.pin()` returns a view of a
fixed offset. Reading copies only what it returns, and sorted lists are cached until an entry changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Protocol, TypeVar, cast

from strandline.metadata.cluster_image import METADATA_VERSION, NEXT_PRODUCER_ID, ZK_MIGRATION_STATE, ClusterImage
from strandline.metadata.configs_image import ConfigsImage
from strandline.metadata.security_image import SecurityImage
from strandline.metadata.topics_image import TopicsImage, look_alike
from strandline.metadata.values import (
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
    BrokerInfo,
    ConfigResource,
    ControllerInfo,
    PartitionInfo,
    PartitionKey,
    QuotaEntity,
    TopicInfo,
)
from strandline.model.ids import ZERO_UUID, Uuid
from strandline.model.timeline import LATEST, TimelineMap
from strandline.protocol.messages.metadata_records import (
    AccessControlEntryRecord,
    DelegationTokenRecord,
    UserScramCredentialRecord,
)

T = TypeVar("T")

_NO_CONFIGS: Mapping[str, str] = MappingProxyType({})


class ImageParts(Protocol):
    """The maps of an image; implemented by `metadata/image`."""

    cluster: ClusterImage
    topics: TopicsImage
    configs: ConfigsImage
    security: SecurityImage

    @property
    def end_offset(self) -> int: ...


class View:
    __slots__ = ("_cache", "_cluster", "_configs", "_image", "_security", "_topics", "moment")

    def __init__(self, image: ImageParts, moment: int) -> None:
        self._image = image
        self._cluster = image.cluster
        self._topics = image.topics
        self._configs = image.configs
        self._security = image.security
        self._cache: dict[str, tuple[int, Any]] = {}
        self.moment = moment

    @property
    def offset(self) -> int:
        """The first offset whose record is not in this view."""
        return self._image.end_offset if self.moment == LATEST else self.moment

    def brokers(self) -> list[BrokerInfo]:
        """The registered brokers, by id."""
        brokers = self._cluster.brokers
        return self._cached("brokers", brokers, lambda: sorted(brokers.values(self.moment), key=lambda b: b.id))

    def broker(self, broker_id: int) -> BrokerInfo | None:
        return self._cluster.brokers.get(broker_id, self.moment)

    def controllers(self) -> list[ControllerInfo]:
        """The registered controllers, by id."""
        return sorted(self._cluster.controllers.values(self.moment), key=lambda controller: controller.id)

    def controller(self, controller_id: int) -> ControllerInfo | None:
        return self._cluster.controllers.get(controller_id, self.moment)

    def topics(self) -> list[TopicInfo]:
        """All topics, by name."""
        topics = self._topics.topics
        return self._cached("topics", topics, lambda: sorted(topics.values(self.moment), key=lambda t: t.name))

    def topic(self, name: str) -> TopicInfo | None:
        topic_id = self._topics.ids.get(name, self.moment)
        return None if topic_id is None else self._topics.topics.get(topic_id, self.moment)

    def topic_id(self, name: str) -> Uuid:
        """Zero when there is no topic of this name."""
        return self._topics.ids.get(name, self.moment) or ZERO_UUID

    def topic_by_id(self, topic_id: Uuid) -> TopicInfo | None:
        return self._topics.topics.get(topic_id, self.moment)

    def topics_looking_like(self, name: str) -> tuple[str, ...]:
        """Existing topics that differ from this name in `.` and `_` only (or not at all)."""
        look = look_alike(name)
        return () if look is None else self._topics.look_alikes.get(look, self.moment) or ()

    def partition(self, topic_id: Uuid, index: int) -> PartitionInfo | None:
        return self._topics.partitions.get((topic_id, index), self.moment)

    def partitions(self, topic_id: Uuid) -> list[PartitionInfo]:
        """The partitions of a topic in order of their index, which starts at 0 and has no gaps."""
        topic = self._topics.topics.get(topic_id, self.moment)
        if topic is None:
            return []
        get, moment = self._topics.partitions.get, self.moment
        found = [get((topic_id, index), moment) for index in range(topic.partition_count)]
        return cast("list[PartitionInfo]", found)

    def all_partitions(self) -> Iterator[tuple[PartitionKey, PartitionInfo]]:
        """Every partition of every topic, in no particular order; lazy."""
        return self._topics.partitions.items(self.moment)

    def configs(self, resource_type: int, name: str) -> Mapping[str, str]:
        return self._configs.configs.get(ConfigResource(resource_type, name), self.moment) or _NO_CONFIGS

    def topic_configs(self, name: str) -> Mapping[str, str]:
        return self.configs(TOPIC_RESOURCE, name)

    def broker_configs(self, broker_id: int | None) -> Mapping[str, str]:
        """Dynamic configs of one broker, or the cluster-wide defaults (None)."""
        return self.configs(BROKER_RESOURCE, "" if broker_id is None else str(broker_id))

    def config_resources(self, resource_type: int) -> list[str]:
        """Sorted names of the resources that have configs."""
        return sorted(
            resource.name for resource in self._configs.configs.keys(self.moment) if resource.type == resource_type
        )

    def features(self) -> Mapping[str, int]:
        """Finalized levels; a feature at level 0 is absent."""
        features = self._cluster.features
        return self._cached("features", features, lambda: dict(sorted(features.items(self.moment))))

    @property
    def metadata_version(self) -> int:
        """0 until the first bootstrap record."""
        return self._cluster.features.get(METADATA_VERSION, self.moment) or 0

    @property
    def next_producer_id(self) -> int:
        return self._cluster.counters.get(NEXT_PRODUCER_ID, self.moment) or 0

    @property
    def zk_migration_state(self) -> int:
        return self._cluster.counters.get(ZK_MIGRATION_STATE, self.moment) or 0

    def quotas(self) -> dict[QuotaEntity, Mapping[str, float]]:
        return dict(self._configs.quotas.items(self.moment))

    def quota(self, entity: QuotaEntity) -> Mapping[str, float]:
        return self._configs.quotas.get(entity, self.moment) or {}

    def acls(self) -> list[AccessControlEntryRecord]:
        return self._security.acls.values(self.moment)

    def scram_credential(self, user: str, mechanism: int) -> UserScramCredentialRecord | None:
        return self._security.scram.get((user, mechanism), self.moment)

    def scram_credentials(self) -> list[UserScramCredentialRecord]:
        return self._security.scram.values(self.moment)

    def token(self, token_id: str) -> DelegationTokenRecord | None:
        return self._security.tokens.get(token_id, self.moment)

    def tokens(self) -> list[DelegationTokenRecord]:
        return self._security.tokens.values(self.moment)

    def _cached(self, name: str, map_: TimelineMap[Any, Any], build: Callable[[], T]) -> T:
        """The last result of `build` unless the map has changed since. Callers must not modify it."""
        cached = self._cache.get(name)
        if cached is not None and cached[0] == map_.changes:
            return cast(T, cached[1])
        built = build()
        self._cache[name] = (map_.changes, built)
        return built
