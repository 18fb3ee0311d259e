"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources."""

from __future__ import annotations

from cluster.handlers.scripts.running import Asked, script
from cluster.handlers.talk import Talk
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsRequestAlterableConfig,
    AlterConfigsRequestAlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestAlterableConfig,
    IncrementalAlterConfigsRequestAlterConfigsResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
NAMED = "an error that has a name is told by it"
REFUSED_EVERYWHERE = "what a broker refuses, a controller refuses too"
FEW = ["retention.ms", "cleanup.policy", "segment.bytes"]


def described(talk: Talk, kind: int, name: str, keys: list[str] | None, **flags: bool) -> DescribeConfigsRequest:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=flags.get("synonyms", False))
    if talk.version >= 3:
        request.include_documentation = flags.get("documentation", False)
    return request


@script(ApiKey.DESCRIBE_CONFIGS)
def configuration_described(talk: Talk) -> None:
    name = talk.topic("t", segment_bytes="2000000")

    def ask(
        label: str, kind: int, resource: str, keys: list[str] | None, differs: str | None = None, **flags: bool
    ) -> None:
        request = described(talk, kind, resource, keys, **flags)
        talk.ask(label, request, differs=differs, unordered={"configs"})

    ask("some keys of a topic", TOPIC, name, FEW)
    ask("with synonyms", TOPIC, name, FEW, synonyms=True)
    ask("with documentation", TOPIC, name, FEW, documentation=True)
    ask("no keys of a topic", TOPIC, name, [])
    ask("a key that is not there", TOPIC, name, ["no.such.key"])
    ask("a key twice", TOPIC, name, ["retention.ms", "retention.ms"])
    ask("a topic that is not there", TOPIC, talk.name("nowhere"), FEW)
    ask("a topic with an illegal name", TOPIC, "../x", FEW)
    ask("a topic without a name", TOPIC, "", FEW)
    ask("some keys of the broker", BROKER, "1", ["num.partitions", "log.retention.ms", "node.id"], synonyms=True)
    ask("another broker", BROKER, "2", FEW)
    ask("a broker that is no number", BROKER, "one", FEW)
    ask("all brokers", BROKER, "", ["min.insync.replicas", "log.retention.ms"], synonyms=True)
    ask("a group", GROUP, "g", ["consumer.session.timeout.ms"], synonyms=True)
    ask("a group without a name", GROUP, "", None)
    ask("a metrics subscription that is not there", CLIENT_METRICS, "m", ["interval.ms"], synonyms=True)
    ask("a metrics subscription without a name", CLIENT_METRICS, "", None)
    level = Incremental(talk).resource(BROKER_LOGGER, "1", ("root", SET, "INFO"))
    talk.quietly(IncrementalAlterConfigsRequest(resources=[level]))
    for label, node in (("the node", "1"), ("another node", "7"), ("no node", ""), ("a node without a number", "one")):
        ask(f"a logger of {label}", BROKER_LOGGER, node, ["root"], synonyms=True)
    ask("a logger that is not there", BROKER_LOGGER, "1", ["no.such.logger"])
    for kind in (0, 1, 3, 64, -1):
        ask(f"a resource of type {kind}", kind, "x", None)
    talk.ask("nothing", DescribeConfigsRequest())
    both = described(talk, TOPIC, name, ["retention.ms"])
    both.resources += described(talk, TOPIC, talk.name("nowhere"), FEW).resources
    talk.ask("one that is there and one that is not", both, unordered={"results"})
    twice = described(talk, TOPIC, name, ["retention.ms"])
    twice.resources += described(talk, TOPIC, name, ["cleanup.policy"]).resources
    talk.ask("the same resource twice", twice, unordered={"results"})


@script(ApiKey.DESCRIBE_CONFIGS, Asked.CONTROLLER)
def configuration_described_by_a_controller(talk: Talk) -> None:
    name = talk.topic("t", segment_bytes="2000000")

    def ask(label: str, kind: int, resource: str, keys: list[str] | None) -> None:
        talk.ask(label, described(talk, kind, resource, keys), unordered={"configs"})

    ask("a topic", TOPIC, name, FEW)
    ask("a topic that is not there", TOPIC, talk.name("nowhere"), FEW)
    ask("the node", BROKER, "1", ["num.partitions", "node.id"])
    ask("another node", BROKER, "2", FEW)


class Incremental:
    def __init__(self, talk: Talk) -> None:
        self.talk = talk

    def resource(
        self, kind: int, name: str, *changes: tuple[str, int, str | None]
    ) -> IncrementalAlterConfigsRequestAlterConfigsResource:
        return IncrementalAlterConfigsRequestAlterConfigsResource(
            resource_type=kind,
            resource_name=name,
            configs=[
                IncrementalAlterConfigsRequestAlterableConfig(name=key, config_operation=operation, value=value)
                for key, operation, value in changes
            ],
        )

    def ask(
        self,
        label: str,
        kind: int,
        name: str,
        *changes: tuple[str, int, str | None],
        validate: bool = False,
        differs: str | None = None,
    ) -> None:
        request = IncrementalAlterConfigsRequest(
            resources=[self.resource(kind, name, *changes)], validate_only=validate
        )
        self.talk.ask(label, request, differs=differs)


def loggers(talk: Talk, change: Incremental) -> None:
    """Only the root has the same name on both sides."""
    change.ask("of a logger", BROKER_LOGGER, "1", ("root", SET, "WARN"))
    talk.ask("of a logger, afterwards", described(talk, BROKER_LOGGER, "1", ["root"], synonyms=False), version=4)
    change.ask("of a logger, as it was", BROKER_LOGGER, "1", ("root", SET, "INFO"))
    change.ask("of a logger, validated only", BROKER_LOGGER, "1", ("root", SET, "ERROR"), validate=True)
    change.ask("of a logger that is not there", BROKER_LOGGER, "1", ("no.such.logger", SET, "INFO"))
    change.ask("of a logger, a level that is none", BROKER_LOGGER, "1", ("root", SET, "LOUD"))
    change.ask("of a logger, a level in small letters", BROKER_LOGGER, "1", ("root", SET, "info"), validate=True)
    change.ask("of a logger, no level", BROKER_LOGGER, "1", ("root", SET, None))
    change.ask("of the root logger, deleted", BROKER_LOGGER, "1", ("root", DELETE, None))
    change.ask("of a logger, appended", BROKER_LOGGER, "1", ("root", APPEND, "INFO"))
    change.ask("of a logger of another node", BROKER_LOGGER, "7", ("root", SET, "INFO"))
    change.ask("of a logger of no node", BROKER_LOGGER, "", ("root", SET, "INFO"))
    change.ask("of a logger of a node without a number", BROKER_LOGGER, "one", ("root", SET, "INFO"))
    change.ask("of a logger, twice", BROKER_LOGGER, "1", ("root", SET, "INFO"), ("root", SET, "WARN"))


def show(talk: Talk, label: str, kind: int, name: str, keys: list[str]) -> None:
    """What is set, when all is done: told in one version, whichever the script is run in."""
    talk.settle(label.replace(" ", "-"))
    request = described(talk, kind, name, keys, synonyms=False)
    talk.ask(label, request, version=4, unordered={"configs"})


def increments(talk: Talk) -> None:
    change = Incremental(talk)
    name = talk.topic("t")
    change.ask("set", TOPIC, name, ("retention.ms", SET, "5000"))
    change.ask("set, validated only", TOPIC, name, ("retention.ms", SET, "7000"), validate=True)
    change.ask("append", TOPIC, name, ("cleanup.policy", APPEND, "compact"))
    change.ask("append what is there", TOPIC, name, ("cleanup.policy", APPEND, "compact"))
    change.ask("subtract", TOPIC, name, ("cleanup.policy", SUBTRACT, "delete"))
    change.ask("subtract what is not there", TOPIC, name, ("cleanup.policy", SUBTRACT, "delete"))
    change.ask("append to what is no list", TOPIC, name, ("retention.ms", APPEND, "1"))
    change.ask("delete", TOPIC, name, ("retention.ms", DELETE, None))
    change.ask("delete what is not set", TOPIC, name, ("segment.ms", DELETE, None))
    change.ask("delete with a value", TOPIC, name, ("segment.ms", DELETE, "1"))
    if not talk.controller:  # Kafka's controller breaks down over these
        change.ask("set to null", TOPIC, name, ("retention.ms", SET, None))
        change.ask("an operation that is not there", TOPIC, name, ("retention.ms", 9, "1"), differs=NAMED)
    change.ask("set to nothing", TOPIC, name, ("retention.ms", SET, ""))
    change.ask("a key that is not there", TOPIC, name, ("no.such.key", SET, "1"))
    change.ask("delete a key that is not there", TOPIC, name, ("no.such.key", DELETE, None))
    change.ask("a value that is none", TOPIC, name, ("retention.ms", SET, "soon"))
    change.ask("a value out of range", TOPIC, name, ("min.insync.replicas", SET, "0"))
    change.ask(
        "a key twice",
        TOPIC,
        name,
        ("retention.ms", SET, "1"),
        ("retention.ms", SET, "2"),
        validate=talk.controller,
        differs=REFUSED_EVERYWHERE if talk.controller else None,
    )
    change.ask("one good, one bad", TOPIC, name, ("retention.ms", SET, "1"), ("segment.bytes", SET, "x"))
    change.ask("no keys", TOPIC, name)
    change.ask("an empty key", TOPIC, name, ("", SET, "1"))
    change.ask("a topic that is not there", TOPIC, talk.name("nowhere"), ("retention.ms", SET, "1"))
    change.ask("a topic with an illegal name", TOPIC, "../x", ("retention.ms", SET, "1"))
    change.ask("a topic without a name", TOPIC, "", ("retention.ms", SET, "1"))
    show(talk, "what is set in the end", TOPIC, name, ["retention.ms", "cleanup.policy", "segment.ms"])


@script(ApiKey.INCREMENTAL_ALTER_CONFIGS)
def keys_of_a_topic_changed(talk: Talk) -> None:
    increments(talk)
    change = Incremental(talk)
    talk.ask("nothing", IncrementalAlterConfigsRequest())
    one = change.resource(TOPIC, talk.name("t"), ("retention.ms", SET, "9"))
    gone = change.resource(TOPIC, talk.name("nowhere"), ("retention.ms", SET, "9"))
    request = IncrementalAlterConfigsRequest(resources=[one, gone])
    talk.ask("one that is there and one that is not", request, unordered={"responses"})
    request = IncrementalAlterConfigsRequest(resources=[one, one])
    talk.ask("the same resource twice", request, unordered={"responses"})


@script(ApiKey.INCREMENTAL_ALTER_CONFIGS, Asked.CONTROLLER)
def keys_of_a_topic_changed_by_a_controller(talk: Talk) -> None:
    increments(talk)


@script(ApiKey.INCREMENTAL_ALTER_CONFIGS)
def keys_of_others_changed(talk: Talk) -> None:
    change = Incremental(talk)
    change.ask("of the broker", BROKER, "1", ("log.cleaner.threads", SET, "1"))
    change.ask("of the broker, which cannot change", BROKER, "1", ("node.id", SET, "1"))
    change.ask("of the broker, unknown", BROKER, "1", ("no.such.key", SET, "1"), validate=True)
    change.ask("of the broker, a value that is none", BROKER, "1", ("log.retention.ms", SET, "soon"))
    change.ask("of the broker, deleted", BROKER, "1", ("log.cleaner.threads", DELETE, None))
    change.ask("of another broker", BROKER, "7", ("log.retention.ms", SET, "1"), validate=True)
    change.ask("of a broker that is no number", BROKER, "one", ("log.retention.ms", SET, "1"))
    change.ask("of all brokers", BROKER, "", ("message.max.bytes", SET, "2000000"))
    change.ask("of all brokers, deleted", BROKER, "", ("message.max.bytes", DELETE, None))
    change.ask("of all brokers, which each has its own", BROKER, "", ("advertised.listeners", SET, "X://y:1"))
    change.ask("of a group", GROUP, "g", ("consumer.session.timeout.ms", SET, "50000"))
    change.ask("of a group, unknown", GROUP, "g", ("no.such.key", SET, "1"))
    change.ask("of a group without a name", GROUP, "", ("consumer.session.timeout.ms", SET, "50000"))
    change.ask("of a metrics subscription", CLIENT_METRICS, "m", ("interval.ms", SET, "5000"))
    change.ask("of a metrics subscription, bad", CLIENT_METRICS, "m", ("interval.ms", SET, "1"))
    loggers(talk, change)
    for kind in (0, 1, 3, 64):
        change.ask(f"of a resource of type {kind}", kind, "x", ("a", SET, "b"))


@script(ApiKey.ALTER_CONFIGS, Asked.BOTH)
def configuration_replaced(talk: Talk) -> None:
    name = talk.topic("t", segment_bytes="2000000")

    stricter = REFUSED_EVERYWHERE if talk.controller else None

    def ask(
        label: str,
        kind: int,
        resource: str,
        *values: tuple[str, str | None],
        validate: bool = False,
        differs: str | None = None,
    ) -> None:
        one = AlterConfigsRequestAlterConfigsResource(
            resource_type=kind,
            resource_name=resource,
            configs=[AlterConfigsRequestAlterableConfig(name=key, value=value) for key, value in values],
        )
        talk.ask(label, AlterConfigsRequest(resources=[one], validate_only=validate), differs=differs)

    ask("with one key", TOPIC, name, ("retention.ms", "5000"))
    show(talk, "what is set", TOPIC, name, FEW)
    ask("validated only", TOPIC, name, ("retention.ms", "7000"), validate=True)
    ask("with null", TOPIC, name, ("retention.ms", None), validate=True, differs=stricter)
    ask("with a value that is none", TOPIC, name, ("retention.ms", "soon"))
    ask("with a key that is not there", TOPIC, name, ("no.such.key", "1"))
    ask("with a key twice", TOPIC, name, ("retention.ms", "1"), ("retention.ms", "2"), validate=True, differs=stricter)
    ask("with nothing", TOPIC, name)
    show(talk, "what is set then", TOPIC, name, FEW)
    ask("of a topic that is not there", TOPIC, talk.name("nowhere"), ("retention.ms", "1"))
    ask("of a topic with an illegal name", TOPIC, "../x", ("retention.ms", "1"))
    ask("of a broker that is no number", BROKER, "one", ("log.retention.ms", "1"))
    ask("of a resource of no type", 0, "x", ("a", "b"), differs=stricter)
    talk.ask("nothing", AlterConfigsRequest())


@script(ApiKey.LIST_CONFIG_RESOURCES)
def resources_listed(talk: Talk) -> None:
    name = talk.topic("t")
    change = Incremental(talk)
    request = IncrementalAlterConfigsRequest(
        resources=[
            change.resource(CLIENT_METRICS, f"m{talk.version}", ("interval.ms", SET, "5000")),
            change.resource(GROUP, f"g{talk.version}", ("consumer.session.timeout.ms", SET, "50000")),
        ]
    )
    talk.quietly(request)
    talk.settle("the-settings")
    known = {name, "1", f"m{talk.version}", f"g{talk.version}"}

    def only_own(answer: ListConfigResourcesResponse) -> None:
        answer.config_resources = [each for each in answer.config_resources if each.resource_name in known]

    def ask(label: str, *kinds: int, differs: str | None = None) -> None:
        request = ListConfigResourcesRequest(resource_types=list(kinds))
        talk.ask(label, request, change=only_own, differs=differs, unordered={"config_resources"})

    ask("of all types")
    if talk.version >= 1:
        for kind in (TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, 0, 1, 99):
            ask(f"of type {kind}", kind)
        ask("of two types", TOPIC, GROUP)
        ask("of one type twice", TOPIC, TOPIC)
        ask("of one type that is there and one that is not", TOPIC, 99)
