"""The controller: what it is asked, one method per request, and what it does by itself.

Machines (`topics`, `brokers`, `configs` …) decide on the latest view and return records and an answer;
`controller.events` makes one decision after the other, appends, and answers when committed; `controller.fencing` does
what nobody asks for. This module introduces them to one another, and says what belongs together where a request, or an
activation, is the business of several: a setting and the partitions that feel it, kraft.version and the other features.
It does not know who makes the log durable: it sees the `MetadataLog` port.

Callers (handlers through `node`, the broker's own lifecycle) await one method per request. `activate` and `renounce`
follow the leadership of the log and may be called many times; `run` is the clockwork, for as long as the process lives.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from random import Random
from typing import TypeVar

from msgspec.structs import replace

from strandline.controller import producer_ids, tokens
from strandline.controller.acls import Acls
from strandline.controller.brokers import Brokers
from strandline.controller.configs import Configs
from strandline.controller.decisions import MAX_RECORDS_PER_DECISION, Decision, Steps
from strandline.controller.directory_assignments import DirectoryAssignments
from strandline.controller.elect_leaders import LeaderElections, allows_unclean
from strandline.controller.events import Events
from strandline.controller.features import Features
from strandline.controller.fencing import BrokerFencing
from strandline.controller.isr import IsrChanges
from strandline.controller.metadata_log import MetadataLog
from strandline.controller.metrics import ControllerMetrics
from strandline.controller.partition_changes import keep_eligible
from strandline.controller.periodic_tasks import PeriodicTask
from strandline.controller.probes import NoProbes, Prober
from strandline.controller.quotas import Quotas
from strandline.controller.reassignments import Reassignments
from strandline.controller.scram import Scram
from strandline.controller.sessions import FormerLeader
from strandline.controller.settings import ControllerSettings
from strandline.controller.topics import Topics
from strandline.controller.unconfirmed_failures import UnconfirmedFailures
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
        dials: Prober | None = None,
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
        doubts = UnconfirmedFailures()
        self.brokers = Brokers(image.latest, settings, doubts)
        self._topics = Topics(image.latest, settings, random)
        self._configs = Configs(image.latest, settings)
        self._features = Features(image.latest, settings, lambda: log.kraft_version)
        self._isrs = IsrChanges(image.latest, settings, doubts)
        self._leaders = LeaderElections(image.latest, settings, doubts)
        self._reassignments = Reassignments(image.latest, settings, doubts)
        self._directories = DirectoryAssignments(image.latest, settings, doubts)
        self._quotas = Quotas(image.latest)
        self._scram = Scram(image.latest)
        self._acls = Acls(image.latest, random, authorizer=settings.authorizer)
        unclean_ms, expiry_ms = settings.unclean_leader_election_interval_ms, settings.token_expiry_check_interval_ms
        unclean_election = PeriodicTask("elect unclean leaders", unclean_ms, self._leaders.elect_unclean)
        self._caretaker = BrokerFencing(
            image.latest, settings, self._events, self.brokers, clock, dials or NoProbes(), unclean_election
        )
        balance_ms = settings.leader_imbalance_check_interval_ms if settings.auto_leader_rebalance_enable else 0
        self._caretaker.add(PeriodicTask("balance leaders", balance_ms, self._leaders.balance))
        self._caretaker.add(
            PeriodicTask("expire tokens", expiry_ms, lambda: tokens.expire(image.latest, clock.wall_ms()))
        )

    @property
    def is_active(self) -> bool:
        return self._events.leadership is not None

    async def activate(self) -> None:
        """The log is ours, and everything in it is replayed: finish what a predecessor began, then take requests."""
        if self._events.begin() is None:
            return
        self._metrics.activations.add()
        former_leader = self._log.former_leader
        self._caretaker.start(None if former_leader is None else FormerLeader(*former_leader))
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
        self._caretaker.stop()

    async def run(self) -> None:
        """What it does without being asked. Sleeps while another controller is active; ends by cancellation."""
        await self._caretaker.run()

    def broker_connection_lost(self, broker_id: int, broker_epoch: int) -> None:
        """A connection that carried the heartbeats of this registration has ended, whoever ended it."""
        self._caretaker.connection_lost(broker_id, broker_epoch)

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
        if unclean_allowed:
            await self._caretaker.elect_unclean()
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
                self._caretaker.on_duplicate_registration(request)
            raise

    async def broker_heartbeat(self, request: BrokerHeartbeatRequest, version: int = 2) -> BrokerHeartbeatResponse:
        self._caretaker.heard(request)
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
            answer = await self._log.upgrade_kraft_version(level)  # type: ignore[assignment]
        return answer if answer.error_code != ErrorCode.NONE else None

    async def _event(self, decide: Callable[[], Decision[A] | Steps[A]], timeout_ms: int | None = None) -> A:
        return await self._events.decide(decide, timeout_ms)
