"""Dynamic configs of topics, brokers, groups and client metrics, and client quotas.

A part of `metadata.image`. Stored mappings are never changed in place: every record makes a new one, so a reader may
keep the mapping it was given.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

from strandline.metadata.values import TOPIC_RESOURCE, ConfigResource, QuotaEntity
from strandline.model.timeline import Timeline, TimelineMap
from strandline.protocol.messages.metadata_records import ClientQuotaRecord, ConfigRecord, EntityData
from strandline.protocol.types import Message

N = TypeVar("N")
S = TypeVar("S")


class ConfigsImage:
    def __init__(self, timeline: Timeline) -> None:
        self.configs: TimelineMap[ConfigResource, Mapping[str, str]] = TimelineMap(timeline)
        self.quotas: TimelineMap[QuotaEntity, Mapping[str, float]] = TimelineMap(timeline)

    def replay_config(self, record: ConfigRecord) -> None:
        resource = ConfigResource(record.resource_type, record.resource_name)
        _update(self.configs, resource, record.name, record.value)

    def replay_client_quota(self, record: ClientQuotaRecord) -> None:
        entity = tuple(
            sorted(((part.entity_type, part.entity_name) for part in record.entity), key=lambda part: part[0])
        )
        _update(self.quotas, entity, record.key, None if record.remove else record.value)

    def remove_topic_configs(self, name: str) -> None:
        resource = ConfigResource(TOPIC_RESOURCE, name)
        if resource in self.configs:
            del self.configs[resource]

    def config_records(self, moment: int) -> Iterator[Message]:
        for resource, values in sorted(self.configs.items(moment)):
            for key, value in sorted(values.items()):
                yield ConfigRecord(resource_type=resource.type, resource_name=resource.name, name=key, value=value)

    def quota_records(self, moment: int) -> Iterator[Message]:
        for entity, values in self.quotas.items(moment):
            parts = [EntityData(entity_type=type_, entity_name=name) for type_, name in entity]
            for key, value in sorted(values.items()):
                yield ClientQuotaRecord(entity=parts, key=key, value=value, remove=False)


def _update(map_: TimelineMap[N, Mapping[str, S]], name: N, key: str, value: S | None) -> None:
    values = dict(map_.get(name) or {})
    if value is None:
        values.pop(key, None)
    else:
        values[key] = value
    if values:
        map_[name] = values
    elif name in map_:
        del map_[name]
