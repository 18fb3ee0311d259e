"""Topics created, extended and deleted: CreateTopics (19), CreatePartitions (37), DeleteTopics (20).

All topics of one request are one atomic batch; each has its own result in the response. Order of records per topic: the
topic, its configs, its partitions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from random import Random
from typing import Final

from strandline.controller.decisions import MAX_RECORDS_PER_DECISION, STEPS_PER_YIELD, Decision, Steps
from strandline.controller.leader_eligibility import MIN_INSYNC_REPLICAS, LiveBrokers, cluster_layers, elr_enabled
from strandline.controller.partitions import new_partition
from strandline.controller.placement import Striping, candidates
from strandline.controller.settings import ControllerSettings
from strandline.metadata.effective_configs import BrokerLayers, describe_topic
from strandline.metadata.topics_image import partition_record
from strandline.metadata.values import TOPIC_RESOURCE, TopicInfo
from strandline.metadata.views import View
from strandline.model.config_keys.key import ConfigError
from strandline.model.config_keys.topic import check_topic_configs
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import METADATA_TOPIC, ZERO_UUID, Uuid, random_uuid
from strandline.model.topic_names import check_topic_name
from strandline.protocol.messages.metadata_records import (
    ClearElrRecord,
    ConfigRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from strandline.protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from strandline.protocol.types import Message

_USE_DEFAULT: Final = -1
_MAX_DESCRIPTIONS: Final = 100

Assignments = list[list[int]]


class Topics:
    def __init__(self, view: View, settings: ControllerSettings, random: Random) -> None:
        self._view = view
        self._settings = settings
        self._random = random
        self._descriptions: _Descriptions | None = None

    def create(self, request: CreateTopicsRequest) -> Steps[CreateTopicsResponse]:
        """The results are in the order of the request; a name given twice has one."""
        self._check_total(request)
        response = CreateTopicsResponse(topics=[])
        records: list[Message] = []
        described = self._current_descriptions()
        times = Counter(topic.name for topic in request.topics)
        for number, topic in enumerate(request.topics):
            if number % STEPS_PER_YIELD == STEPS_PER_YIELD - 1:
                yield
            if times[topic.name] != 1:
                if times.pop(topic.name, None) is not None:
                    response.topics.append(
                        _create_error(topic.name, ErrorCode.INVALID_REQUEST, "the topic is given twice")
                    )
                continue
            try:
                yield from self._create(topic, described, records, response)
            except KafkaError as error:
                response.topics.append(_create_error(topic.name, error.code, error.why))
        return Decision(response, [] if request.validate_only else records)

    def _current_descriptions(self) -> _Descriptions:
        """Cached until the cluster-wide configs change: describing configs is the most expensive part of a creation."""
        layers = cluster_layers(self._view, self._settings.static)
        if self._descriptions is None or self._descriptions.layers.cluster is not layers.cluster:
            self._descriptions = _Descriptions(layers)
        return self._descriptions

    def _check_total(self, request: CreateTopicsRequest) -> None:
        total = 0
        for topic in request.topics:
            count = self._settings.num_partitions if topic.num_partitions == _USE_DEFAULT else topic.num_partitions
            total += len(topic.assignments) or max(count, 0)
        if total > MAX_RECORDS_PER_DECISION:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION, "too many partitions for one request: split it into smaller requests"
            )

    def _create(
        self,
        topic: CreatableTopic,
        described: _Descriptions,
        records: list[Message],
        response: CreateTopicsResponse,
    ) -> Generator[None, None, None]:
        if topic.name == METADATA_TOPIC:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{METADATA_TOPIC} is reserved for the cluster's metadata")
        check_topic_name(topic.name)
        self._check_new(topic.name)
        configs = _checked_configs(topic, described.layers)
        if topic.assignments:
            assignments = yield from self._manual(topic)
        else:
            assignments = yield from self._automatic(topic)
        topic_id = self._new_id()
        made: list[Message] = [TopicRecord(name=topic.name, topic_id=topic_id), *_config_records(topic.name, configs)]
        if MIN_INSYNC_REPLICAS in configs and elr_enabled(self._view):
            made.append(ClearElrRecord(topic_name=topic.name))
        yield from self._partition_records(topic_id, 0, assignments, made)
        records += made
        response.topics.append(
            CreatableTopicResult(
                name=topic.name,
                topic_id=topic_id,
                error_code=ErrorCode.NONE,
                error_message=None,
                num_partitions=len(assignments),
                replication_factor=len(assignments[0]),
                configs=described.of(configs),
            )
        )

    def _new_id(self) -> Uuid:
        while True:
            topic_id = random_uuid(self._random)
            if self._view.topic_by_id(topic_id) is None:
                return topic_id

    def _check_new(self, name: str) -> None:
        if self._view.topic(name) is not None:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name} already exists")
        alike = next(iter(self._view.topics_looking_like(name)), None)
        if alike is not None:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"{name} and the existing {alike} differ only in '.' and '_', which metrics cannot tell apart",
            )

    def _manual(self, topic: CreatableTopic) -> Generator[None, None, Assignments]:
        if topic.replication_factor != _USE_DEFAULT or topic.num_partitions != _USE_DEFAULT:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "with a manual replica assignment the number of partitions and the replication factor must both be -1",
            )
        by_index: dict[int, list[int]] = {}
        factor = len(topic.assignments[0].broker_ids)
        for assignment in topic.assignments:
            index = assignment.partition_index
            if index in by_index:
                raise _bad_assignment(f"partition {index} is assigned more than once")
            self._check_assignment(index, assignment.broker_ids, factor)
            by_index[index] = list(assignment.broker_ids)
            if len(by_index) % STEPS_PER_YIELD == 0:
                yield
        if sorted(by_index) != list(range(len(by_index))):
            raise _bad_assignment("partitions must be numbered from 0 without gaps")
        return [by_index[index] for index in range(len(by_index))]

    def _check_assignment(self, index: int, replicas: Sequence[int], factor: int) -> None:
        if not replicas:
            raise _bad_assignment(f"partition {index} is assigned to no broker")
        if len(set(replicas)) != len(replicas):
            raise _bad_assignment(f"partition {index} is assigned to the same broker more than once: {list(replicas)}")
        if len(replicas) != factor:
            raise _bad_assignment(f"partition {index} has {len(replicas)} replicas where others have {factor}")
        for replica in replicas:
            if self._view.broker(replica) is None:
                raise _bad_assignment(f"partition {index} is assigned to broker {replica}, which is not registered")
        if not any(self._is_active(replica) for replica in replicas):
            raise _bad_assignment(f"all brokers of partition {index} are fenced or in controlled shutdown")

    def _automatic(self, topic: CreatableTopic) -> Generator[None, None, Assignments]:
        factor, count = topic.replication_factor, topic.num_partitions
        if factor == 0 or factor < _USE_DEFAULT:
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                "a replication factor is 1 or more (-1 for the default)",
            )
        if count == 0 or count < _USE_DEFAULT:
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, "a topic needs at least one partition (-1 for the default)")
        factor = self._settings.default_replication_factor if factor == _USE_DEFAULT else factor
        count = self._settings.num_partitions if count == _USE_DEFAULT else count
        return (yield from self._place(count, factor))

    def _place(self, count: int, factor: int) -> Generator[None, None, Assignments]:
        striping = Striping(candidates(self._view.brokers()), self._random)
        assignments: Assignments = []
        for _ in range(count):
            try:
                replicas = striping.place(factor)
            except KafkaError as error:
                raise _not_replicable(factor, error.why) from None
            if not any(self._is_active(replica) for replica in replicas):
                raise _not_replicable(factor, "all brokers are fenced or in controlled shutdown")
            assignments.append(replicas)
            if len(assignments) % STEPS_PER_YIELD == 0:
                yield
        return assignments

    def _partition_records(
        self, topic_id: Uuid, first: int, assignments: Assignments, records: list[Message]
    ) -> Generator[None, None, None]:
        level = self._view.metadata_version
        brokers = LiveBrokers(self._view)
        for index, replicas in enumerate(assignments, first):
            partition = new_partition(replicas, brokers)
            assert partition is not None, "an assignment without an active broker passed the checks"
            records.append(partition_record(topic_id, index, partition, level))
            if index % STEPS_PER_YIELD == STEPS_PER_YIELD - 1:
                yield

    def _is_active(self, broker_id: int) -> bool:
        broker = self._view.broker(broker_id)
        return broker is not None and broker.active

    def create_partitions(self, request: CreatePartitionsRequest) -> Steps[CreatePartitionsResponse]:
        response = CreatePartitionsResponse(results=[])
        records: list[Message] = []
        times = Counter(topic.name for topic in request.topics)
        for number, topic in enumerate(request.topics):
            if number % STEPS_PER_YIELD == STEPS_PER_YIELD - 1:
                yield
            named = times[topic.name]
            if named == 0:
                continue
            code, why = ErrorCode.NONE, None
            try:
                if named > 1:
                    del times[topic.name]
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "the topic is given twice")
                yield from self._extend(topic, records)
            except KafkaError as error:
                code, why = error.code, error.why
            response.results.append(CreatePartitionsTopicResult(name=topic.name, error_code=code, error_message=why))
        return Decision(response, [] if request.validate_only else records)

    def _extend(self, topic: CreatePartitionsTopic, records: list[Message]) -> Generator[None, None, None]:
        known = self._view.topic(topic.name)
        if known is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic.name} does not exist")
        additional = topic.count - known.partition_count
        if additional < 0:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS,
                f"the topic {topic.name} currently has {known.partition_count} partition(s); "
                f"{topic.count} would not be an increase",
            )
        if additional == 0:
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"it has {known.partition_count} partitions already")
        if len(records) + additional > MAX_RECORDS_PER_DECISION:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION, "too many partitions for one request: split it into smaller requests"
            )
        factor = len(self._view.partitions(known.id)[0].replicas)
        if topic.assignments is None:
            assignments = yield from self._place(additional, factor)
        else:
            assignments = yield from self._manual_extension(topic, known, additional, factor)
        yield from self._partition_records(known.id, known.partition_count, assignments, records)

    def _manual_extension(
        self, topic: CreatePartitionsTopic, known: TopicInfo, additional: int, factor: int
    ) -> Generator[None, None, Assignments]:
        assert topic.assignments is not None
        if len(topic.assignments) != additional:
            raise _bad_assignment(
                f"{additional} partitions are to be added, but {len(topic.assignments)} have an assignment"
            )
        for index, assignment in enumerate(topic.assignments, known.partition_count):
            self._check_assignment(index, assignment.broker_ids, factor)
            if index % STEPS_PER_YIELD == STEPS_PER_YIELD - 1:
                yield
        return [list(assignment.broker_ids) for assignment in topic.assignments]

    def delete(self, request: DeleteTopicsRequest, version: int) -> Steps[DeleteTopicsResponse]:
        """Deletes topics by name, from version 6 on also by id, not both. A topic given twice has one result."""
        if not self._settings.delete_topic_enable:
            code = ErrorCode.INVALID_REQUEST if version < 3 else ErrorCode.TOPIC_DELETION_DISABLED
            raise KafkaError(code, "delete.topic.enable is false on the controller")
        states = [DeleteTopicState(name=name) for name in request.topic_names] if version < 6 else request.topics
        times = Counter((state.name, state.topic_id) for state in states)
        found: dict[Uuid, DeletableTopicResult] = {}
        rejected: list[DeletableTopicResult] = []
        for number, state in enumerate({(state.name, state.topic_id): state for state in states}.values()):
            if number % STEPS_PER_YIELD == STEPS_PER_YIELD - 1:
                yield
            try:
                _check_named_once(state, times[state.name, state.topic_id])
                topic = self._find(state)
            except KafkaError as error:
                rejected.append(_delete_error(state.name, state.topic_id, error.code, error.why))
                continue
            if topic.id in found:
                why = "the topic is given twice, by name and by id"
                found[topic.id] = _delete_error(topic.name, topic.id, ErrorCode.INVALID_REQUEST, why)
            else:
                found[topic.id] = DeletableTopicResult(name=topic.name, topic_id=topic.id)
        records: list[Message] = [
            RemoveTopicRecord(topic_id=topic_id) for topic_id, result in found.items() if result.error_code == 0
        ]
        return Decision(DeleteTopicsResponse(responses=[*found.values(), *rejected]), records)

    def _find(self, state: DeleteTopicState) -> TopicInfo:
        if state.name is not None:
            topic = self._view.topic(state.name)
            if topic is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {state.name} does not exist")
        else:
            topic = self._view.topic_by_id(state.topic_id)
            if topic is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with id {state.topic_id}")
        return topic


class _Descriptions:
    """The configs of created topics as the response shows them; most topics of a request have the same."""

    def __init__(self, layers: BrokerLayers) -> None:
        self.layers = layers
        self._known: dict[tuple[tuple[str, str], ...], list[CreatableTopicConfigs]] = {}

    def of(self, configs: Mapping[str, str]) -> list[CreatableTopicConfigs]:
        key = tuple(sorted(configs.items()))
        described = self._known.get(key)
        if described is None:
            if len(self._known) > _MAX_DESCRIPTIONS:
                self._known.clear()
            described = self._known[key] = [
                CreatableTopicConfigs(
                    name=entry.name,
                    # A given value is shown as it was given; DescribeConfigs shows its canonical spelling.
                    value=configs.get(entry.name, entry.value),
                    read_only=entry.read_only,
                    config_source=entry.source,
                    is_sensitive=entry.sensitive,
                )
                for entry in describe_topic(configs, self.layers)
            ]
        return described


def _delete_error(name: str | None, topic_id: Uuid, code: ErrorCode, why: str) -> DeletableTopicResult:
    return DeletableTopicResult(name=name, topic_id=topic_id, error_code=code, error_message=why)


def _check_named_once(state: DeleteTopicState, times: int) -> None:
    if state.name is not None and state.topic_id != ZERO_UUID:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a topic is given by its name or by its id, not by both")
    if state.name is None and state.topic_id == ZERO_UUID:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "neither a name nor an id is given")
    if times > 1:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, "the topic is given twice" if state.name else "the topic id is given twice"
        )


def _checked_configs(topic: CreatableTopic, layers: BrokerLayers) -> dict[str, str]:
    configs: dict[str, str] = {}
    for config in topic.configs:
        if config.value is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{config.name} needs a value")
        configs[config.name] = config.value
    try:
        check_topic_configs(configs, {})
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None
    return configs


def _config_records(topic: str, configs: Mapping[str, str]) -> list[Message]:
    return [
        ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=topic, name=key, value=value)
        for key, value in configs.items()
    ]


def _create_error(name: str, code: ErrorCode, why: str) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=code, error_message=why)


def _bad_assignment(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)


def _not_replicable(factor: int, why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, f"{factor} replicas cannot be placed: {why}")
