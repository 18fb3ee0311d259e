"""The whole controller on virtual time: activation, background tasks, concurrent requests."""

from __future__ import annotations

import asyncio

import pytest

from strandline.controller.decisions import Decision
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import Endpoint
from strandline.protocol.messages.cluster import FeatureUpdateKey, UnregisterBrokerRequest, UpdateFeaturesRequest
from strandline.protocol.messages.elections import ElectLeadersRequest
from strandline.protocol.messages.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionChangeRecord,
)
from strandline.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    ListPartitionReassignmentsRequest,
    ReassignableTopic,
)
from strandline.protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from strandline.runtime.watermark import Watermark
from strandline.runtime.world import World
from unit.controller.active_controller import ActiveController, simulate


def test_only_the_first_active_controller_writes_the_bootstrap_records() -> None:
    async def scenario(world: World) -> None:
        active = ActiveController(world)
        await active.activate()
        assert len(active.log.batches) == 1
        assert active.image.committed.features() == {
            "eligible.leader.replicas.version": 1,
            "group.version": 1,
            "metadata.version": 30,
            "transaction.version": 2,
        }
        await active.activate()
        assert len(active.log.batches) == 1

    simulate(scenario)


def test_a_transaction_left_open_by_the_former_active_controller_is_aborted_first() -> None:
    async def scenario(world: World) -> None:
        active = ActiveController(world)
        active.image.replay_batch(
            0, [BeginTransactionRecord(), FeatureLevelRecord(name="metadata.version", feature_level=7)]
        )
        active.log.end_offset = 2
        active.log.commit()
        active.log.committed = Watermark(2)
        await active.activate()
        assert [type(record) for record in active.log.batches[0]][:2] == [
            AbortTransactionRecord,
            BeginTransactionRecord,
        ]
        assert active.image.committed.metadata_version == 30

    simulate(scenario)


def test_a_broker_without_heartbeats_is_fenced_when_its_session_times_out() -> None:
    async def scenario(world: World) -> None:
        active = await ActiveController(world).with_broker()
        running = asyncio.create_task(active.controller.run())

        for _ in range(4):
            await asyncio.sleep(5)
            await active.committing(active.heartbeat())
            assert not active.broker().fenced
        await asyncio.sleep(8.9)
        assert not active.broker().fenced
        await asyncio.sleep(0.2)
        assert active.broker().fenced
        running.cancel()

    simulate(scenario)


def test_deleting_and_creating_a_topic_at_once_gives_it_a_new_id() -> None:
    async def scenario(world: World) -> None:
        active = await ActiveController(world).with_broker()
        first = (await active.committing(active.create("t"))).topics[0].topic_id
        deletion = asyncio.create_task(
            active.controller.delete_topics(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1000))
        )
        second = active.create("t")
        await asyncio.sleep(0)
        active.log.commit()
        assert (await deletion).responses[0].topic_id == first
        assert (await second).topics[0].topic_id != first

    simulate(scenario)


def test_a_controller_that_loses_and_regains_leadership_keeps_what_was_committed() -> None:
    async def scenario(world: World) -> None:
        active = await ActiveController(world).with_broker()
        for round_ in range(5):
            assert (await active.committing(active.create(f"kept-{round_}"))).topics[0].error_code == 0
            lost = active.create(f"lost-{round_}")
            await asyncio.sleep(0)
            active.lose()
            for each in (lost, active.create("rejected")):
                with pytest.raises(KafkaError) as error:
                    await each
                assert error.value.code is ErrorCode.NOT_CONTROLLER
            await active.win()
        assert [topic.name for topic in active.image.latest.topics()] == [f"kept-{round_}" for round_ in range(5)]

    simulate(scenario)


def test_losing_the_leadership_during_the_activation_is_not_a_fault() -> None:
    async def scenario(world: World) -> None:
        active = ActiveController(world)
        activation = asyncio.create_task(active.controller.activate())
        await asyncio.sleep(0)
        active.lose()
        await activation
        assert not active.controller.is_active
        await active.controller.activate()
        assert not active.controller.is_active
        assert active.image.end_offset == 0

    simulate(scenario)


def test_a_newly_active_controller_starts_a_whole_session_for_every_broker() -> None:
    async def scenario(world: World) -> None:
        active = await ActiveController(world).with_broker()
        running = asyncio.create_task(active.controller.run())
        await asyncio.sleep(8)
        active.lose()
        await asyncio.sleep(60)
        assert not active.broker().fenced
        await active.win()
        await asyncio.sleep(8.9)
        assert not active.broker().fenced
        await asyncio.sleep(0.2)
        assert active.broker().fenced
        running.cancel()

    simulate(scenario)


def noops(active: ActiveController) -> int:
    return sum(isinstance(record, NoOpRecord) for batch in active.log.batches for record in batch)


def test_a_no_op_is_appended_to_an_idle_log_twice_a_second_once_it_has_followers() -> None:
    async def scenario(world: World) -> None:
        active = await ActiveController(world).with_broker(100)
        running = asyncio.create_task(active.controller.run())

        async def idle(half_seconds: int) -> int:
            before = noops(active)
            for _ in range(half_seconds):
                await asyncio.sleep(0.5)
                active.log.commit()
            return noops(active) - before

        assert await idle(8) == 0, "the node itself is not a follower"
        await active.with_broker(1)
        assert 8 <= await idle(10) <= 10
        active.lose()
        assert await idle(10) == 0
        running.cancel()

    simulate(scenario)


def test_sessions_are_extended_by_the_time_that_the_controller_was_paused() -> None:
    async def scenario(world: World) -> None:
        active = await ActiveController(world).with_broker()
        await asyncio.sleep(8)
        active.controller._fencing._on_paused(5000)
        running = asyncio.create_task(active.controller.run())
        await asyncio.sleep(7.9)
        assert not active.broker().fenced
        await asyncio.sleep(0.2)
        assert active.broker().fenced
        running.cancel()

    simulate(scenario)


@pytest.mark.parametrize("ending", ["unregistered", "shut down"])
def test_a_shutdown_or_unregistration_cancelled_halfway_leaves_the_session(ending: str) -> None:
    async def scenario(world: World) -> None:
        active = await ActiveController(world).with_broker()
        creating = active.create("t", 1500)
        await active.committing(creating)
        epoch, written, steps = active.broker().epoch, active.log.end_offset, 0

        def is_alive() -> bool:
            return active.controller.brokers.sessions.is_alive(1, epoch, world.clock.now_ms())

        while active.log.end_offset == written:
            assert is_alive()
            if ending == "unregistered":
                call = active.controller.unregister_broker(UnregisterBrokerRequest(broker_id=1))
            else:
                call = active.heartbeat(want_fence=True, want_shut_down=True)
            task = asyncio.ensure_future(call)
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            steps += 1
        assert steps > 5
        assert not is_alive()

    simulate(scenario)


class ClosedPorts:
    """A `Prober` that finds these ports closed."""

    def __init__(self) -> None:
        self.closed: set[int] = set()
        self.probed: list[int] = []

    async def refuses_connections(self, endpoint: Endpoint) -> bool:
        self.probed.append(endpoint.port)
        await asyncio.sleep(0.001)
        return endpoint.port in self.closed


def test_a_killed_brokers_partitions_have_new_leaders_within_a_fraction_of_a_second() -> None:
    async def scenario(world: World) -> None:
        prober = ClosedPorts()
        active = await (await ActiveController(world, prober=prober).with_broker(1)).with_broker(2)
        running = asyncio.create_task(active.controller.run())
        prober.closed.add(9001)
        active.controller.broker_connection_lost(1, active.broker(1).epoch)
        await asyncio.sleep(0.06)
        active.log.commit()
        assert active.broker(1).fenced
        assert not active.broker(2).fenced
        assert prober.probed == [9001, 9001]
        response = await active.committing(active.controller.register_broker(active.registration(1, incarnation=9)))
        assert response.error_code == 0, "its successor need not wait"
        running.cancel()

    simulate(scenario)


def test_an_unclean_leader_is_elected_when_the_session_would_have_timed_out_and_not_on_the_detection() -> None:
    async def scenario(world: World) -> None:
        prober = ClosedPorts()
        active = await (await ActiveController(world, prober=prober).with_broker(1)).with_broker(2)
        topic = CreatableTopic(
            name="t",
            num_partitions=-1,
            replication_factor=-1,
            assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 2])],
            configs=[CreatableTopicConfig(name="unclean.leader.election.enable", value="true")],
        )
        created = await active.committing(active.controller.create_topics(CreateTopicsRequest(topics=[topic])))
        topic_id = created.topics[0].topic_id
        alone = PartitionChangeRecord(topic_id=topic_id, partition_id=0, isr=[1])
        await active.committing(active.controller._events.decide(lambda: Decision(None, [alone])))
        running = asyncio.create_task(active.controller.run())

        def leader() -> int:
            partition = active.image.latest.partition(topic_id, 0)
            assert partition is not None
            return partition.leader

        async def run_for(seconds: float) -> None:
            for _ in range(int(seconds * 10)):
                await asyncio.sleep(0.1)
                await active.committing(active.heartbeat(broker_id=2))

        prober.closed.add(9001)
        active.controller.broker_connection_lost(1, active.broker(1).epoch)
        await run_for(8.5)
        assert active.broker(1).fenced
        assert leader() == -1
        await run_for(1)
        assert leader() == 2
        running.cancel()

    simulate(scenario)


def test_a_new_active_controller_shortens_the_session_of_the_former_leader() -> None:
    async def scenario(world: World) -> None:
        active = await (await ActiveController(world).with_broker(1)).with_broker(2)
        running = asyncio.create_task(active.controller.run())
        active.lose()
        active.log.former_leader = (1, world.clock.now_ms() - 60_000)
        await active.win()
        await asyncio.sleep(4.4)
        assert not active.broker(1).fenced
        await asyncio.sleep(0.2)
        assert [active.broker(1).fenced, active.broker(2).fenced] == [True, False]
        running.cancel()

    simulate(scenario)


def test_a_new_active_controller_detects_brokers_that_failed_before_its_activation() -> None:
    async def scenario(world: World) -> None:
        prober = ClosedPorts()
        active = await (await ActiveController(world, prober=prober).with_broker(1)).with_broker(2)
        running = asyncio.create_task(active.controller.run())
        active.lose()
        active.controller.broker_connection_lost(1, active.broker(1).epoch)
        prober.closed.add(9001)
        await active.win()
        await asyncio.sleep(0.3)
        assert [active.broker(1).fenced, active.broker(2).fenced] == [True, False]
        running.cancel()

    simulate(scenario)


def test_a_successor_on_the_address_of_its_predecessor_registers_before_the_session_times_out() -> None:
    async def scenario(world: World) -> None:
        active = await ActiveController(world, prober=ClosedPorts()).with_broker(1)
        running = asyncio.create_task(active.controller.run())
        active.controller.broker_connection_lost(1, active.broker(1).epoch)
        start_ms = world.clock.now_ms()
        while True:
            try:
                await active.committing(active.controller.register_broker(active.registration(1, incarnation=9)))
                break
            except KafkaError as error:
                assert error.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
                await asyncio.sleep(0.2)
        assert 3000 <= world.clock.now_ms() - start_ms <= 3500
        running.cancel()

    simulate(scenario)


def test_kraft_version_is_raised_first_if_the_other_updates_are_valid() -> None:
    async def scenario(world: World) -> None:
        active = ActiveController(world)
        await active.activate()
        log = active.log
        log.kraft_version = 0

        async def update(*updates: tuple[str, int, int], validate_only: bool = False) -> int:
            request = UpdateFeaturesRequest(
                feature_updates=[
                    FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
                    for name, level, kind in updates
                ],
                validate_only=validate_only,
            )
            response = await active.committing(active.controller.update_features(request))
            return int(response.error_code)

        kraft, elr_off = ("kraft.version", 1, 1), ("eligible.leader.replicas.version", 0, 2)
        assert await update(kraft, ("metadata.version", 99, 1)) == ErrorCode.INVALID_UPDATE_VERSION
        assert await update(kraft, validate_only=True) == ErrorCode.NONE
        log.rejects_upgrades = True
        assert await update(kraft, elr_off) == ErrorCode.INVALID_UPDATE_VERSION
        assert log.kraft_version == 0
        assert active.image.latest.features()["eligible.leader.replicas.version"] == 1
        log.rejects_upgrades = False
        assert await update(kraft, elr_off) == ErrorCode.NONE
        assert log.kraft_version == 1
        assert "eligible.leader.replicas.version" not in active.image.latest.features()

    simulate(scenario)


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_a_timeout_of_zero_or_below_counts_where_it_does_in_kafka(timeout_ms: int) -> None:
    """Kafka's controller ignores the timeout of ListPartitionReassignments and UpdateFeatures, and does not queue
    requests that name nothing."""

    async def scenario(world: World) -> None:
        active = ActiveController(world)
        await active.activate()
        controller = active.controller
        await controller.list_partition_reassignments(ListPartitionReassignmentsRequest(timeout_ms=timeout_ms))
        await controller.update_features(UpdateFeaturesRequest(timeout_ms=timeout_ms))
        await controller.create_topics(CreateTopicsRequest(timeout_ms=timeout_ms))
        await controller.delete_topics(DeleteTopicsRequest(timeout_ms=timeout_ms))
        await controller.create_partitions(CreatePartitionsRequest(timeout_ms=timeout_ms))
        await controller.elect_leaders(ElectLeadersRequest(topic_partitions=[], timeout_ms=timeout_ms))
        await controller.alter_partition_reassignments(AlterPartitionReassignmentsRequest(timeout_ms=timeout_ms))
        topic = CreatableTopic(name="t")
        for timed_out in (
            controller.create_topics(CreateTopicsRequest(topics=[topic], timeout_ms=timeout_ms)),
            controller.delete_topics(DeleteTopicsRequest(topic_names=["t"], timeout_ms=timeout_ms)),
            controller.delete_topics(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=timeout_ms)),
            controller.create_partitions(
                CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="t", count=2)], timeout_ms=timeout_ms)
            ),
            controller.elect_leaders(ElectLeadersRequest(topic_partitions=None, timeout_ms=timeout_ms)),
            controller.alter_partition_reassignments(
                AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name="t")], timeout_ms=timeout_ms)
            ),
        ):
            with pytest.raises(KafkaError, match="REQUEST_TIMED_OUT"):
                await timed_out

    simulate(scenario)
