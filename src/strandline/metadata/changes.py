"""What a step of the committed metadata means for one broker.

`node/publisher` calls `changing` with what `Image.commit` (or `Image.load`) touched, or `everything` once at start-up,
and hands the answer, in `portions`, to replication, coordinators and settings. Costs what was touched, not what exists;
a large step is worked out with breaths in between, while the committed view stands still.

The rule that matters (KIP-101): a changed *leader epoch* is a new leadership and restarts fetching; a change of the
partition epoch alone (ISR, replicas, directories) does not.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from typing import Final, NamedTuple

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

# About two milliseconds of working out what they mean, or of acting on it.
_PER_BREATH: Final = 500
_PER_PORTION: Final = 200


class PartitionDelta(NamedTuple):
    """One partition before and after. `new` is None when it exists no more; `old` when it did not exist before."""

    topic: str
    topic_id: Uuid
    partition: int
    old: PartitionInfo | None
    new: PartitionInfo | None


class Changes(msgspec.Struct, frozen=True):
    """Everything is in a fixed order: partitions by topic name and index, names and ids sorted."""

    offset: int
    """The committed view stands here now."""
    whole: bool = False
    """The first step after start-up: all there is, told as if it were new."""

    hosted: tuple[PartitionDelta, ...] = ()
    """This broker has a replica where it had none."""
    leadership: tuple[PartitionDelta, ...] = ()
    """Hosted before and after, and the leader epoch moved."""
    membership: tuple[PartitionDelta, ...] = ()
    """Hosted before and after, same leader epoch: ISR, replicas, directories or recovery state moved."""
    dropped: tuple[PartitionDelta, ...] = ()
    """This broker had a replica and has none any more: the topic was deleted or the replica moved away."""

    topics: tuple[str, ...] = ()
    """Names of existing topics of which anything is different, hosted here or not."""
    topics_created: tuple[TopicInfo, ...] = ()
    topics_deleted: tuple[TopicInfo, ...] = ()
    """As they last were; a name may be in `topics_created` too, with a new id."""

    topic_configs: tuple[str, ...] = ()
    """Names of existing topics whose settings changed."""
    broker_config: bool = False
    """This broker's own dynamic settings changed."""
    default_broker_config: bool = False
    """The dynamic settings of all brokers changed."""
    other_configs: tuple[ConfigResource, ...] = ()
    """Groups, metrics subscriptions, other brokers."""

    brokers: tuple[int, ...] = ()
    """Brokers that registered, left, or changed."""
    controllers: tuple[int, ...] = ()
    features: tuple[str, ...] = ()
    quotas: bool = False
    acls: bool = False
    scram: bool = False
    tokens: bool = False


class _Gathered(msgspec.Struct):
    """The keys that were touched, each with what stood there before the first touch."""

    partitions: dict[Uuid, dict[int, PartitionInfo | None]] = msgspec.field(default_factory=dict)
    topics: dict[Uuid, TopicInfo | None] = msgspec.field(default_factory=dict)
    configs: dict[ConfigResource, None] = msgspec.field(default_factory=dict)
    brokers: dict[int, None] = msgspec.field(default_factory=dict)
    controllers: dict[int, None] = msgspec.field(default_factory=dict)
    features: dict[str, None] = msgspec.field(default_factory=dict)
    maps: list[object] = msgspec.field(default_factory=list)


class _Sorted(msgspec.Struct):
    """What was touched, by what it means for the broker."""

    hosted: list[PartitionDelta] = msgspec.field(default_factory=list)
    leadership: list[PartitionDelta] = msgspec.field(default_factory=list)
    membership: list[PartitionDelta] = msgspec.field(default_factory=list)
    dropped: list[PartitionDelta] = msgspec.field(default_factory=list)
    topics: dict[str, None] = msgspec.field(default_factory=dict)
    created: list[TopicInfo] = msgspec.field(default_factory=list)
    deleted: list[TopicInfo] = msgspec.field(default_factory=list)
    topic_configs: list[str] = msgspec.field(default_factory=list)


def changes_of(image: Image, touched: Iterable[Touched], broker_id: int) -> Changes:
    """`touched` is what the last `commit` or `load` of this image answered."""
    return _at_once(changing(image, touched, broker_id))


def changing(image: Image, touched: Iterable[Touched], broker_id: int) -> Generator[None, None, Changes]:
    """As `changes_of`, yielding now and then; the image must not be committed further meanwhile."""
    gathered = _Gathered()
    for number, entry in enumerate(touched, 1):
        _gather(image, entry, gathered)
        if number % _PER_BREATH == 0:
            yield
    return (yield from _changes(image, gathered, broker_id, whole=False))


def recreates_a_topic(image: Image, touched: Iterable[Touched]) -> bool:
    """Whether a name that had a topic before has another one now."""
    view = image.committed
    gone = [e for e in touched if e.map is image.topics.topics and e.old is not ABSENT and not view.topic_by_id(e.key)]
    return any(view.topic(entry.old.name) is not None for entry in gone)


def everything(image: Image, broker_id: int) -> Changes:
    """All of the committed view, for a broker that starts."""
    moment = image.committed.moment
    gathered = _Gathered(
        topics=dict.fromkeys(image.topics.topics.keys(moment)),
        configs=dict.fromkeys(image.configs.configs.keys(moment)),
        brokers=dict.fromkeys(image.cluster.brokers.keys(moment)),
        controllers=dict.fromkeys(image.cluster.controllers.keys(moment)),
        features=dict.fromkeys(image.cluster.features.keys(moment)),
        maps=[image.configs.quotas, image.security.acls, image.security.scram, image.security.tokens],
    )
    for topic_id, index in image.topics.partitions.keys(moment):
        gathered.partitions.setdefault(topic_id, {})[index] = None
    return _at_once(_changes(image, gathered, broker_id, whole=True))


# In this order: what is given up goes before what is new.
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
    """The same in parts, to be acted on one after the other. What is not a long list is in the first of them."""
    if sum(len(getattr(changes, name)) for name in _LISTS) <= _PER_PORTION:
        yield changes
        return
    portion = replace(changes, **dict.fromkeys(_LISTS, ()))
    for name in _LISTS:
        entries = getattr(changes, name)
        for first in range(0, len(entries), _PER_PORTION):
            yield replace(portion, **{name: entries[first : first + _PER_PORTION]})
            portion = Changes(changes.offset, changes.whole)


def _at_once(working_out: Generator[None, None, Changes]) -> Changes:
    while True:
        try:
            next(working_out)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


def _gather(image: Image, entry: Touched, gathered: _Gathered) -> None:
    old = None if entry.old is ABSENT else entry.old
    if entry.map is image.topics.partitions:
        topic_id, index = entry.key
        gathered.partitions.setdefault(topic_id, {}).setdefault(index, old)
    elif entry.map is image.topics.topics:
        gathered.topics.setdefault(entry.key, old)
    elif entry.map is image.configs.configs:
        gathered.configs[entry.key] = None
    elif entry.map is image.cluster.brokers:
        gathered.brokers[entry.key] = None
    elif entry.map is image.cluster.controllers:
        gathered.controllers[entry.key] = None
    elif entry.map is image.cluster.features:
        gathered.features[entry.key] = None
    elif not gathered.maps or gathered.maps[-1] is not entry.map:
        gathered.maps.append(entry.map)


def _changes(image: Image, gathered: _Gathered, broker_id: int, *, whole: bool) -> Generator[None, None, Changes]:
    view, found = image.committed, _Sorted()
    for number, _ in enumerate(_sorting(view, gathered, broker_id, found), 1):
        if number % _PER_BREATH == 0:
            yield
    own, default = ConfigResource(BROKER_RESOURCE, str(broker_id)), ConfigResource(BROKER_RESOURCE, "")
    return Changes(
        offset=view.offset,
        whole=whole,
        hosted=tuple(found.hosted),
        leadership=tuple(found.leadership),
        membership=tuple(found.membership),
        dropped=tuple(found.dropped),
        topics=tuple(sorted(found.topics)),
        topics_created=tuple(sorted(found.created, key=lambda topic: topic.name)),
        topics_deleted=tuple(sorted(found.deleted, key=lambda topic: topic.name)),
        topic_configs=tuple(sorted(found.topic_configs)),
        broker_config=own in gathered.configs,
        default_broker_config=default in gathered.configs,
        other_configs=tuple(
            sorted(r for r in gathered.configs if r.type != TOPIC_RESOURCE and r not in (own, default))
        ),
        brokers=tuple(sorted(gathered.brokers)),
        controllers=tuple(sorted(gathered.controllers)),
        features=tuple(sorted(gathered.features)),
        quotas=any(map_ is image.configs.quotas for map_ in gathered.maps),
        acls=any(map_ is image.security.acls for map_ in gathered.maps),
        scram=any(map_ is image.security.scram for map_ in gathered.maps),
        tokens=any(map_ is image.security.tokens for map_ in gathered.maps),
    )


def _sorting(view: View, gathered: _Gathered, broker_id: int, found: _Sorted) -> Iterator[None]:
    """One partition, topic or setting at a time."""
    named = []
    for topic_id in gathered.partitions:
        named.append((_name(view, gathered, topic_id), topic_id))
        yield
    for name, topic_id in sorted(named):
        for index, old in sorted(gathered.partitions[topic_id].items()):
            new = view.partition(topic_id, index)
            if old != new:  # both None: created and deleted within the step
                _sort(PartitionDelta(name, topic_id, index, old, new), broker_id, found)
            yield
    for topic_id, before in gathered.topics.items():
        after = view.topic_by_id(topic_id)
        if after is not None:
            found.topics[after.name] = None
        if before is None and after is not None:
            found.created.append(after)
        elif before is not None and after is None:
            found.deleted.append(before)
        yield
    for resource in gathered.configs:
        if resource.type == TOPIC_RESOURCE and view.topic(resource.name) is not None:
            found.topic_configs.append(resource.name)
        yield


def _name(view: View, gathered: _Gathered, topic_id: Uuid) -> str:
    topic = view.topic_by_id(topic_id) or gathered.topics.get(topic_id)
    return "" if topic is None else topic.name


def _sort(step: PartitionDelta, broker_id: int, found: _Sorted) -> None:
    if step.new is not None:
        found.topics[step.topic] = None
    before = step.old is not None and broker_id in step.old.replicas
    after = step.new is not None and broker_id in step.new.replicas
    if after and not before:
        found.hosted.append(step)
    elif before and not after:
        found.dropped.append(step)
    elif step.old is not None and step.new is not None and after:
        moved = step.old.leader_epoch != step.new.leader_epoch
        (found.leadership if moved else found.membership).append(step)
