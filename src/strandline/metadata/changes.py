"""What a step of the committed metadata means for one broker.

`node/publisher` calls `changes_of` with what `Image.commit` (or `Image.load`) touched, or `everything` once at
start-up, and hands the answer to replication, coordinators and settings. Costs what was touched, not what exists.

The rule that matters (KIP-101): a changed *leader epoch* is a new leadership and restarts fetching; a change of the
partition epoch alone (ISR, replicas, directories) does not.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from strandline.metadata.image import Image
from strandline.metadata.values import (
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
    ConfigResource,
    PartitionInfo,
    PartitionKey,
    TopicInfo,
)
from strandline.metadata.views import View
from strandline.model.ids import Uuid
from strandline.model.timeline import ABSENT, Touched


class PartitionStep(NamedTuple):
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

    hosted: tuple[PartitionStep, ...] = ()
    """This broker has a replica where it had none."""
    leadership: tuple[PartitionStep, ...] = ()
    """Hosted before and after, and the leader epoch moved."""
    membership: tuple[PartitionStep, ...] = ()
    """Hosted before and after, same leader epoch: ISR, replicas, directories or recovery state moved."""
    dropped: tuple[PartitionStep, ...] = ()
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

    partitions: dict[PartitionKey, PartitionInfo | None] = msgspec.field(default_factory=dict)
    topics: dict[Uuid, TopicInfo | None] = msgspec.field(default_factory=dict)
    configs: dict[ConfigResource, None] = msgspec.field(default_factory=dict)
    brokers: dict[int, None] = msgspec.field(default_factory=dict)
    controllers: dict[int, None] = msgspec.field(default_factory=dict)
    features: dict[str, None] = msgspec.field(default_factory=dict)
    maps: list[object] = msgspec.field(default_factory=list)


def changes_of(image: Image, touched: Iterable[Touched], broker_id: int) -> Changes:
    """`touched` is what the last `commit` or `load` of this image answered."""
    gathered = _Gathered()
    for entry in touched:
        _gather(image, entry, gathered)
    return _changes(image, gathered, broker_id, whole=False)


def everything(image: Image, broker_id: int) -> Changes:
    """All of the committed view, for a broker that starts."""
    moment = image.committed.moment
    gathered = _Gathered(
        partitions=dict.fromkeys(image.topics.partitions.keys(moment)),
        topics=dict.fromkeys(image.topics.topics.keys(moment)),
        configs=dict.fromkeys(image.configs.configs.keys(moment)),
        brokers=dict.fromkeys(image.cluster.brokers.keys(moment)),
        controllers=dict.fromkeys(image.cluster.controllers.keys(moment)),
        features=dict.fromkeys(image.cluster.features.keys(moment)),
        maps=[image.configs.quotas, image.security.acls, image.security.scram, image.security.tokens],
    )
    return _changes(image, gathered, broker_id, whole=True)


def _gather(image: Image, entry: Touched, gathered: _Gathered) -> None:
    old = None if entry.old is ABSENT else entry.old
    if entry.map is image.topics.partitions:
        gathered.partitions.setdefault(entry.key, old)
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


def _changes(image: Image, gathered: _Gathered, broker_id: int, *, whole: bool) -> Changes:
    view = image.committed
    steps = _steps(view, gathered)
    hosted, leadership, membership, dropped = _sort(steps, broker_id)
    own, default = ConfigResource(BROKER_RESOURCE, str(broker_id)), ConfigResource(BROKER_RESOURCE, "")
    topic_configs = sorted(r.name for r in gathered.configs if r.type == TOPIC_RESOURCE and view.topic(r.name))
    touched_topics = {step.topic: None for step in steps if step.new is not None}
    for topic_id in gathered.topics:
        topic = view.topic_by_id(topic_id)
        if topic is not None:
            touched_topics[topic.name] = None
    created = [view.topic_by_id(topic_id) for topic_id, old in gathered.topics.items() if old is None]
    deleted = [old for topic_id, old in gathered.topics.items() if old is not None and not view.topic_by_id(topic_id)]
    return Changes(
        offset=view.offset,
        whole=whole,
        hosted=hosted,
        leadership=leadership,
        membership=membership,
        dropped=dropped,
        topics=tuple(sorted(touched_topics)),
        topics_created=tuple(sorted((t for t in created if t is not None), key=lambda topic: topic.name)),
        topics_deleted=tuple(sorted(deleted, key=lambda topic: topic.name)),
        topic_configs=tuple(topic_configs),
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


def _steps(view: View, gathered: _Gathered) -> list[PartitionStep]:
    by_topic: dict[Uuid, list[int]] = {}
    for topic_id, index in gathered.partitions:
        by_topic.setdefault(topic_id, []).append(index)
    named = [(_name(view, gathered, topic_id), topic_id) for topic_id in by_topic]
    steps = []
    for name, topic_id in sorted(named):
        for index in sorted(by_topic[topic_id]):
            old = gathered.partitions[topic_id, index]
            new = view.partition(topic_id, index)
            if old != new:  # both None: created and deleted within the step
                steps.append(PartitionStep(name, topic_id, index, old, new))
    return steps


def _name(view: View, gathered: _Gathered, topic_id: Uuid) -> str:
    topic = view.topic_by_id(topic_id) or gathered.topics.get(topic_id)
    return "" if topic is None else topic.name


def _sort(steps: list[PartitionStep], broker_id: int) -> tuple[tuple[PartitionStep, ...], ...]:
    hosted: list[PartitionStep] = []
    leadership: list[PartitionStep] = []
    membership: list[PartitionStep] = []
    dropped: list[PartitionStep] = []
    for step in steps:
        before = step.old is not None and broker_id in step.old.replicas
        after = step.new is not None and broker_id in step.new.replicas
        if after and not before:
            hosted.append(step)
        elif before and not after:
            dropped.append(step)
        elif step.old is not None and step.new is not None and after:
            moved = step.old.leader_epoch != step.new.leader_epoch
            (leadership if moved else membership).append(step)
    return tuple(hosted), tuple(leadership), tuple(membership), tuple(dropped)
