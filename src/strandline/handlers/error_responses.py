"""The error shape of every API: what a client is answered when a request cannot proceed as a whole.

An API with an error of its own at the top gets it there; the others repeat it for every thing that was asked about.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from strandline.handlers import metadata, produce
from strandline.model.errors import ErrorCode
from strandline.protocol.apis import API, ApiKey
from strandline.protocol.messages import (
    acls,
    configs,
    coordinators,
    elections,
    epochs,
    fetch,
    list_offsets,
    producers,
    quotas,
    scram,
    topics,
)
from strandline.protocol.types import Message

Failure = Callable[[Any, int, ErrorCode, str], Message | None]


def error_response_of(api_key: int) -> Failure:
    return _SHAPES.get(api_key) or _at_the_top(API[api_key].response)


def _at_the_top(response: type[Message]) -> Failure:
    def fail(request: Any, version: int, code: ErrorCode, why: str) -> Message:
        answer = response()
        message: Any = answer
        message.error_code = code
        if hasattr(message, "error_message"):
            message.error_message = why or None
        return answer

    return fail


def _fetch(request: Any, version: int, code: ErrorCode, why: str) -> Message:
    if version >= 7:
        return fetch.FetchResponse(error_code=code)
    return fetch.FetchResponse(
        responses=[
            fetch.FetchableTopicResponse(
                topic=topic.topic,
                partitions=[
                    fetch.PartitionData(
                        partition_index=one.partition,
                        error_code=code,
                        high_watermark=-1,
                        last_stable_offset=-1,
                        records=b"",
                    )
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _list_offsets(request: Any, version: int, code: ErrorCode, why: str) -> Message:
    return list_offsets.ListOffsetsResponse(
        topics=[
            list_offsets.ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    list_offsets.ListOffsetsPartitionResponse(partition_index=one.partition_index, error_code=code)
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _offset_for_leader_epoch(request: Any, version: int, code: ErrorCode, why: str) -> Message:
    return epochs.OffsetForLeaderEpochResponse(
        topics=[
            epochs.OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    epochs.EpochEndOffset(partition=one.partition, error_code=code) for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _create_topics(request: Any, version: int, code: ErrorCode, why: str) -> Message:
    return topics.CreateTopicsResponse(
        topics=[
            topics.CreatableTopicResult(name=topic.name, error_code=code, error_message=why or None)
            for topic in request.topics
        ]
    )


def _delete_topics(request: Any, version: int, code: ErrorCode, why: str) -> Message:
    named = [(topic.name, topic.topic_id) for topic in request.topics] if version >= 6 else []
    return topics.DeleteTopicsResponse(
        responses=[
            topics.DeletableTopicResult(name=name, topic_id=topic_id, error_code=code, error_message=why or None)
            for name, topic_id in named
        ]
        or [
            topics.DeletableTopicResult(name=name, error_code=code, error_message=why or None)
            for name in request.topic_names
        ]
    )


def _create_partitions(request: Any, version: int, code: ErrorCode, why: str) -> Message:
    return topics.CreatePartitionsResponse(
        results=[
            topics.CreatePartitionsTopicResult(name=topic.name, error_code=code, error_message=why or None)
            for topic in request.topics
        ]
    )


def _delete_records(request: Any, version: int, code: ErrorCode, why: str) -> Message:
    return topics.DeleteRecordsResponse(
        topics=[
            topics.DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    topics.DeleteRecordsPartitionResult(
                        partition_index=one.partition_index, low_watermark=-1, error_code=code
                    )
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _elect_leaders(request: Any, version: int, code: ErrorCode, why: str) -> Message:
    """Version 0 has no error of its own at the top; the others say it there and everywhere."""
    return elections.ElectLeadersResponse(
        error_code=code if version > 0 else ErrorCode.NONE,
        replica_election_results=[
            elections.ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    elections.PartitionResult(partition_id=index, error_code=code, error_message=why or None)
                    for index in topic.partitions
                ],
            )
            for topic in request.topic_partitions or ()
        ],
    )


def _describe_topic_partitions(request: Any, version: int, code: ErrorCode, why: str) -> Message:
    return topics.DescribeTopicPartitionsResponse(
        topics=[
            topics.DescribeTopicPartitionsResponseTopic(name=topic.name, error_code=code) for topic in request.topics
        ]
    )


def _describe_configs(request: Any, version: int, code: ErrorCode, why: str) -> Message:
    return configs.DescribeConfigsResponse(
        results=[
            configs.DescribeConfigsResult(
                error_code=code,
                error_message=why or None,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
    )


def _alter_configs(response: Any, result: Any) -> Failure:
    def fail(request: Any, version: int, code: ErrorCode, why: str) -> Message:
        answer: Message = response(
            responses=[
                result(
                    error_code=code,
                    error_message=why or None,
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                )
                for resource in request.resources
            ]
        )
        return answer

    return fail


def _describe_producers(request: Any, version: int, code: ErrorCode, why: str) -> Message:
    return producers.DescribeProducersResponse(
        topics=[
            producers.TopicResponse(
                name=topic.name,
                partitions=[
                    producers.PartitionResponse(partition_index=index, error_code=code, error_message=why or None)
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )


def _find_coordinator(request: Any, version: int, code: ErrorCode, why: str) -> Message:
    if version < 4:
        return coordinators.FindCoordinatorResponse(error_code=code, error_message=why or None, node_id=-1, port=-1)
    return coordinators.FindCoordinatorResponse(
        coordinators=[
            coordinators.Coordinator(key=key, node_id=-1, port=-1, error_code=code, error_message=why or None)
            for key in request.coordinator_keys
        ]
    )


def _init_producer_id(request: Any, version: int, code: ErrorCode, why: str) -> Message:
    return producers.InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)


def _create_acls(request: Any, version: int, code: ErrorCode, why: str) -> Message:
    result = acls.AclCreationResult(error_code=code, error_message=why or None)
    return acls.CreateAclsResponse(results=[result for _ in request.creations])


def _delete_acls(request: Any, version: int, code: ErrorCode, why: str) -> Message:
    result = acls.DeleteAclsFilterResult(error_code=code, error_message=why or None)
    return acls.DeleteAclsResponse(filter_results=[result for _ in request.filters])


def _describe_client_quotas(request: Any, version: int, code: ErrorCode, why: str) -> Message:
    return quotas.DescribeClientQuotasResponse(error_code=code, error_message=why or None, entries=None)


def _alter_client_quotas(request: Any, version: int, code: ErrorCode, why: str) -> Message:
    return quotas.AlterClientQuotasResponse(
        entries=[
            quotas.AlterClientQuotasResponseEntryData(error_code=code, error_message=why or None, entity=entry.entity)
            for entry in request.entries
        ]
    )


def _alter_user_scram_credentials(request: Any, version: int, code: ErrorCode, why: str) -> Message:
    users = dict.fromkeys(each.name for each in (*request.deletions, *request.upsertions))
    return scram.AlterUserScramCredentialsResponse(
        results=[
            scram.AlterUserScramCredentialsResult(user=user, error_code=code, error_message=why or None)
            for user in users
        ]
    )


_SHAPES: dict[int, Failure] = {
    ApiKey.PRODUCE: lambda request, version, code, why: produce.failed(request, code, why),
    ApiKey.METADATA: lambda request, version, code, why: metadata.failed(request, code),
    ApiKey.FETCH: _fetch,
    ApiKey.LIST_OFFSETS: _list_offsets,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _offset_for_leader_epoch,
    ApiKey.CREATE_TOPICS: _create_topics,
    ApiKey.DELETE_TOPICS: _delete_topics,
    ApiKey.CREATE_PARTITIONS: _create_partitions,
    ApiKey.DELETE_RECORDS: _delete_records,
    ApiKey.ELECT_LEADERS: _elect_leaders,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: _describe_topic_partitions,
    ApiKey.DESCRIBE_CONFIGS: _describe_configs,
    ApiKey.ALTER_CONFIGS: _alter_configs(configs.AlterConfigsResponse, configs.AlterConfigsResourceResponse),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _alter_configs(
        configs.IncrementalAlterConfigsResponse, configs.AlterConfigsResourceResponse
    ),
    ApiKey.INIT_PRODUCER_ID: _init_producer_id,
    ApiKey.DESCRIBE_PRODUCERS: _describe_producers,
    ApiKey.FIND_COORDINATOR: _find_coordinator,
    ApiKey.CREATE_ACLS: _create_acls,
    ApiKey.DELETE_ACLS: _delete_acls,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _describe_client_quotas,
    ApiKey.ALTER_CLIENT_QUOTAS: _alter_client_quotas,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _alter_user_scram_credentials,
}
