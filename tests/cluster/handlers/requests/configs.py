"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources."""

from __future__ import annotations

from cluster.handlers.script_run import SPECIFIC_ERROR, ScriptRun
from cluster.handlers.script_runner import Listeners, script
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
REJECTED_EVERYWHERE = "what a broker rejects, a controller rejects too"
SOME_KEYS = ["retention.ms", "cleanup.policy", "segment.bytes"]


def described(run: ScriptRun, kind: int, name: str, keys: list[str] | None, **flags: bool) -> DescribeConfigsRequest:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=flags.get("synonyms", False))
    if run.version >= 3:
        request.include_documentation = flags.get("documentation", False)
    return request


@script(ApiKey.DESCRIBE_CONFIGS)
def configs_described(run: ScriptRun) -> None:
    name = run.topic("t", segment_bytes="2000000")

    def record(
        label: str, kind: int, resource: str, keys: list[str] | None, differs: str | None = None, **flags: bool
    ) -> None:
        request = described(run, kind, resource, keys, **flags)
        run.record(label, request, differs=differs, unordered={"configs"})

    record("some keys of a topic", TOPIC, name, SOME_KEYS)
    record("with synonyms", TOPIC, name, SOME_KEYS, synonyms=True)
    record("with documentation", TOPIC, name, SOME_KEYS, documentation=True)
    record("no keys of a topic", TOPIC, name, [])
    record("an unknown key", TOPIC, name, ["no.such.key"])
    record("a key twice", TOPIC, name, ["retention.ms", "retention.ms"])
    record("an unknown topic", TOPIC, run.name("nowhere"), SOME_KEYS)
    record("a topic with an invalid name", TOPIC, "../x", SOME_KEYS)
    record("a topic without a name", TOPIC, "", SOME_KEYS)
    record("some keys of the broker", BROKER, "1", ["num.partitions", "log.retention.ms", "node.id"], synonyms=True)
    record("another broker", BROKER, "2", SOME_KEYS)
    record("a broker whose id is not a number", BROKER, "one", SOME_KEYS)
    record("all brokers", BROKER, "", ["min.insync.replicas", "log.retention.ms"], synonyms=True)
    record("a group", GROUP, "g", ["consumer.session.timeout.ms"], synonyms=True)
    record("a group without a name", GROUP, "", None)
    record("an unknown metrics subscription", CLIENT_METRICS, "m", ["interval.ms"], synonyms=True)
    record("a metrics subscription without a name", CLIENT_METRICS, "", None)
    level = Incremental(run).resource(BROKER_LOGGER, "1", ("root", SET, "INFO"))
    run.call(IncrementalAlterConfigsRequest(resources=[level]))
    for label, node in (
        ("the node", "1"),
        ("another node", "7"),
        ("no node", ""),
        ("a node whose id is not a number", "one"),
    ):
        record(f"a logger of {label}", BROKER_LOGGER, node, ["root"], synonyms=True)
    record("an unknown logger", BROKER_LOGGER, "1", ["no.such.logger"])
    for kind in (0, 1, 3, 64, -1):
        record(f"a resource of type {kind}", kind, "x", None)
    run.record("an empty request", DescribeConfigsRequest())
    both = described(run, TOPIC, name, ["retention.ms"])
    both.resources += described(run, TOPIC, run.name("nowhere"), SOME_KEYS).resources
    run.record("one known, one unknown", both, unordered={"results"})
    twice = described(run, TOPIC, name, ["retention.ms"])
    twice.resources += described(run, TOPIC, name, ["cleanup.policy"]).resources
    run.record("the same resource twice", twice, unordered={"results"})


@script(ApiKey.DESCRIBE_CONFIGS, Listeners.CONTROLLER)
def configs_described_by_a_controller(run: ScriptRun) -> None:
    name = run.topic("t", segment_bytes="2000000")

    def record(label: str, kind: int, resource: str, keys: list[str] | None) -> None:
        run.record(label, described(run, kind, resource, keys), unordered={"configs"})

    record("a topic", TOPIC, name, SOME_KEYS)
    record("an unknown topic", TOPIC, run.name("nowhere"), SOME_KEYS)
    record("the node", BROKER, "1", ["num.partitions", "node.id"])
    record("another node", BROKER, "2", SOME_KEYS)


class Incremental:
    def __init__(self, run: ScriptRun) -> None:
        self.run = run

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

    def record(
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
        self.run.record(label, request, differs=differs)


def loggers(run: ScriptRun, change: Incremental) -> None:
    """Only the root logger has the same name in both implementations."""
    change.record("of a logger", BROKER_LOGGER, "1", ("root", SET, "WARN"))
    run.record("of a logger, afterwards", described(run, BROKER_LOGGER, "1", ["root"], synonyms=False), version=4)
    change.record("of a logger, back to INFO", BROKER_LOGGER, "1", ("root", SET, "INFO"))
    change.record("of a logger, validated only", BROKER_LOGGER, "1", ("root", SET, "ERROR"), validate=True)
    change.record("of an unknown logger", BROKER_LOGGER, "1", ("no.such.logger", SET, "INFO"))
    change.record("of a logger, an invalid level", BROKER_LOGGER, "1", ("root", SET, "LOUD"))
    change.record("of a logger, a level in lower case", BROKER_LOGGER, "1", ("root", SET, "info"), validate=True)
    change.record("of a logger, no level", BROKER_LOGGER, "1", ("root", SET, None))
    change.record("of the root logger, deleted", BROKER_LOGGER, "1", ("root", DELETE, None))
    change.record("of a logger, appended", BROKER_LOGGER, "1", ("root", APPEND, "INFO"))
    change.record("of a logger of another node", BROKER_LOGGER, "7", ("root", SET, "INFO"))
    change.record("of a logger of no node", BROKER_LOGGER, "", ("root", SET, "INFO"))
    change.record("of a logger of a node whose id is not a number", BROKER_LOGGER, "one", ("root", SET, "INFO"))
    change.record("of a logger, twice", BROKER_LOGGER, "1", ("root", SET, "INFO"), ("root", SET, "WARN"))


def show(run: ScriptRun, label: str, kind: int, name: str, keys: list[str]) -> None:
    """Records configs after all changes, in one version, whatever the version of the script."""
    run.wait_until_replayed(label.replace(" ", "-"))
    request = described(run, kind, name, keys, synonyms=False)
    run.record(label, request, version=4, unordered={"configs"})


def increments(run: ScriptRun) -> None:
    change = Incremental(run)
    name = run.topic("t")
    change.record("set", TOPIC, name, ("retention.ms", SET, "5000"))
    change.record("set, validated only", TOPIC, name, ("retention.ms", SET, "7000"), validate=True)
    change.record("append", TOPIC, name, ("cleanup.policy", APPEND, "compact"))
    change.record("append a present element", TOPIC, name, ("cleanup.policy", APPEND, "compact"))
    change.record("subtract", TOPIC, name, ("cleanup.policy", SUBTRACT, "delete"))
    change.record("subtract an absent element", TOPIC, name, ("cleanup.policy", SUBTRACT, "delete"))
    change.record("append to a value that is not a list", TOPIC, name, ("retention.ms", APPEND, "1"))
    change.record("delete", TOPIC, name, ("retention.ms", DELETE, None))
    change.record("delete a key that is not set", TOPIC, name, ("segment.ms", DELETE, None))
    change.record("delete with a value", TOPIC, name, ("segment.ms", DELETE, "1"))
    if not run.controller:  # Kafka's controller fails on these
        change.record("set to null", TOPIC, name, ("retention.ms", SET, None))
        change.record("an unknown operation", TOPIC, name, ("retention.ms", 9, "1"), differs=SPECIFIC_ERROR)
    change.record("set to an empty value", TOPIC, name, ("retention.ms", SET, ""))
    change.record("an unknown key", TOPIC, name, ("no.such.key", SET, "1"))
    change.record("delete an unknown key", TOPIC, name, ("no.such.key", DELETE, None))
    change.record("an invalid value", TOPIC, name, ("retention.ms", SET, "soon"))
    change.record("a value out of range", TOPIC, name, ("min.insync.replicas", SET, "0"))
    change.record(
        "a key twice",
        TOPIC,
        name,
        ("retention.ms", SET, "1"),
        ("retention.ms", SET, "2"),
        validate=run.controller,
        differs=REJECTED_EVERYWHERE if run.controller else None,
    )
    change.record("one good, one bad", TOPIC, name, ("retention.ms", SET, "1"), ("segment.bytes", SET, "x"))
    change.record("no keys", TOPIC, name)
    change.record("an empty key", TOPIC, name, ("", SET, "1"))
    change.record("an unknown topic", TOPIC, run.name("nowhere"), ("retention.ms", SET, "1"))
    change.record("a topic with an invalid name", TOPIC, "../x", ("retention.ms", SET, "1"))
    change.record("a topic without a name", TOPIC, "", ("retention.ms", SET, "1"))
    show(run, "the resulting configs", TOPIC, name, ["retention.ms", "cleanup.policy", "segment.ms"])


@script(ApiKey.INCREMENTAL_ALTER_CONFIGS)
def topic_configs_altered(run: ScriptRun) -> None:
    increments(run)
    change = Incremental(run)
    run.record("an empty request", IncrementalAlterConfigsRequest())
    one = change.resource(TOPIC, run.name("t"), ("retention.ms", SET, "9"))
    unknown = change.resource(TOPIC, run.name("nowhere"), ("retention.ms", SET, "9"))
    request = IncrementalAlterConfigsRequest(resources=[one, unknown])
    run.record("one known, one unknown", request, unordered={"responses"})
    request = IncrementalAlterConfigsRequest(resources=[one, one])
    run.record("the same resource twice", request, unordered={"responses"})


@script(ApiKey.INCREMENTAL_ALTER_CONFIGS, Listeners.CONTROLLER)
def topic_configs_altered_by_a_controller(run: ScriptRun) -> None:
    increments(run)


@script(ApiKey.INCREMENTAL_ALTER_CONFIGS)
def other_configs_altered(run: ScriptRun) -> None:
    change = Incremental(run)
    change.record("of the broker", BROKER, "1", ("log.cleaner.threads", SET, "1"))
    change.record("of the broker, a read-only key", BROKER, "1", ("node.id", SET, "1"))
    change.record("of the broker, unknown", BROKER, "1", ("no.such.key", SET, "1"), validate=True)
    change.record("of the broker, an invalid value", BROKER, "1", ("log.retention.ms", SET, "soon"))
    change.record("of the broker, deleted", BROKER, "1", ("log.cleaner.threads", DELETE, None))
    change.record("of another broker", BROKER, "7", ("log.retention.ms", SET, "1"), validate=True)
    change.record("of a broker whose id is not a number", BROKER, "one", ("log.retention.ms", SET, "1"))
    change.record("of all brokers", BROKER, "", ("message.max.bytes", SET, "2000000"))
    change.record("of all brokers, deleted", BROKER, "", ("message.max.bytes", DELETE, None))
    change.record("of all brokers, a per-broker key", BROKER, "", ("advertised.listeners", SET, "X://y:1"))
    change.record("of a group", GROUP, "g", ("consumer.session.timeout.ms", SET, "50000"))
    change.record("of a group, unknown", GROUP, "g", ("no.such.key", SET, "1"))
    change.record("of a group without a name", GROUP, "", ("consumer.session.timeout.ms", SET, "50000"))
    change.record("of a metrics subscription", CLIENT_METRICS, "m", ("interval.ms", SET, "5000"))
    change.record("of a metrics subscription, an invalid value", CLIENT_METRICS, "m", ("interval.ms", SET, "1"))
    loggers(run, change)
    for kind in (0, 1, 3, 64):
        change.record(f"of a resource of type {kind}", kind, "x", ("a", SET, "b"))


@script(ApiKey.ALTER_CONFIGS, Listeners.BOTH)
def configs_replaced(run: ScriptRun) -> None:
    name = run.topic("t", segment_bytes="2000000")

    stricter = REJECTED_EVERYWHERE if run.controller else None

    def record(
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
        run.record(label, AlterConfigsRequest(resources=[one], validate_only=validate), differs=differs)

    record("with one key", TOPIC, name, ("retention.ms", "5000"))
    show(run, "the configs", TOPIC, name, SOME_KEYS)
    record("validated only", TOPIC, name, ("retention.ms", "7000"), validate=True)
    record("with null", TOPIC, name, ("retention.ms", None), validate=True, differs=stricter)
    record("with an invalid value", TOPIC, name, ("retention.ms", "soon"))
    record("with an unknown key", TOPIC, name, ("no.such.key", "1"))
    record(
        "with a key twice", TOPIC, name, ("retention.ms", "1"), ("retention.ms", "2"), validate=True, differs=stricter
    )
    record("with no keys", TOPIC, name)
    show(run, "the configs after that", TOPIC, name, SOME_KEYS)
    record("of an unknown topic", TOPIC, run.name("nowhere"), ("retention.ms", "1"))
    record("of a topic with an invalid name", TOPIC, "../x", ("retention.ms", "1"))
    record("of a broker whose id is not a number", BROKER, "one", ("log.retention.ms", "1"))
    record("of a resource of no type", 0, "x", ("a", "b"), differs=stricter)
    run.record("an empty request", AlterConfigsRequest())


@script(ApiKey.LIST_CONFIG_RESOURCES)
def config_resources_listed(run: ScriptRun) -> None:
    name = run.topic("t")
    change = Incremental(run)
    request = IncrementalAlterConfigsRequest(
        resources=[
            change.resource(CLIENT_METRICS, f"m{run.version}", ("interval.ms", SET, "5000")),
            change.resource(GROUP, f"g{run.version}", ("consumer.session.timeout.ms", SET, "50000")),
        ]
    )
    run.call(request)
    run.wait_until_replayed("configs")
    known = {name, "1", f"m{run.version}", f"g{run.version}"}

    def only_own(response: ListConfigResourcesResponse) -> None:
        response.config_resources = [each for each in response.config_resources if each.resource_name in known]

    def record(label: str, *kinds: int, differs: str | None = None) -> None:
        request = ListConfigResourcesRequest(resource_types=list(kinds))
        run.record(label, request, change=only_own, differs=differs, unordered={"config_resources"})

    record("of all types")
    if run.version >= 1:
        for kind in (TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, 0, 1, 99):
            record(f"of type {kind}", kind)
        record("of two types", TOPIC, GROUP)
        record("of one type twice", TOPIC, TOPIC)
        record("of one known and one unknown type", TOPIC, 99)
