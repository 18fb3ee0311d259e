"""The metadata image as a tree: `/topics/orders/0/isr`, `/brokers/1/endpoints/PLAINTEXT`.

For `cli/metadata`. Branches are built on access, so that one leaf among a hundred thousand partitions costs one leaf.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from strandline.cli.log_dump import plain
from strandline.metadata.image import Image
from strandline.metadata.values import (
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    BrokerEndpoint,
    BrokerInfo,
    ControllerInfo,
    PartitionInfo,
    TopicInfo,
)
from strandline.metadata.views import View
from strandline.protocol.messages.control_records import KRaftVersionRecord, LeaderChangeMessage, VotersRecord
from strandline.protocol.types import Message
from strandline.raft.machine.voters import VoterSet

Leaf = str | int | float | bool | list[Any] | None
Build = Callable[[], "Node"]
DEFAULT = "(default)"
_CONFIG_KINDS = {
    "topics": TOPIC_RESOURCE,
    "brokers": BROKER_RESOURCE,
    "groups": GROUP_RESOURCE,
    "client-metrics": CLIENT_METRICS_RESOURCE,
}


class Branch(msgspec.Struct, frozen=True):
    """Child names, each with the function that builds the child."""

    children: Mapping[str, Build]

    def child(self, name: str) -> Node | None:
        build = self.children.get(name)
        return None if build is None else build()


Node = Branch | Leaf


class QuorumFacts(msgspec.Struct):
    """The state of the quorum, from the control records of the log."""

    kraft_version: int = 0
    voters: VoterSet | None = None
    leader_id: int = -1
    epoch: int = 0

    def on_record(self, record: Message, epoch: int) -> None:
        if isinstance(record, KRaftVersionRecord):
            self.kraft_version = record.kraft_version
        elif isinstance(record, VotersRecord):
            self.voters = VoterSet.of_record(record)
        elif isinstance(record, LeaderChangeMessage):
            self.leader_id, self.epoch = record.leader_id, epoch


def metadata_tree(image: Image, quorum: QuorumFacts) -> Branch:
    view = image.latest
    return Branch(
        {
            "acls": lambda: _acls(view),
            "brokers": lambda: _members(view.brokers(), _broker),
            "configs": lambda: _configs(view),
            "controllers": lambda: _members(view.controllers(), _controller),
            "features": lambda: _leaves(view.features()),
            "offset": lambda: view.offset,
            "producer-ids": lambda: _leaves({"next": view.next_producer_id}),
            "quorum": lambda: _quorum(quorum),
            "quotas": lambda: _quotas(view),
            "scram": lambda: _scram(view),
            "tokens": lambda: _branch({each.token_id: _message(each) for each in view.tokens()}),
            "topic-ids": lambda: _leaves({str(topic.id): topic.name for topic in view.topics()}),
            "topics": lambda: _topics(view),
        }
    )


def _branch(children: Mapping[str, Node]) -> Branch:
    return Branch({name: (lambda node=node: node) for name, node in children.items()})  # type: ignore[misc]


def _leaves(values: Mapping[str, Leaf]) -> Branch:
    return _branch(values)


def _topics(view: View) -> Branch:
    def build(topic: TopicInfo) -> Build:
        return lambda: _topic(view, topic)

    return Branch({topic.name: build(topic) for topic in view.topics()})


def _topic(view: View, topic: TopicInfo) -> Branch:
    children: dict[str, Build] = {"id": lambda: str(topic.id)}
    for index, partition in enumerate(view.partitions(topic.id)):
        children[str(index)] = lambda partition=partition: _partition(partition)  # type: ignore[misc]
    return Branch(children)


def _partition(partition: PartitionInfo) -> Branch:
    return _leaves(
        {
            "adding": list(partition.adding),
            "directories": [str(each) for each in partition.directories],
            "elr": list(partition.elr),
            "isr": list(partition.isr),
            "last-known-elr": list(partition.last_known_elr),
            "leader": partition.leader,
            "leader-epoch": partition.leader_epoch,
            "partition-epoch": partition.partition_epoch,
            "recovering": bool(partition.leader_recovery_state),
            "removing": list(partition.removing),
            "replicas": list(partition.replicas),
        }
    )


def _members(members: Iterable[Any], build: Callable[[Any], Branch]) -> Branch:
    return _branch({str(each.id): build(each) for each in members})


def _broker(broker: BrokerInfo) -> Branch:
    cordoned = broker.cordoned_directories
    return _branch(
        {
            "cordoned-directories": None if cordoned is None else [str(each) for each in cordoned],
            "directories": [str(each) for each in broker.directories],
            "endpoints": _endpoints(broker.endpoints),
            "epoch": broker.epoch,
            "features": _supported(broker.features),
            "fenced": broker.fenced,
            "in-controlled-shutdown": broker.in_controlled_shutdown,
            "incarnation": str(broker.incarnation_id),
            "rack": broker.rack,
        }
    )


def _controller(controller: ControllerInfo) -> Branch:
    return _branch(
        {
            "endpoints": _endpoints(controller.endpoints),
            "features": _supported(controller.features),
            "incarnation": str(controller.incarnation_id),
        }
    )


def _endpoints(endpoints: Iterable[BrokerEndpoint]) -> Branch:
    return _leaves({each.name: f"{each.host}:{each.port}" for each in endpoints})


def _supported(features: Iterable[tuple[str, int, int]]) -> Branch:
    return _leaves({name: f"{low}-{high}" for name, low, high in features})


def _configs(view: View) -> Branch:
    def kind(resource_type: int) -> Build:
        return lambda: _branch(
            {
                name or DEFAULT: _leaves(view.configs(resource_type, name))
                for name in view.config_resources(resource_type)
            }
        )

    return Branch({name: kind(resource_type) for name, resource_type in _CONFIG_KINDS.items()})


def _quotas(view: View) -> Branch:
    named = {
        ",".join(f"{kind}={DEFAULT if name is None else name}" for kind, name in entity): _leaves(values)
        for entity, values in view.quotas().items()
    }
    return _branch(dict(sorted(named.items())))


def _acls(view: View) -> Branch:
    return _branch({str(each.id): _message(each) for each in view.acls()})


def _scram(view: View) -> Branch:
    """Users and mechanisms, without the credentials."""
    mechanisms = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
    users: dict[str, dict[str, Node]] = {}
    for each in view.scram_credentials():
        mechanism = mechanisms.get(each.mechanism, str(each.mechanism))
        users.setdefault(each.name, {})[mechanism] = f"{each.iterations} iterations"
    return _branch({user: _branch(credentials) for user, credentials in sorted(users.items())})


def _message(message: Message) -> Branch:
    return _leaves(plain(message))


def _quorum(quorum: QuorumFacts) -> Branch:
    voters = quorum.voters.voters if quorum.voters is not None else ()
    return _branch(
        {
            "epoch": quorum.epoch,
            "kraft.version": quorum.kraft_version,
            "leader": quorum.leader_id,
            "voters": _branch(
                {
                    str(voter.id): _branch(
                        {
                            "directory": str(voter.directory_id),
                            "endpoints": _leaves({name: str(at) for name, at in voter.listeners}),
                        }
                    )
                    for voter in voters
                }
            ),
        }
    )


def find(tree: Branch, path: str) -> Iterator[tuple[str, Node]]:
    """The nodes that match the path, which may contain `*`, `?` and `[…]`."""
    parts = [part for part in path.split("/") if part]
    yield from _find(tree, "", parts)


def _find(node: Node, path: str, parts: list[str]) -> Iterator[tuple[str, Node]]:
    if not parts:
        yield path or "/", node
        return
    if not isinstance(node, Branch):
        return
    name, rest = parts[0], parts[1:]
    if name in node.children:
        yield from _find(node.child(name), f"{path}/{name}", rest)
    elif any(character in name for character in "*?["):
        for each in node.children:
            if fnmatch.fnmatchcase(each, name):
                yield from _find(node.child(each), f"{path}/{each}", rest)


def leaves(node: Node, path: str) -> Iterator[tuple[str, Leaf]]:
    """All leaves below, in order."""
    if not isinstance(node, Branch):
        yield path, node
        return
    for name in node.children:
        yield from leaves(node.child(name), f"{path.rstrip('/')}/{name}")


def document(node: Node) -> Any:
    """A node and its children as a JSON document."""
    if not isinstance(node, Branch):
        return node
    return {name: document(node.child(name)) for name in node.children}
