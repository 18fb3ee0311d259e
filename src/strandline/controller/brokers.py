"""Brokers: registration (62), heartbeats (63), fencing, controlled shutdown, unregistration (64); controllers (70).

The states of a broker; every arrow is a record:

    registered (fenced) ──caught up──▶ unfenced ──wants shutdown──▶ in controlled shutdown ──leads nothing──▶ fenced
           ▲                              │ session timed out, or wants to be fenced                            │
           └──────────────────────────────┴─────────────────────────────────────────────────────────────────────┘

The broker epoch is the offset of the record that registered the broker. A request with another epoch comes from an
earlier process, and is rejected (`registered_broker`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from enum import Enum, auto

from strandline.controller.decisions import MAX_RECORDS_PER_DECISION, Decision, Steps
from strandline.controller.failure_detector import UnconfirmedFailures
from strandline.controller.leader_eligibility import TopicElectionRules, elr_enabled
from strandline.controller.partition_changes import Walk, elect_leaderless, leads_any, remove_from_isrs
from strandline.controller.sessions import FormerLeader, Session, Sessions
from strandline.controller.settings import ControllerSettings
from strandline.metadata.cluster_image import METADATA_VERSION
from strandline.metadata.record_versions import CONTROLLERS_SINCE, CORDONED_DIRECTORIES_SINCE, DIRECTORIES_SINCE
from strandline.metadata.values import BrokerInfo
from strandline.metadata.views import View
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import Uuid
from strandline.protocol.messages.brokers import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from strandline.protocol.messages.cluster import UnregisterBrokerRequest, UnregisterBrokerResponse
from strandline.protocol.messages.metadata_records import (
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    ControllerEndpoint,
    ControllerFeature,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnregisterBrokerRecord,
)
from strandline.protocol.types import Message

FENCED, UNFENCED = 1, -1


class Next(Enum):
    """The state of a broker after a heartbeat."""

    UNCHANGED = auto()
    FENCED = auto()
    UNFENCED = auto()
    CONTROLLED_SHUTDOWN = auto()
    SHUTDOWN_NOW = auto()


class Brokers:
    def __init__(
        self, view: View, settings: ControllerSettings, unconfirmed: UnconfirmedFailures | None = None
    ) -> None:
        self._view = view
        self._settings = settings
        self.unconfirmed = unconfirmed or UnconfirmedFailures()
        self.sessions = self._no_sessions()

    def _no_sessions(self) -> Sessions:
        return Sessions(self._settings.broker_session_timeout_ms, self._settings.broker_heartbeat_interval_ms)

    def activate(self, now_ms: int, former_leader: FormerLeader | None = None) -> None:
        """Starts a whole session for every broker that is not fenced, and a shorter one for the former leader."""
        if former_leader is None or not self._settings.failure_detection:
            last_contact_ms = {}
        else:
            last_contact_ms = {former_leader.id: former_leader.last_contact_ms}
        self.sessions = self._no_sessions()
        self.unconfirmed.clear()
        for broker in self._view.brokers():
            if not broker.fenced:
                self.sessions.start(broker.id, broker.epoch, now_ms, last_contact_ms.get(broker.id))
            elif self._settings.failure_detection:
                # The former active controller may have fenced it a moment ago, as failed.
                self.unconfirmed.add(broker.id, now_ms + self._settings.broker_session_timeout_ms)

    def predecessor(self) -> BrokerInfo | None:
        """The broker registered under this node's id, if that was an earlier process.

        That process has ended: it held the lock on the log directories that this one holds now.
        """
        broker = self._view.broker(self._settings.node_id)
        if broker is None or broker.fenced or self._settings.incarnation_id is None:
            return None
        return None if broker.incarnation_id == self._settings.incarnation_id else broker

    def register(
        self, request: BrokerRegistrationRequest, next_offset: int, now_ms: int
    ) -> Steps[BrokerRegistrationResponse]:
        """`next_offset` is the offset of the first record of this decision.

        A broker that restarted leaves its ISRs first, and its registration is the last record, so that no partition
        relies on the new process. The offset of that record is the broker epoch. A broker that knows its previous epoch
        has kept its logs, and stays in the ELR.
        """
        if request.cluster_id != self._settings.cluster_id:
            raise KafkaError(
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f"broker {request.broker_id} belongs to cluster {request.cluster_id}, not {self._settings.cluster_id}",
            )
        known = self._view.broker(request.broker_id)
        again = known is not None and known.incarnation_id == request.incarnation_id
        if known is not None and not again:
            self._check_stopped(known, request, now_ms)
        if request.is_migrating_zk_broker:
            raise KafkaError(
                ErrorCode.BROKER_ID_NOT_REGISTERED, "brokers that migrate from ZooKeeper are not supported"
            )
        self._check_directories(request)
        self._check_features(request)
        records: list[Message] = []
        if known is not None and not again:
            # Its predecessor may never have been fenced, and a broker that starts is in no ISR.
            # A broker without a directory that it had may have lost records, whatever its other directories contain.
            lost = not set(known.directories) <= set(request.log_dirs)
            unclean = (lost or request.previous_broker_epoch != known.epoch) and elr_enabled(self._view)
            yield from remove_from_isrs(self._view, self._rules(), known.id, records, unclean_shutdown=unclean)
        epoch = known.epoch if again and known is not None else next_offset + len(records)
        records.append(_register_record(request, epoch, known if again else None, self._view.metadata_version))
        # The session starts with the first heartbeat, so a registration alone does not block another one.
        on_appended = None if again else self._end_session(request.broker_id)
        atomic = len(records) <= MAX_RECORDS_PER_DECISION
        return Decision(BrokerRegistrationResponse(broker_epoch=epoch), records, atomic=atomic, on_appended=on_appended)

    def _end_session(self, broker_id: int) -> Callable[[int], None]:
        """Ends the session once the records are in the log and not before, because until then the request may fail."""

        def on_appended(_offset: int) -> None:
            self.sessions.end(broker_id)

        return on_appended

    def _check_stopped(self, predecessor: BrokerInfo, request: BrokerRegistrationRequest, now_ms: int) -> None:
        if predecessor is self.predecessor() and request.incarnation_id == self._settings.incarnation_id:
            return
        if self.sessions.is_alive(predecessor.id, predecessor.epoch, now_ms):
            raise KafkaError(
                ErrorCode.DUPLICATE_BROKER_REGISTRATION, f"another broker with id {predecessor.id} is still alive"
            )

    def _check_directories(self, request: BrokerRegistrationRequest) -> None:
        if self._view.metadata_version < DIRECTORIES_SINCE:
            return
        directories = request.log_dirs
        if not directories:
            raise KafkaError(ErrorCode.INVALID_REGISTRATION, "no log directories were given")
        if len(set(directories)) != len(directories):
            raise KafkaError(ErrorCode.INVALID_REGISTRATION, "a log directory was given twice")
        if any(int.from_bytes(directory, "big") < 100 for directory in directories):
            raise KafkaError(ErrorCode.INVALID_REGISTRATION, "a log directory has a reserved id")
        for broker in self._view.brokers():
            taken = set(broker.directories).intersection(directories)
            if broker.id != request.broker_id and taken:
                raise KafkaError(
                    ErrorCode.INVALID_REGISTRATION, f"log directory {min(taken)} is registered by broker {broker.id}"
                )

    def _check_features(self, request: BrokerRegistrationRequest) -> None:
        finalized = dict(self._view.features())
        for feature in request.features:
            level = finalized.pop(feature.name, None)
            low, high = feature.min_supported_version, feature.max_supported_version
            if level is not None and not low <= level <= high:
                raise _unsupported(request.broker_id, feature.name, low, high, level)
        if METADATA_VERSION in finalized:
            raise KafkaError(
                ErrorCode.INVALID_REGISTRATION, "the registration names no supported range of metadata.version"
            )
        for name, level in finalized.items():
            raise _unsupported(request.broker_id, name, 0, 0, level)

    def renew_session(self, request: BrokerHeartbeatRequest, now_ms: int) -> None:
        """Called when a heartbeat arrives, before it queues: a busy controller must not time out its sender."""
        self.sessions.renew(request.broker_id, request.broker_epoch, now_ms)

    def heartbeat(self, request: BrokerHeartbeatRequest, now_ms: int) -> Steps[BrokerHeartbeatResponse]:
        broker = registered_broker(self._view, request.broker_id, request.broker_epoch)
        session = self.sessions.touch(broker.id, broker.epoch, request.current_metadata_offset, now_ms)
        records: list[Message] = []
        if self._failed_directories(broker, request):
            # Whatever else the broker wants, its next heartbeat wants too, and by then this is decided.
            upcoming = Next.UNCHANGED
            yield from self._take_offline(broker, request, records)
        else:
            upcoming = yield from self._next(broker, session, request)
            yield from self._become(broker, upcoming, records)
        self._note_cordoned(broker, request, records)
        response = BrokerHeartbeatResponse(
            is_caught_up=request.current_metadata_offset >= broker.epoch,
            is_fenced=broker.fenced if upcoming is Next.UNCHANGED else upcoming in (Next.FENCED, Next.SHUTDOWN_NOW),
            should_shut_down=upcoming is Next.SHUTDOWN_NOW,
        )
        on_appended = None
        if upcoming is Next.SHUTDOWN_NOW:
            on_appended = self._end_session(broker.id)
        elif upcoming is Next.CONTROLLED_SHUTDOWN and records:
            on_appended = session.on_shutdown_appended
        return Decision(response, records, atomic=False, on_appended=on_appended)

    def _become(self, broker: BrokerInfo, upcoming: Next, records: list[Message]) -> Walk:
        if upcoming is Next.UNFENCED:
            records.append(_change(broker, fenced=UNFENCED))
            yield from elect_leaderless(self._view, self._rules(), broker.id, records)
        elif upcoming is Next.CONTROLLED_SHUTDOWN:
            if not broker.in_controlled_shutdown:
                records.append(_change(broker, in_controlled_shutdown=1))
            yield from remove_from_isrs(self._view, self._rules(), broker.id, records)
        elif upcoming in (Next.FENCED, Next.SHUTDOWN_NOW) and not broker.fenced:
            yield from remove_from_isrs(self._view, self._rules(), broker.id, records)
            records.append(_change(broker, fenced=FENCED))

    def _next(
        self, broker: BrokerInfo, session: Session, request: BrokerHeartbeatRequest
    ) -> Generator[None, None, Next]:
        if broker.fenced:
            if request.want_shut_down:
                return Next.SHUTDOWN_NOW
            caught_up = request.current_metadata_offset >= broker.epoch
            return Next.UNFENCED if caught_up and not request.want_fence else Next.UNCHANGED
        if request.want_fence:
            return Next.SHUTDOWN_NOW if request.want_shut_down else Next.FENCED
        if not request.want_shut_down:
            return Next.UNCHANGED
        if (yield from leads_any(self._view, broker.id)):
            return Next.CONTROLLED_SHUTDOWN
        if not broker.in_controlled_shutdown:
            return Next.SHUTDOWN_NOW
        others = [other.id for other in self._view.brokers() if other.active]
        lowest = self.sessions.lowest_metadata_offset(others)
        replayed = lowest is None or session.shutdown_offset is None or lowest >= session.shutdown_offset
        return Next.SHUTDOWN_NOW if replayed else Next.CONTROLLED_SHUTDOWN

    def _failed_directories(self, broker: BrokerInfo, request: BrokerHeartbeatRequest) -> list[Uuid]:
        """The failed directories that were online before this heartbeat."""
        if not request.offline_log_dirs or self._view.metadata_version < DIRECTORIES_SINCE:
            return []
        return [directory for directory in broker.directories if directory in request.offline_log_dirs]

    def _take_offline(self, broker: BrokerInfo, request: BrokerHeartbeatRequest, records: list[Message]) -> Walk:
        """A broker that loses its last directory stops by itself, so no record of its directories is needed."""
        failed = self._failed_directories(broker, request)
        # The replicas in them may have lost records: they leave the ISR and the ELR.
        unclean = elr_enabled(self._view)
        rules = self._rules()
        yield from remove_from_isrs(self._view, rules, broker.id, records, directories=failed, unclean_shutdown=unclean)
        online = [directory for directory in broker.directories if directory not in failed]
        if online:
            records.append(_change(broker, log_dirs=online))

    def _note_cordoned(self, broker: BrokerInfo, request: BrokerHeartbeatRequest, records: list[Message]) -> None:
        if request.cordoned_log_dirs is None or self._view.metadata_version < CORDONED_DIRECTORIES_SINCE:
            return
        if broker.cordoned_directories != tuple(request.cordoned_log_dirs):
            records.append(_change(broker, cordoned_log_dirs=list(request.cordoned_log_dirs)))

    def fence(self, broker_id: int, *, failed: bool = False) -> Steps[None]:
        """The broker's own record comes last, so that it is in no ISR when it is fenced.

        `failed`: by the failure detector. The failure is unconfirmed for as long as the session would have lasted.
        """
        records: list[Message] = []
        broker = self._view.broker(broker_id)
        session = self.sessions.end(broker_id)
        if failed and session is not None:
            self.unconfirmed.add(broker_id, session.deadline_ms)
        if broker is not None and not broker.fenced:
            yield from remove_from_isrs(self._view, self._rules(), broker_id, records)
            records.append(_change(broker, fenced=FENCED))
        return Decision(None, records, atomic=False)

    def unregister(self, request: UnregisterBrokerRequest) -> Steps[UnregisterBrokerResponse]:
        broker = self._view.broker(request.broker_id)
        if broker is None:
            raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {request.broker_id} is not registered")
        records: list[Message] = []
        # It leaves the ELR too: the next registration under this id is not asked for its previous epoch.
        yield from remove_from_isrs(self._view, self._rules(), broker.id, records, unclean_shutdown=True)
        records.append(UnregisterBrokerRecord(broker_id=broker.id, broker_epoch=broker.epoch))
        response = UnregisterBrokerResponse(error_message=None)
        return Decision(response, records, atomic=False, on_appended=self._end_session(broker.id))

    def register_controller(self, request: ControllerRegistrationRequest) -> Decision[ControllerRegistrationResponse]:
        if self._view.metadata_version < CONTROLLERS_SINCE:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION, f"controllers register from metadata.version {CONTROLLERS_SINCE} on"
            )
        record = RegisterControllerRecord(
            controller_id=request.controller_id,
            incarnation_id=request.incarnation_id,
            zk_migration_ready=request.zk_migration_ready,
            end_points=[
                ControllerEndpoint(name=at.name, host=at.host, port=at.port, security_protocol=at.security_protocol)
                for at in request.listeners
            ],
            features=[
                ControllerFeature(
                    name=feature.name,
                    min_supported_version=feature.min_supported_version,
                    max_supported_version=feature.max_supported_version,
                )
                for feature in request.features
            ],
        )
        return Decision(ControllerRegistrationResponse(), [record])

    def _rules(self) -> TopicElectionRules:
        return TopicElectionRules(self._view, self._settings, self.unconfirmed)


def registered_broker(view: View, broker_id: int, epoch: int) -> BrokerInfo:
    """The sender of a broker's request; raises STALE_BROKER_EPOCH unless it is registered with this epoch."""
    broker = view.broker(broker_id)
    if broker is None or broker.epoch != epoch:
        known = "is not registered" if broker is None else f"is registered with epoch {broker.epoch}"
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"broker {broker_id} sent epoch {epoch} but {known}")
    return broker


def _unsupported(broker_id: int, name: str, low: int, high: int, level: int) -> KafkaError:
    return KafkaError(
        ErrorCode.UNSUPPORTED_VERSION,
        f"broker {broker_id} supports {name} {low} to {high}, the cluster has finalized {level}",
    )


def _change(
    broker: BrokerInfo,
    *,
    fenced: int = 0,
    in_controlled_shutdown: int = 0,
    log_dirs: list[Uuid] | None = None,
    cordoned_log_dirs: list[Uuid] | None = None,
) -> BrokerRegistrationChangeRecord:
    return BrokerRegistrationChangeRecord(
        broker_id=broker.id,
        broker_epoch=broker.epoch,
        fenced=fenced,
        in_controlled_shutdown=in_controlled_shutdown,
        log_dirs=log_dirs or [],
        cordoned_log_dirs=cordoned_log_dirs,
    )


def _register_record(
    request: BrokerRegistrationRequest, epoch: int, same: BrokerInfo | None, metadata_version: int
) -> RegisterBrokerRecord:
    """`same` is an earlier registration of this incarnation, whose fencing state is kept."""
    return RegisterBrokerRecord(
        broker_id=request.broker_id,
        is_migrating_zk_broker=request.is_migrating_zk_broker,
        incarnation_id=request.incarnation_id,
        broker_epoch=epoch,
        end_points=[
            BrokerEndpoint(name=at.name, host=at.host, port=at.port, security_protocol=at.security_protocol)
            for at in request.listeners
        ],
        features=[
            BrokerFeature(
                name=feature.name,
                min_supported_version=feature.min_supported_version,
                max_supported_version=feature.max_supported_version,
            )
            for feature in request.features
        ],
        rack=request.rack,
        fenced=True if same is None else same.fenced,
        in_controlled_shutdown=False if same is None else same.in_controlled_shutdown,
        log_dirs=list(request.log_dirs) if metadata_version >= DIRECTORIES_SINCE else [],
    )
