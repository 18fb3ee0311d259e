"""The controller: one method per request, its activation, and its background tasks.

Machines (`topics`, `brokers`, `configs` …) decide on the latest view and return a response and records;
`controller.events` makes one decision after the other, appends, and responds when committed; `controller.fencing` and
`controller.periodic_tasks` start decisions without a request. This module constructs them, and contains what concerns
several: a config change and the partitions it affects, kraft.version and the other features.

Callers (handlers through `node`, the lifecycle of the local broker) await one method per request. `activate` and
`renounce` follow the leadership of the metadata log and may be called many times; `run` runs the background tasks until
it is cancelled.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Protocol, TypeVar

from msgspec.structs import replace

from strandline.controller import producer_ids
from strandline.controller.acls import Acls
from strandline.controller.brokers import Brokers
from strandline.controller.configs import Configs
from strandline.controller.decisions import MAX_RECORDS_PER_DECISION, Decision, Steps
from strandline.controller.delegation_tokens import expire_tokens
from strandline.controller.directory_assignments import DirectoryAssignments
from strandline.controller.elect_leaders import LeaderElections, allows_unclean
from strandline.controller.events import EventQueue, MetadataLog
from strandline.controller.failure_detector import UnconfirmedFailures
from strandline.controller.features import Features
from strandline.controller.fencing import BrokerFencing, NoProbes, Prober
from strandline.controller.internal_topics import CHECK_INTERVAL_MS, InternalTopics
from strandline.controller.isr import IsrChanges
from strandline.controller.metrics import ControllerMetrics
from strandline.controller.partition_changes import PartitionChanges, keep_leaderless_elr
from strandline.controller.periodic_tasks import NoOpTask, PeriodicTask, PeriodicTasks
from strandline.controller.quotas import Quotas
from strandline.controller.reassignments import Reassignments
from strandline.controller.scram import Scram
from strandline.controller.sessions import FormerLeader
from strandline.controller.settings import ControllerSettings
from strandline.controller.topics import Topics
from strandline.metadata.image import Image
from strandline.model.errors import ErrorCode, KafkaError
from strandline.protocol.messages.acls import (
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from strandline.protocol.messages.brokers import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from strandline.protocol.messages.cluster import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from strandline.protocol.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from strandline.protocol.messages.elections import ElectLeadersRequest, ElectLeadersResponse
from strandline.protocol.messages.metadata_records import AbortTransactionRecord
from strandline.protocol.messages.producers import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from strandline.protocol.messages.quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from strandline.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from strandline.protocol.messages.scram import AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse
from strandline.protocol.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from strandline.protocol.types import Message
from strandline.runtime.clock import Clock
from strandline.runtime.metrics import Metrics
from strandline.runtime.tasks import TaskGroup

logger = logging.getLogger(__name__)

A = TypeVar("A")


class Controller:
    def __init__(
        self,
        image: Image,
        log: MetadataLog,
        clock: Clock,
        random: Random,
        settings: ControllerSettings,
        bootstrap: Sequence[Message] = (),
        metrics: Metrics | None = None,
        prober: Prober | None = None,
    ) -> None:
        """`bootstrap` are the first records of a new cluster (see `metadata.features`)."""
        self._image = image
        self._log = log
        self._clock = clock
        self._settings = settings
        self._bootstrap = bootstrap
        metrics = metrics or Metrics()
        self._events = EventQueue(image, log, clock, metrics)
        self._metrics = ControllerMetrics(image, clock, metrics, lambda: self.is_active)
        unconfirmed = UnconfirmedFailures()
        new_changes = partial(PartitionChanges, image.latest, settings, unconfirmed)
        self.brokers = Brokers(image.latest, settings, unconfirmed)
        self._topics = Topics(image.latest, settings, random)
        self._configs = Configs(image.latest, settings)
        self._features = Features(image.latest, settings, lambda: log.kraft_version)
        self._isrs = IsrChanges(image.latest, new_changes)
        self._leaders = LeaderElections(image.latest, new_changes)
        self._reassignments = Reassignments(image.latest, new_changes)
        self._internal_topics = InternalTopics(image.latest, settings, new_changes)
        self._directories = DirectoryAssignments(image.latest, new_changes)
        self._quotas = Quotas(image.latest)
        self._scram = Scram(image.latest)
        self._acls = Acls(image.latest, random, authorizer=settings.authorizer)
        self._unclean_elections = PeriodicTask(
            "elect unclean leaders", settings.unclean_leader_election_interval_ms, self._leaders.elect_unclean
        )
        self._tasks = PeriodicTasks(self._events, clock)
        self._add_tasks()
        self._fencing = BrokerFencing(
            image.latest,
            settings,
            self._events,
            self.brokers,
            clock,
            prober or NoProbes(),
            elect_unclean=lambda: self._tasks.perform_all(self._unclean_elections),
        )

    def _add_tasks(self) -> None:
        settings, view, clock = self._settings, self._image.latest, self._clock
        no_op = NoOpTask(view, settings, self._events, clock)
        balance_ms = settings.leader_imbalance_check_interval_ms if settings.auto_leader_rebalance_enable else 0
        expiry_ms = settings.token_expiry_check_interval_ms
        self._tasks.add(self._unclean_elections)
        self._tasks.add(PeriodicTask("append a NoOpRecord", settings.max_idle_interval_ms, no_op.decide))
        self._tasks.add(PeriodicTask("elect preferred leaders", balance_ms, self._leaders.balance))
        raise_replication = self._internal_topics.raise_replication
        self._tasks.add(PeriodicTask("replicate internal topics", CHECK_INTERVAL_MS, raise_replication))
        self._tasks.add(PeriodicTask("expire tokens", expiry_ms, lambda: expire_tokens(view, clock.wall_ms())))

    @property
    def is_active(self) -> bool:
        return self._events.activation is not None

    async def activate(self) -> None:
        """Called when this node leads the log and has replayed all of it: completes unfinished work, then serves
        requests."""
        if self._events.activate() is None:
            return
        self._metrics.activations.add()
        former_leader = self._log.former_leader
        self._fencing.start(None if former_leader is None else FormerLeader(*former_leader))
        self._tasks.start()
        try:
            await self._event(self._first_decision)
        except KafkaError as error:
            if error.code is not ErrorCode.NOT_CONTROLLER:
                raise
            logger.info("the leadership of the metadata log was lost before this controller became active")

    def _first_decision(self) -> Decision[None]:
        """The whole log is committed now, so records that `committed` does not show belong to an open transaction."""
        records: list[Message] = []
        if self._image.transaction_open:
            records.append(AbortTransactionRecord(reason="the controller changed"))
        if self._image.committed.metadata_version == 0:
            records += self._features.bootstrap(self._bootstrap)
        return Decision(None, records)

    def renounce(self) -> None:
        """The leadership is lost: queued events, and responses that wait for a commit, fail with NOT_CONTROLLER."""
        self._events.deactivate()
        self._tasks.stop()
        self._fencing.stop()

    def register_metrics(self) -> None:
        self._metrics.register()

    async def run(self) -> None:
        """Runs the background tasks, which sleep while another controller is active. Ends by cancellation."""
        async with TaskGroup() as tasks:
            tasks.start(self._fencing.run_sessions(), "broker sessions")
            tasks.start(self._tasks.run(), "periodic tasks")
            tasks.start(self._fencing.run_detector(), "failure detector")

    def broker_connection_lost(self, broker_id: int, broker_epoch: int) -> None:
        """A connection that carried heartbeats of this registration was closed, by either side."""
        self._fencing.on_connection_lost(broker_id, broker_epoch)

    async def create_topics(self, request: CreateTopicsRequest, version: int = 7) -> CreateTopicsResponse:
        return await self._event(lambda: self._topics.create(request), _timeout_ms(request, request.topics))

    async def create_partitions(self, request: CreatePartitionsRequest, version: int = 3) -> CreatePartitionsResponse:
        return await self._event(lambda: self._topics.create_partitions(request), _timeout_ms(request, request.topics))

    async def delete_topics(self, request: DeleteTopicsRequest, version: int = 6) -> DeleteTopicsResponse:
        named = request.topics or request.topic_names
        return await self._event(lambda: self._topics.delete(request, version), _timeout_ms(request, named))

    async def incremental_alter_configs(
        self, request: IncrementalAlterConfigsRequest, version: int = 1
    ) -> IncrementalAlterConfigsResponse:
        return await self._config_event(lambda: self._configs.alter_incrementally(request))

    async def alter_configs(self, request: AlterConfigsRequest, version: int = 2) -> AlterConfigsResponse:
        return await self._config_event(lambda: self._configs.alter(request))

    async def _config_event(self, decide: Callable[[], Decision[A]]) -> A:
        """A config change may affect partitions: those that may now have an unclean leader get one without waiting for
        the periodic task, and those without a leader keep their ELR."""
        unclean_allowed = False

        def decide_with_partitions() -> Steps[A]:
            nonlocal unclean_allowed
            decision = decide()
            unclean_allowed = allows_unclean(decision.records)
            yield from keep_leaderless_elr(self._image.latest, decision.records)
            decision.atomic = len(decision.records) <= MAX_RECORDS_PER_DECISION
            return decision

        response = await self._event(decide_with_partitions)
        if unclean_allowed:
            await self._tasks.perform_all(self._unclean_elections)
        return response

    async def alter_partition(self, request: AlterPartitionRequest, version: int = 3) -> AlterPartitionResponse:
        return await self._event(lambda: self._isrs.alter(request, version))

    async def elect_leaders(self, request: ElectLeadersRequest, version: int = 2) -> ElectLeadersResponse:
        return await self._event(lambda: self._leaders.elect(request), _timeout_ms(request, request.topic_partitions))

    async def alter_partition_reassignments(
        self, request: AlterPartitionReassignmentsRequest, version: int = 1
    ) -> AlterPartitionReassignmentsResponse:
        return await self._event(lambda: self._reassignments.alter(request), _timeout_ms(request, request.topics))

    async def list_partition_reassignments(
        self, request: ListPartitionReassignmentsRequest, version: int = 0
    ) -> ListPartitionReassignmentsResponse:
        return await self._event(lambda: self._reassignments.list_ongoing(request))

    async def assign_replicas_to_dirs(
        self, request: AssignReplicasToDirsRequest, version: int = 0
    ) -> AssignReplicasToDirsResponse:
        return await self._event(lambda: self._directories.assign(request))

    async def register_broker(self, request: BrokerRegistrationRequest, version: int = 4) -> BrokerRegistrationResponse:
        try:
            return await self._event(
                lambda: self.brokers.register(request, self._events.next_offset, self._clock.now_ms())
            )
        except KafkaError as error:
            if error.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION:
                self._fencing.on_duplicate_registration(request)
            raise

    async def broker_heartbeat(self, request: BrokerHeartbeatRequest, version: int = 2) -> BrokerHeartbeatResponse:
        self._fencing.on_heartbeat(request)
        # The next heartbeat makes this one redundant, so it does not wait in the queue for longer than this.
        timeout_ms = self._settings.broker_heartbeat_interval_ms // 2
        try:
            return await self._event(lambda: self.brokers.heartbeat(request, self._clock.now_ms()), timeout_ms)
        except KafkaError as error:
            if error.code is ErrorCode.REQUEST_TIMED_OUT:
                self._metrics.late_heartbeats.add()
            raise

    async def unregister_broker(self, request: UnregisterBrokerRequest, version: int = 0) -> UnregisterBrokerResponse:
        return await self._event(lambda: self.brokers.unregister(request))

    async def register_controller(
        self, request: ControllerRegistrationRequest, version: int = 0
    ) -> ControllerRegistrationResponse:
        return await self._event(lambda: self.brokers.register_controller(request))

    async def allocate_producer_ids(
        self, request: AllocateProducerIdsRequest, version: int = 0
    ) -> AllocateProducerIdsResponse:
        return await self._event(lambda: producer_ids.allocate(self._image.latest, request))

    async def alter_client_quotas(
        self, request: AlterClientQuotasRequest, version: int = 1
    ) -> AlterClientQuotasResponse:
        return await self._event(lambda: self._quotas.alter(request))

    async def alter_user_scram_credentials(
        self, request: AlterUserScramCredentialsRequest, version: int = 0
    ) -> AlterUserScramCredentialsResponse:
        return await self._event(lambda: self._scram.alter(request))

    async def create_acls(self, request: CreateAclsRequest, version: int = 3) -> CreateAclsResponse:
        return await self._event(lambda: self._acls.create(request))

    async def delete_acls(self, request: DeleteAclsRequest, version: int = 3) -> DeleteAclsResponse:
        return await self._event(lambda: self._acls.delete(request))

    async def update_features(self, request: UpdateFeaturesRequest, version: int = 2) -> UpdateFeaturesResponse:
        level = self._features.requested_kraft_version(request)
        if level is not None and self.is_active and not request.validate_only:
            rejected = await self._upgrade_quorum(level, request, version)
            if rejected is not None:
                return rejected
        return await self._event(lambda: self._features.update(request, version))

    async def _upgrade_quorum(
        self, level: int, request: UpdateFeaturesRequest, version: int
    ) -> UpdateFeaturesResponse | None:
        """kraft.version belongs to the quorum: it changes first, if the rest of the request is valid."""
        checked = replace(request, validate_only=True)
        response = await self._event(lambda: self._features.update(checked, version))
        if response.error_code == ErrorCode.NONE:
            response = await self._log.upgrade_kraft_version(level)  # type: ignore[assignment]
        return response if response.error_code != ErrorCode.NONE else None

    async def _event(self, decide: Callable[[], Decision[A] | Steps[A]], timeout_ms: int | None = None) -> A:
        return await self._events.decide(decide, timeout_ms)


class _TimedRequest(Protocol):
    @property
    def timeout_ms(self) -> int: ...


def _timeout_ms(request: _TimedRequest, named: Sequence[object] | None) -> int | None:
    """How long a request may wait in the queue. As in Kafka one that names nothing (an empty list; null means all) does
    not time out, neither do ListPartitionReassignments and UpdateFeatures, whose timeouts Kafka ignores; all others
    with a timeout of 0 or below time out at once."""
    return None if named is not None and not named else request.timeout_ms
