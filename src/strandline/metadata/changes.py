"""What a commit of metadata changes for one broker.

`node/publisher` calls `changes_in_steps` with the keys that `Image.commit` (or `Image.load`) touched, or
`initial_changes` once when the broker starts, and applies the result in `portions` to replication, coordinators and
configs. The cost is that of the touched keys, not of the image; a large commit yields to the event loop in between,
while the committed view does not change.

A changed *leader epoch* is a new leadership and restarts fetching (KIP-101); a change of the partition epoch alone
(ISR, replicas, directories) does not.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from typing import Final

import msgspec
from msgspec.structs import replace

from strandline.metadata.image import Image
from strandline.metadata.values import (
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
    ConfigResource,
    PartitionInfo,
    TopicInfo,
)
from strandline.metadata.views import View
from strandline.model.ids import Uuid
from strandline.model.timeline import ABSENT, Touched

# About two milliseconds of sorting keys, or of applying changes.
_KEYS_PER_YIELD: Final = 500
_CHANGES_PER_PORTION: Final = 200


class PartitionDelta(msgspec.Struct, frozen=True):
    """One partition before and after the commit. `new` is None when it was deleted, `old` when it was created."""

    topic: str
    topic_id: Uuid
    partition: int
    old: PartitionInfo | None
    new: PartitionInfo | None


class Changes(msgspec.Struct, frozen=True):
    """All sequences are sorted: partitions by topic name and index, others by name or id."""

    offset: int
    """The first offset that the committed view does not contain."""
    is_initial: bool = False
    """The whole image as if it were new: the first changes after the broker started."""

    hosted: tuple[PartitionDelta, ...] = ()
    """Partitions of which this broker has a new replica."""
    leadership: tuple[PartitionDelta, ...] = ()
    """Hosted before and after, with another leader epoch."""
    membership: tuple[PartitionDelta, ...] = ()
    """Hosted before and after, same leader epoch: the ISR, replicas, directories or recovery state changed."""
    dropped: tuple[PartitionDelta, ...] = ()
    """Partitions of which this broker no longer has a replica: the topic was deleted or the replica reassigned."""

    topics: tuple[str, ...] = ()
    """Names of existing topics that changed in any way, hosted here or not."""
    topics_created: tuple[TopicInfo, ...] = ()
    topics_deleted: tuple[TopicInfo, ...] = ()
    """The deleted topics in their last state; a name may be in `topics_created` too, with a new id."""

    topic_configs: tuple[str, ...] = ()
    """Names of existing topics whose configs changed."""
    broker_config: bool = False
    """Whether this broker's own dynamic configs changed."""
    default_broker_config: bool = False
    """Whether the dynamic configs of all brokers changed."""
    other_configs: tuple[ConfigResource, ...] = ()
    """Configs of groups, client metrics and other brokers."""

    brokers: tuple[int, ...] = ()
    """Brokers that were registered, unregistered or changed."""
    controllers: tuple[int, ...] = ()
    features: tuple[str, ...] = ()
    quotas: bool = False
    acls: bool = False
    scram: bool = False
    tokens: bool = False


class _TouchedKeys(msgspec.Struct):
    """The keys that were touched, partitions and topics with their value before the commit."""

    partitions: dict[Uuid, dict[int, PartitionInfo | None]] = msgspec.field(default_factory=dict)
    topics: dict[Uuid, TopicInfo | None] = msgspec.field(default_factory=dict)
    configs: dict[ConfigResource, None] = msgspec.field(default_factory=dict)
    brokers: dict[int, None] = msgspec.field(default_factory=dict)
    controllers: dict[int, None] = msgspec.field(default_factory=dict)
    features: dict[str, None] = msgspec.field(default_factory=dict)
    maps: list[object] = msgspec.field(default_factory=list)


class _Sorted(msgspec.Struct):
    """The touched partitions, topics and configs, by what they change for the broker."""

    hosted: list[PartitionDelta] = msgspec.field(default_factory=list)
    leadership: list[PartitionDelta] = msgspec.field(default_factory=list)
    membership: list[PartitionDelta] = msgspec.field(default_factory=list)
    dropped: list[PartitionDelta] = msgspec.field(default_factory=list)
    topics: dict[str, None] = msgspec.field(default_factory=dict)
    created: list[TopicInfo] = msgspec.field(default_factory=list)
    deleted: list[TopicInfo] = msgspec.field(default_factory=list)
    topic_configs: list[str] = msgspec.field(default_factory=list)


def changes_of(image: Image, touched: Iterable[Touched], broker_id: int) -> Changes:
    """`touched` is the result of the last `commit` or `load` of this image."""
    return _finish(changes_in_steps(image, touched, broker_id))


def changes_in_steps(image: Image, touched: Iterable[Touched], broker_id: int) -> Generator[None, None, Changes]:
    """Returns what `changes_of` does, with yields; there must be no other commit before it ends."""
    keys = _TouchedKeys()
    for number, entry in enumerate(touched, 1):
        _collect(image, entry, keys)
        if number % _KEYS_PER_YIELD == 0:
            yield
    return (yield from _changes(image, keys, broker_id, is_initial=False))


def recreates_a_topic(image: Image, touched: Iterable[Touched]) -> bool:
    """Whether a topic was deleted and another one of the same name created."""
    view = image.committed
    deleted = [
        e for e in touched if e.map is image.topics.topics and e.old is not ABSENT and not view.topic_by_id(e.key)
    ]
    return any(view.topic(entry.old.name) is not None for entry in deleted)


def initial_changes(image: Image, broker_id: int) -> Changes:
    """The whole committed view, for a broker that starts."""
    moment = image.committed.moment
    keys = _TouchedKeys(
        topics=dict.fromkeys(image.topics.topics.keys(moment)),
        configs=dict.fromkeys(image.configs.configs.keys(moment)),
        brokers=dict.fromkeys(image.cluster.brokers.keys(moment)),
        controllers=dict.fromkeys(image.cluster.controllers.keys(moment)),
        features=dict.fromkeys(image.cluster.features.keys(moment)),
        maps=[image.configs.quotas, image.security.acls, image.security.scram, image.security.tokens],
    )
    for topic_id, index in image.topics.partitions.keys(moment):
        keys.partitions.setdefault(topic_id, {})[index] = None
    return _finish(_changes(image, keys, broker_id, is_initial=True))


# In this order: dropped partitions come before new ones.
_LISTS: Final = (
    "dropped",
    "leadership",
    "membership",
    "hosted",
    "topic_configs",
    "topics_created",
    "topics_deleted",
    "topics",
)


def portions(changes: Changes) -> Iterator[Changes]:
    """Splits large changes, to be applied one part after the other. Fields that are not sequences are in the first
    part."""
    if sum(len(getattr(changes, name)) for name in _LISTS) <= _CHANGES_PER_PORTION:
        yield changes
        return
    portion = replace(changes, **dict.fromkeys(_LISTS, ()))
    for name in _LISTS:
        entries = getattr(changes, name)
        for first in range(0, len(entries), _CHANGES_PER_PORTION):
            yield replace(portion, **{name: entries[first : first + _CHANGES_PER_PORTION]})
            portion = Changes(changes.offset, changes.is_initial)


def _finish(steps: Generator[None, None, Changes]) -> Changes:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


def _collect(image: Image, entry: Touched, keys: _TouchedKeys) -> None:
    old = None if entry.old is ABSENT else entry.old
    if entry.map is image.topics.partitions:
        topic_id, index = entry.key
        keys.partitions.setdefault(topic_id, {}).setdefault(index, old)
    elif entry.map is image.topics.topics:
        keys.topics.setdefault(entry.key, old)
    elif entry.map is image.configs.configs:
        keys.configs[entry.key] = None
    elif entry.map is image.cluster.brokers:
        keys.brokers[entry.key] = None
    elif entry.map is image.cluster.controllers:
        keys.controllers[entry.key] = None
    elif entry.map is image.cluster.features:
        keys.features[entry.key] = None
    elif not keys.maps or keys.maps[-1] is not entry.map:
        keys.maps.append(entry.map)


def _changes(image: Image, keys: _TouchedKeys, broker_id: int, *, is_initial: bool) -> Generator[None, None, Changes]:
    view, found = image.committed, _Sorted()
    for number, _ in enumerate(_sort_keys(view, keys, broker_id, found), 1):
        if number % _KEYS_PER_YIELD == 0:
            yield
    own, default = ConfigResource(BROKER_RESOURCE, str(broker_id)), ConfigResource(BROKER_RESOURCE, "")
    return Changes(
        offset=view.offset,
        is_initial=is_initial,
        hosted=tuple(found.hosted),
        leadership=tuple(found.leadership),
        membership=tuple(found.membership),
        dropped=tuple(found.dropped),
        topics=tuple(sorted(found.topics)),
        topics_created=tuple(sorted(found.created, key=lambda topic: topic.name)),
        topics_deleted=tuple(sorted(found.deleted, key=lambda topic: topic.name)),
        topic_configs=tuple(sorted(found.topic_configs)),
        broker_config=own in keys.configs,
        default_broker_config=default in keys.configs,
        other_configs=tuple(sorted(r for r in keys.configs if r.type != TOPIC_RESOURCE and r not in (own, default))),
        brokers=tuple(sorted(keys.brokers)),
        controllers=tuple(sorted(keys.controllers)),
        features=tuple(sorted(keys.features)),
        quotas=any(map_ is image.configs.quotas for map_ in keys.maps),
        acls=any(map_ is image.security.acls for map_ in keys.maps),
        scram=any(map_ is image.security.scram for map_ in keys.maps),
        tokens=any(map_ is image.security.tokens for map_ in keys.maps),
    )


def _sort_keys(view: View, keys: _TouchedKeys, broker_id: int, found: _Sorted) -> Iterator[None]:
    """Yields after each partition, topic or config."""
    named = []
    for topic_id in keys.partitions:
        named.append((_name(view, keys, topic_id), topic_id))
        yield
    for name, topic_id in sorted(named):
        for index, old in sorted(keys.partitions[topic_id].items()):
            new = view.partition(topic_id, index)
            if old != new:  # both None: created and deleted by one commit
                _sort_partition(PartitionDelta(name, topic_id, index, old, new), broker_id, found)
            yield
    for topic_id, before in keys.topics.items():
        after = view.topic_by_id(topic_id)
        if after is not None:
            found.topics[after.name] = None
        if before is None and after is not None:
            found.created.append(after)
        elif before is not None and after is None:
            found.deleted.append(before)
        yield
    for resource in keys.configs:
        if resource.type == TOPIC_RESOURCE and view.topic(resource.name) is not None:
            found.topic_configs.append(resource.name)
        yield


def _name(view: View, keys: _TouchedKeys, topic_id: Uuid) -> str:
    topic = view.topic_by_id(topic_id) or keys.topics.get(topic_id)
    return "" if topic is None else topic.name


def _sort_partition(delta: PartitionDelta, broker_id: int, found: _Sorted) -> None:
    if delta.new is not None:
        found.topics[delta.topic] = None
    before = delta.old is not None and broker_id in delta.old.replicas
    after = delta.new is not None and broker_id in delta.new.replicas
    if after and not before:
        found.hosted.append(delta)
    elif before and not after:
        found.dropped.append(delta)
    elif delta.old is not None and delta.new is not None and after:
        new_leadership = delta.old.leader_epoch != delta.new.leader_epoch
        (found.leadership if new_leadership else found.membership).append(delta)
