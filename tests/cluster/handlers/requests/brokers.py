"""Requests of brokers to the controller: registration, heartbeats, blocks of producer ids."""

from __future__ import annotations

from typing import Any

from cluster.handlers.script_run import ScriptRun
from cluster.handlers.script_runner import Listeners, script
from strandline.model.ids import ZERO_UUID, Uuid
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.brokers import (
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    ControllerRegistrationRequest,
    Feature,
    Listener,
)
from strandline.protocol.messages.cluster import DescribeClusterRequest, UnregisterBrokerRequest
from strandline.protocol.messages.producers import AllocateProducerIdsRequest

INCARNATION = Uuid(b"an incarnation 1")
SECOND_INCARNATION = Uuid(b"an incarnation 2")
DIRECTORY = Uuid(b"a log directory ")
FEATURES = [
    Feature(name="metadata.version", min_supported_version=7, max_supported_version=30),
    Feature(name="kraft.version", min_supported_version=0, max_supported_version=1),
    Feature(name="eligible.leader.replicas.version", min_supported_version=0, max_supported_version=1),
    Feature(name="group.version", min_supported_version=0, max_supported_version=1),
    Feature(name="transaction.version", min_supported_version=0, max_supported_version=2),
]


class FencedBroker:
    """A broker that registers and is never unfenced."""

    def __init__(self, run: ScriptRun, broker_id: int) -> None:
        self.run = run
        self.broker_id = broker_id
        self.cluster_id = run.call(DescribeClusterRequest()).cluster_id

    def registration(self, **fields: Any) -> BrokerRegistrationRequest:
        request = BrokerRegistrationRequest(
            broker_id=self.broker_id,
            cluster_id=self.cluster_id,
            incarnation_id=INCARNATION,
            listeners=[Listener(name="PLAINTEXT", host="localhost", port=9)],
            features=FEATURES,
            rack=None,
            log_dirs=[DIRECTORY],
        )
        for name, value in fields.items():
            setattr(request, name, value)
        return request

    def unregister(self) -> None:
        """Waits until it is no longer listed: the next script may describe the cluster."""
        self.run.call(UnregisterBrokerRequest(broker_id=self.broker_id))
        self.run.wait_until_replayed("unregistration")


@script(ApiKey.BROKER_REGISTRATION, Listeners.CONTROLLER)
def broker_registrations(run: ScriptRun) -> None:
    broker = FencedBroker(run, 70 + run.version)

    def record(label: str, **fields: Any) -> None:
        run.record(label, broker.registration(**fields))

    record("in another cluster", cluster_id="another")
    record("with no features", features=[])
    record("with a metadata version too old", features=[Feature(name="metadata.version", max_supported_version=10)])
    if run.version >= 2:
        record("with the same directory twice", log_dirs=[DIRECTORY, DIRECTORY])
        record("with a reserved directory", log_dirs=[ZERO_UUID])
    record("the first registration")
    record("again, the same incarnation")
    record("another incarnation within the session of the first", incarnation_id=SECOND_INCARNATION)
    record("with the id of the active broker", broker_id=1, incarnation_id=SECOND_INCARNATION)
    broker.unregister()


@script(ApiKey.CONTROLLER_REGISTRATION, Listeners.CONTROLLER)
def controller_registrations(run: ScriptRun) -> None:
    """Of the existing controller, unchanged: a second registration could not be removed again."""
    request = ControllerRegistrationRequest(
        controller_id=run.node.node_id,
        incarnation_id=INCARNATION,
        listeners=[Listener(name="CONTROLLER", host=run.node.host, port=run.node.controller_port)],
        features=FEATURES,
    )
    run.record("registered again", request)


@script(ApiKey.BROKER_HEARTBEAT, Listeners.CONTROLLER)
def heartbeats(run: ScriptRun) -> None:
    broker = FencedBroker(run, 80 + run.version)
    epoch = run.call(broker.registration(), on_controller=True).broker_epoch

    def record(label: str, **fields: Any) -> None:
        request = BrokerHeartbeatRequest(broker_id=broker.broker_id, broker_epoch=epoch, want_fence=True)
        for name, value in fields.items():
            setattr(request, name, value)
        run.record(label, request)

    record("of a broker that wants to stay fenced", current_metadata_offset=epoch)
    record("of a broker that is far behind", current_metadata_offset=0, want_fence=False)
    record("with an old epoch", broker_epoch=epoch - 1)
    record("with a future epoch", broker_epoch=epoch + 1)
    record("of an unknown broker", broker_id=99)
    record("of a broker in controlled shutdown", want_shut_down=True, current_metadata_offset=epoch)
    broker.unregister()


@script(ApiKey.ALLOCATE_PRODUCER_IDS, Listeners.CONTROLLER)
def producer_id_blocks(run: ScriptRun) -> None:
    broker = FencedBroker(run, 90)
    epoch = run.call(broker.registration(), on_controller=True).broker_epoch
    run.record("a block", AllocateProducerIdsRequest(broker_id=90, broker_epoch=epoch))
    run.record("another", AllocateProducerIdsRequest(broker_id=90, broker_epoch=epoch))
    run.record("with an old epoch", AllocateProducerIdsRequest(broker_id=90, broker_epoch=epoch - 1))
    run.record("for an unknown broker", AllocateProducerIdsRequest(broker_id=99, broker_epoch=1))
    broker.unregister()
