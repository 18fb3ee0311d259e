"""The controller: what it is asked, one method per request, and what it does by itself.

Machines (`topics`, `brokers`, `configs` …) decide on the latest view and return records and an answer;
`controller.events` makes one decision after the other, appends, and answers when committed. This module only introduces
them to one another. It does not know who makes the log durable: it sees the `MetadataLog` port.

Callers (handlers through `node`, the broker's own lifecycle) await one method per request. `activate` and `renounce`
follow the leadership of the log and may be called many times; `run` is the clockwork, for as long as the process lives.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import TypeVar

from msgspec.structs import replace

from strandline.controller import producer_ids, tokens
from strandline.controller.acls import Acls
from strandline.controller.brokers import Brokers
from strandline.controller.clockwork import Alarm, Duties, Duty
from strandline.controller.configs import Configs
from strandline.controller.deaths import Deaths, Fence
from strandline.controller.decisions import MAX_RECORDS_PER_DECISION, Decision, Steps
from strandline.controller.dials import DeathWatch, Dials, NoDials
from strandline.controller.directories import Directories
from strandline.controller.elections import keep_eligible
from strandline.controller.events import Events
from strandline.controller.features import Features
from strandline.controller.isr import Isrs
from strandline.controller.leaders import Leaders, allows_unclean
from strandline.controller.metrics import ControllerMetrics
from strandline.controller.port import MetadataLog, UpgradableLog
from strandline.controller.quotas import Quotas
from strandline.controller.reassignments import Reassignments
from strandline.controller.scram import Scram
from strandline.controller.settings import ControllerSettings
from strandline.controller.topics import Topics
from strandline.metadata.image import Image
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import Endpoint
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
from strandline.protocol.messages.metadata_records import AbortTransactionRecord, NoOpRecord
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
        dials: Dials | None = None,
    ) -> None:
        """`bootstrap` is what the first active controller of a cluster writes (see `metadata.features`)."""
        self._image = image
        self._log = log
        self._clock = clock
        self._settings = settings
        self._bootstrap = bootstrap
        metrics = metrics or Metrics()
        self._events = Events(image, log, clock, metrics)
        self._metrics = ControllerMetrics(image, clock, metrics, lambda: self.is_active)
        self.brokers = Brokers(image.latest, settings)
        self._topics = Topics(image.latest, settings, random)
        self._configs = Configs(image.latest, settings)
        self._features = Features(image.latest, settings, lambda: log.kraft_version)
        self._isrs = Isrs(image.latest, settings)
        self._leaders = Leaders(image.latest, settings)
        self._reassignments = Reassignments(image.latest, settings)
        self._directories = Directories(image.latest, settings)
        self._quotas = Quotas(image.latest)
        self._scram = Scram(image.latest)
        self._acls = Acls(image.latest, random, authorizer=settings.authorizer)
        self._duties = Duties(self._perform)
        self._duties.add(Duty("no-op", settings.max_idle_interval_ms, self._no_op))
        self._duties.add(
            Duty(
                "token expiry",
                settings.token_expiry_check_interval_ms,
                lambda: tokens.expire(image.latest, clock.wall_ms()),
            )
        )
        balance_ms = settings.leader_imbalance_check_interval_ms if settings.auto_leader_rebalance_enable else 0
        self._duties.add(Duty("balance leaders", balance_ms, self._leaders.balance))
        unclean_ms = settings.unclean_leader_election_interval_ms
        self._unclean_election = Duty("elect unclean leaders", unclean_ms, self._leaders.elect_unclean)
        self._duties.add(self._unclean_election)
        self._deaths = Deaths(image.latest, settings)
        self._watch = DeathWatch(self._deaths, dials or NoDials(), clock, self._fence_dead_broker)
        self._alarms = [
            Alarm(clock, self._next_session_end_ms, self._fence_silent_brokers, self._on_standstill),
            Alarm(clock, self._duties.next_deadline_ms, self._duties.ring),
        ]

    @property
    def is_active(self) -> bool:
        return self._events.leadership is not None

    async def activate(self) -> None:
        """The log is ours, and everything in it is replayed: finish what a predecessor began, then take requests."""
        if self._events.begin() is None:
            return
        self._metrics.activations.add()
        now_ms = self._clock.now_ms()
        self.brokers.activate(now_ms)
        self._watch.perform(self._deaths.on_activated(self._settings.node_id, self.brokers.predecessor(), now_ms))
        self._duties.start(now_ms)
        for alarm in self._alarms:
            alarm.changed()
        try:
            await self._event(self._first_decision)
        except KafkaError as error:
            if error.code is not ErrorCode.NOT_CONTROLLER:
                raise
            logger.info("the lead of the metadata log was lost before this controller had begun")

    def _first_decision(self) -> Decision[None]:
        """Everything in the log is committed by now, so what `committed` does not show is an open transaction's."""
        records: list[Message] = []
        if self._image.transaction_open:
            records.append(AbortTransactionRecord(reason="the controller changed"))
        if self._image.committed.metadata_version == 0:
            records += self._features.bootstrap(self._bootstrap)
        return Decision(None, records)

    def renounce(self) -> None:
        """The log is another's. What waits for its turn or its commit fails, and what was not committed never was."""
        self._events.end()
        self._duties.stop()
        self._deaths.on_renounced()

    async def run(self) -> None:
        """The clockwork. Sleeps while another controller is active; ends by cancellation."""
        async with TaskGroup() as tasks:
            for alarm in self._alarms:
                tasks.start(alarm.run(), "controller's alarm")
            tasks.start(self._watch.run(), "death watch")

    def _on_standstill(self, late_ms: int) -> None:
        """What came in the meantime is yet to be read, and everybody has the time of a heartbeat to be heard."""
        logger.warning("this process stood still for %d ms; nobody is held to have been silent meanwhile", late_ms)
        self.brokers.sessions.postpone(late_ms + self._settings.broker_heartbeat_interval_ms)

    async def _perform(self, duty: Duty) -> bool:
        try:
            return await self._event(duty.decide)
        except KafkaError as error:
            if error.code is not ErrorCode.NOT_CONTROLLER:
                logger.warning("the controller's duty %r failed: %s", duty.name, error)
            return False

    def _no_op(self) -> Decision[bool]:
        """Shows followers that the log is led and how far they lag; with nobody to see it, a disk may sleep."""
        leadership = self._events.leadership
        if leadership is None or not self._followed():
            return Decision(False)
        idle_ms = self._clock.now_ms() - leadership.last_append_ms
        return Decision(False, [NoOpRecord()] if idle_ms >= self._settings.max_idle_interval_ms else [])

    def _followed(self) -> bool:
        view, me = self._image.latest, self._settings.node_id
        return any(broker.id != me and not broker.fenced for broker in view.brokers()) or any(
            controller.id != me for controller in view.controllers()
        )

    def _next_session_end_ms(self) -> int | None:
        if not self.is_active:
            return None
        # A session that is yet to begin ends no earlier.
        latest_ms = self._clock.now_ms() + self._settings.broker_session_timeout_ms
        deadline_ms = self.brokers.sessions.next_deadline_ms()
        return latest_ms if deadline_ms is None else deadline_ms

    async def _fence_silent_brokers(self, now_ms: int) -> None:
        for broker_id in self.brokers.sessions.expired(now_ms):
            await self._fence(broker_id, partial(self._is_silent, broker_id))

    def _is_silent(self, broker_id: int) -> bool:
        """Asked when it is to be fenced: it may have been heard while other events had their turn."""
        return broker_id in self.brokers.sessions.expired(self._clock.now_ms())

    async def _fence(self, broker_id: int, is_due: Callable[[], bool]) -> None:
        def decide() -> Decision[None] | Steps[None]:
            return self.brokers.fence(broker_id) if is_due() else Decision(None)

        try:
            await self._event(decide)
        except KafkaError as error:
            # Whoever is active now has sessions of its own.
            if error.code is not ErrorCode.NOT_CONTROLLER:
                raise

    def broker_connection_lost(self, broker_id: int, broker_epoch: int) -> None:
        """A connection that carried the heartbeats of this registration has ended, whoever ended it."""
        if self.is_active:
            now_ms = self._clock.now_ms()
            self._watch.perform(self._deaths.on_connection_lost(broker_id, broker_epoch, now_ms))

    async def _fence_dead_broker(self, fence: Fence) -> None:
        broker_id, epoch = fence.broker_id, fence.broker_epoch
        await self._fence(broker_id, partial(self._is_dead, broker_id, epoch))

    def _is_dead(self, broker_id: int, epoch: int) -> bool:
        broker = self._image.latest.broker(broker_id)
        if broker is None or broker.epoch != epoch or not self._deaths.is_dead(broker_id, epoch):
            return False
        self._deaths.on_fenced(broker_id, epoch)
        logger.warning("broker %d is dead: it is gone without goodbye, and its listeners refuse connections", broker_id)
        return True

    async def create_topics(self, request: CreateTopicsRequest, version: int = 7) -> CreateTopicsResponse:
        return await self._event(lambda: self._topics.create(request), request.timeout_ms)

    async def create_partitions(self, request: CreatePartitionsRequest, version: int = 3) -> CreatePartitionsResponse:
        return await self._event(lambda: self._topics.create_partitions(request), request.timeout_ms)

    async def delete_topics(self, request: DeleteTopicsRequest, version: int = 6) -> DeleteTopicsResponse:
        return await self._event(lambda: self._topics.delete(request, version), request.timeout_ms)

    async def incremental_alter_configs(
        self, request: IncrementalAlterConfigsRequest, version: int = 1
    ) -> IncrementalAlterConfigsResponse:
        return await self._settings_event(lambda: self._configs.alter_incrementally(request))

    async def alter_configs(self, request: AlterConfigsRequest, version: int = 2) -> AlterConfigsResponse:
        return await self._settings_event(lambda: self._configs.alter(request))

    async def _settings_event(self, decide: Callable[[], Decision[A]]) -> A:
        """Settings that partitions feel: whoever may have an unclean leader from now on need not wait for the next look
        around, and whoever waits for an eligible one still can."""
        unclean_allowed = False

        def decide_with_partitions() -> Steps[A]:
            nonlocal unclean_allowed
            decision = decide()
            unclean_allowed = allows_unclean(decision.records)
            yield from keep_eligible(self._image.latest, decision.records)
            decision.atomic = len(decision.records) <= MAX_RECORDS_PER_DECISION
            return decision

        answer = await self._event(decide_with_partitions)
        while unclean_allowed and await self._perform(self._unclean_election):
            pass
        return answer

    async def alter_partition(self, request: AlterPartitionRequest, version: int = 3) -> AlterPartitionResponse:
        return await self._event(lambda: self._isrs.alter(request, version))

    async def elect_leaders(self, request: ElectLeadersRequest, version: int = 2) -> ElectLeadersResponse:
        return await self._event(lambda: self._leaders.elect(request), request.timeout_ms)

    async def alter_partition_reassignments(
        self, request: AlterPartitionReassignmentsRequest, version: int = 1
    ) -> AlterPartitionReassignmentsResponse:
        return await self._event(lambda: self._reassignments.alter(request), request.timeout_ms)

    async def list_partition_reassignments(
        self, request: ListPartitionReassignmentsRequest, version: int = 0
    ) -> ListPartitionReassignmentsResponse:
        return await self._event(lambda: self._reassignments.list_ongoing(request), request.timeout_ms)

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
                listeners = [Endpoint(each.host, each.port) for each in request.listeners]
                now_ms = self._clock.now_ms()
                self._watch.perform(
                    self._deaths.on_registration_refused(request.broker_id, request.log_dirs, listeners, now_ms)
                )
            raise

    async def broker_heartbeat(self, request: BrokerHeartbeatRequest, version: int = 2) -> BrokerHeartbeatResponse:
        now_ms = self._clock.now_ms()
        self.brokers.heard(request, now_ms)
        self._watch.perform(self._deaths.on_heartbeat(request.broker_id, request.broker_epoch, now_ms))
        # It is as good as any that follows, so after a while it is not worth waiting for.
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
        level = self._features.asked_of_the_quorum(request)
        if level is not None and self.is_active and not request.validate_only:
            refused = await self._upgrade_quorum(level, request, version)
            if refused is not None:
                return refused
        return await self._event(lambda: self._features.update(request, version), request.timeout_ms)

    async def _upgrade_quorum(
        self, level: int, request: UpdateFeaturesRequest, version: int
    ) -> UpdateFeaturesResponse | None:
        """kraft.version is the quorum's own: it changes first, if everything else that is asked for may follow."""
        checked = replace(request, validate_only=True)
        answer = await self._event(lambda: self._features.update(checked, version), request.timeout_ms)
        if answer.error_code == ErrorCode.NONE:
            if not isinstance(self._log, UpgradableLog):
                return self._features.refused_by_the_quorum(level)
            answer = await self._log.upgrade_kraft_version(level)  # type: ignore[assignment]
        return answer if answer.error_code != ErrorCode.NONE else None

    async def _event(self, decide: Callable[[], Decision[A] | Steps[A]], timeout_ms: int | None = None) -> A:
        return await self._events.decide(decide, timeout_ms)
