"""What brokers ask of a controller: registration, heartbeats, blocks of producer ids."""

from __future__ import annotations

from typing import Any

from cluster.handlers.scripts.running import Asked, script
from cluster.handlers.talk import Talk
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
]


class Newcomer:
    """A broker that registers and never does more than heartbeats."""

    def __init__(self, talk: Talk, broker_id: int) -> None:
        self.talk = talk
        self.broker_id = broker_id
        self.cluster_id = talk.quietly(DescribeClusterRequest()).cluster_id

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

    def gone(self) -> None:
        """For everybody: the next script may ask a broker which brokers there are."""
        self.talk.quietly(UnregisterBrokerRequest(broker_id=self.broker_id))
        self.talk.settle("the-newcomer")


@script(ApiKey.BROKER_REGISTRATION, Asked.CONTROLLER)
def registrations(talk: Talk) -> None:
    newcomer = Newcomer(talk, 70 + talk.version)

    def ask(label: str, **fields: Any) -> None:
        talk.ask(label, newcomer.registration(**fields))

    ask("in another cluster", cluster_id="another")
    ask("with no features", features=[])
    ask("with a metadata version too old", features=[Feature(name="metadata.version", max_supported_version=10)])
    if talk.version >= 2:
        ask("with the same directory twice", log_dirs=[DIRECTORY, DIRECTORY])
        ask("with a reserved directory", log_dirs=[ZERO_UUID])
    ask("for the first time")
    ask("again, the same incarnation")
    ask("another incarnation while the first may be alive", incarnation_id=SECOND_INCARNATION)
    ask("with the id of the live broker", broker_id=1, incarnation_id=SECOND_INCARNATION)
    newcomer.gone()


@script(ApiKey.CONTROLLER_REGISTRATION, Asked.CONTROLLER)
def registrations_of_controllers(talk: Talk) -> None:
    """Only of the one that there is, as it is: nobody could be rid of another again."""
    request = ControllerRegistrationRequest(
        controller_id=talk.target.node_id,
        incarnation_id=INCARNATION,
        listeners=[Listener(name="CONTROLLER", host=talk.target.host, port=talk.target.controller_port)],
        features=FEATURES,
    )
    talk.ask("once more", request)


@script(ApiKey.BROKER_HEARTBEAT, Asked.CONTROLLER)
def heartbeats(talk: Talk) -> None:
    newcomer = Newcomer(talk, 80 + talk.version)
    epoch = talk.quietly(newcomer.registration(), on_controller=True).broker_epoch

    def ask(label: str, **fields: Any) -> None:
        request = BrokerHeartbeatRequest(broker_id=newcomer.broker_id, broker_epoch=epoch, want_fence=True)
        for name, value in fields.items():
            setattr(request, name, value)
        talk.ask(label, request)

    ask("of a broker that wants to stay fenced", current_metadata_offset=epoch)
    ask("of a broker that is far behind", current_metadata_offset=0, want_fence=False)
    ask("with an old epoch", broker_epoch=epoch - 1)
    ask("with an epoch to come", broker_epoch=epoch + 1)
    ask("of a broker that is not there", broker_id=99)
    ask("of a broker that wants to leave", want_shut_down=True, current_metadata_offset=epoch)
    newcomer.gone()


@script(ApiKey.ALLOCATE_PRODUCER_IDS, Asked.CONTROLLER)
def blocks_of_producer_ids(talk: Talk) -> None:
    newcomer = Newcomer(talk, 90)
    epoch = talk.quietly(newcomer.registration(), on_controller=True).broker_epoch
    talk.ask("a block", AllocateProducerIdsRequest(broker_id=90, broker_epoch=epoch))
    talk.ask("another", AllocateProducerIdsRequest(broker_id=90, broker_epoch=epoch))
    talk.ask("with an old epoch", AllocateProducerIdsRequest(broker_id=90, broker_epoch=epoch - 1))
    talk.ask("for a broker that is not there", AllocateProducerIdsRequest(broker_id=99, broker_epoch=1))
    newcomer.gone()
