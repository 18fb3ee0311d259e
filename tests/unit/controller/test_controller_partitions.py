"""Partition changes by requests and periodic tasks, through the whole controller, on virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from strandline.controller.decisions import Decision
from strandline.controller.settings import ControllerSettings
from strandline.metadata.values import PartitionInfo
from strandline.model.errors import ErrorCode, KafkaError
from strandline.protocol.messages.brokers import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    AssignReplicasToDirsRequest,
    BrokerState,
)
from strandline.protocol.messages.configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestAlterableConfig,
    IncrementalAlterConfigsRequestAlterConfigsResource,
)
from strandline.protocol.messages.elections import ElectLeadersRequest
from strandline.protocol.messages.metadata_records import PartitionRecord
from strandline.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    ListPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from strandline.protocol.messages.topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from strandline.protocol.types import Message
from strandline.runtime.tasks import TaskGroup
from strandline.runtime.world import World
from unit.controller.active_controller import ActiveController, simulate

QUIET = {"max_idle_interval_ms": 0, "broker_session_timeout_ms": 100_000_000}


def settings(**fields: Any) -> ControllerSettings:
    return ControllerSettings(node_id=100, cluster_id="cluster", **{**QUIET, **fields})


async def three_brokers(world: World, *replicas: int, **fields: Any) -> ActiveController:
    """A controller with brokers, and topic `t` with one partition."""
    active = ActiveController(world, settings(**fields))
    for broker_id in (1, 2, 3):
        await active.with_broker(broker_id)
    assignment = CreatableReplicaAssignment(partition_index=0, broker_ids=list(replicas))
    topic = CreatableTopic(name="t", num_partitions=-1, replication_factor=-1, assignments=[assignment])
    await active.committing(active.controller.create_topics(CreateTopicsRequest(topics=[topic])))
    return active


def partition(active: ActiveController) -> PartitionInfo:
    topic = active.image.committed.topic("t")
    assert topic is not None
    return active.image.committed.partitions(topic.id)[0]


async def in_sync(active: ActiveController, *isr: int) -> ErrorCode:
    topic, known = active.image.committed.topic("t"), partition(active)
    assert topic is not None
    data = AlterPartitionRequestPartitionData(
        partition_index=0,
        leader_epoch=known.leader_epoch,
        partition_epoch=known.partition_epoch,
        new_isr_with_epochs=[BrokerState(member, active.broker(member).epoch) for member in isr],
    )
    request = AlterPartitionRequest(
        broker_id=known.leader,
        broker_epoch=active.broker(known.leader).epoch,
        topics=[AlterPartitionRequestTopicData(topic_id=topic.id, partitions=[data])],
    )
    response = await active.committing(active.controller.alter_partition(request))
    return ErrorCode(response.topics[0].partitions[0].error_code)


async def fenced(active: ActiveController, broker_id: int) -> None:
    await active.committing(active.heartbeat(None, broker_id, want_fence=True))


async def unfenced(active: ActiveController, broker_id: int) -> None:
    await active.committing(active.heartbeat(None, broker_id))


async def while_the_clock_runs(active: ActiveController, seconds: int) -> None:
    async with TaskGroup() as tasks:
        running = tasks.start(active.controller.run(), "controller")
        for _ in range(seconds):
            await asyncio.sleep(1)
            active.log.commit()
        running.cancel()


def test_preferred_leaders_are_elected_periodically() -> None:
    async def scenario(world: World) -> None:
        active = await three_brokers(world, 1, 2, leader_imbalance_check_interval_ms=5000)
        await fenced(active, 1)
        await unfenced(active, 1)
        assert await in_sync(active, 2, 1) is ErrorCode.NONE
        assert partition(active).leader == 2
        await while_the_clock_runs(active, 8)
        assert partition(active).leader == 1

    simulate(scenario)


def test_preferred_leaders_are_not_elected_when_rebalancing_is_disabled() -> None:
    async def scenario(world: World) -> None:
        active = await three_brokers(
            world, 1, 2, leader_imbalance_check_interval_ms=5000, auto_leader_rebalance_enable=False
        )
        await fenced(active, 1)
        await unfenced(active, 1)
        await in_sync(active, 2, 1)
        await while_the_clock_runs(active, 8)
        assert partition(active).leader == 2
        response = await active.committing(active.controller.elect_leaders(ElectLeadersRequest(topic_partitions=None)))
        assert response.replica_election_results[0].partition_result[0].error_code == 0
        assert partition(active).leader == 1

    simulate(scenario)


UNCLEAN = IncrementalAlterConfigsRequest(
    resources=[
        IncrementalAlterConfigsRequestAlterConfigsResource(
            resource_type=2,
            resource_name="t",
            configs=[IncrementalAlterConfigsRequestAlterableConfig("unclean.leader.election.enable", 0, "true")],
        )
    ]
)


def test_an_unclean_leader_is_elected_as_soon_as_the_topic_allows_it() -> None:
    async def scenario(world: World) -> None:
        active = await three_brokers(world, 1, 2)
        await fenced(active, 2)
        await fenced(active, 1)
        await unfenced(active, 2)
        assert partition(active).leader == -1
        await active.committing(active.controller.incremental_alter_configs(UNCLEAN))
        assert (partition(active).leader, partition(active).leader_recovery_state) == (2, 1)

    simulate(scenario)


def test_the_next_active_controller_elects_the_unclean_leader_that_the_former_one_did_not() -> None:
    async def scenario(world: World) -> None:
        active = await three_brokers(world, 1, 2, unclean_leader_election_interval_ms=5000, failure_detection=False)
        await fenced(active, 2)
        await fenced(active, 1)
        await unfenced(active, 2)
        allowing = asyncio.ensure_future(active.controller.incremental_alter_configs(UNCLEAN))
        await asyncio.sleep(0)
        active.log.commit()
        active.lose()
        await allowing
        await active.win()
        assert partition(active).leader == -1
        await while_the_clock_runs(active, 8)
        assert partition(active).leader == 2

    simulate(scenario)


def test_a_min_insync_replicas_change_that_would_need_too_many_records_is_rejected() -> None:
    async def scenario(world: World) -> None:
        active = await three_brokers(world, 1)
        await fenced(active, 1)
        topic = active.image.latest.topic("t")
        assert topic is not None
        more: list[Message] = [
            PartitionRecord(
                partition_id=index,
                topic_id=topic.id,
                replicas=[1],
                isr=[],
                leader=-1,
                eligible_leader_replicas=[1],
                directories=[active.broker(1).directories[0]],
            )
            for index in range(1, 10_000)
        ]
        await active.committing(active.controller._events.decide(lambda: Decision(None, more)))
        appended = active.log.end_offset
        setting = IncrementalAlterConfigsRequestAlterableConfig("min.insync.replicas", 0, "2")
        request = IncrementalAlterConfigsRequest(
            resources=[IncrementalAlterConfigsRequestAlterConfigsResource(2, "t", [setting])]
        )
        with pytest.raises(KafkaError, match="10000 partitions have no leader"):
            await active.committing(active.controller.incremental_alter_configs(request))
        assert active.log.end_offset == appended

    simulate(scenario)


def test_an_ongoing_reassignment_is_listed() -> None:
    async def scenario(world: World) -> None:
        active = await three_brokers(world, 1, 2)
        topic = ReassignableTopic(name="t", partitions=[ReassignablePartition(0, [3, 2])])
        request = AlterPartitionReassignmentsRequest(topics=[topic])
        started = await active.committing(active.controller.alter_partition_reassignments(request))
        assert started.responses[0].partitions[0].error_code == 0
        list_request = ListPartitionReassignmentsRequest()
        moving = await active.committing(active.controller.list_partition_reassignments(list_request))
        assert [each.replicas for each in moving.topics[0].partitions] == [[3, 2, 1]]
        assert await in_sync(active, 1, 2, 3) is ErrorCode.NEW_LEADER_ELECTED
        assert partition(active).replicas == (3, 2)
        done = await active.committing(active.controller.list_partition_reassignments(list_request))
        assert done.topics == []

    simulate(scenario)


def test_a_broker_reports_the_directories_of_its_replicas() -> None:
    async def scenario(world: World) -> None:
        active = await three_brokers(world, 1, 2)
        request = AssignReplicasToDirsRequest(broker_id=1, broker_epoch=active.broker(1).epoch, directories=[])
        response = await active.committing(active.controller.assign_replicas_to_dirs(request))
        assert (response.error_code, response.directories) == (0, [])

    simulate(scenario)
