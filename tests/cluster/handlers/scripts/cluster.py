"""DescribeCluster, UpdateFeatures, UnregisterBroker, as brokers and as controllers answer them."""

from __future__ import annotations

from cluster.handlers.scripts.running import Asked, script
from cluster.handlers.talk import Talk
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.cluster import (
    DescribeClusterRequest,
    FeatureUpdateKey,
    UnregisterBrokerRequest,
    UpdateFeaturesRequest,
)


@script(ApiKey.DESCRIBE_CLUSTER, Asked.BOTH)
def the_cluster(talk: Talk) -> None:
    talk.ask("brokers", DescribeClusterRequest())
    talk.ask("with what is allowed", DescribeClusterRequest(include_cluster_authorized_operations=True))
    if talk.version >= 1:
        for kind in (1, 2, 0, 3, -1):
            talk.ask(f"endpoints of type {kind}", DescribeClusterRequest(endpoint_type=kind))
        request = DescribeClusterRequest(endpoint_type=2, include_cluster_authorized_operations=True)
        talk.ask("controllers, with what is allowed", request)
    if talk.version >= 2:
        talk.ask("brokers, fenced ones too", DescribeClusterRequest(include_fenced_brokers=True))


@script(ApiKey.UPDATE_FEATURES, Asked.BOTH)
def features(talk: Talk) -> None:
    def update(name: str, level: int, *, upgrade_type: int = 1, validate: bool = True) -> UpdateFeaturesRequest:
        one = FeatureUpdateKey(feature=name, max_version_level=level)
        if talk.version >= 1:
            one.upgrade_type = upgrade_type
        request = UpdateFeaturesRequest(timeout_ms=5000, feature_updates=[one])
        if talk.version >= 1:
            request.validate_only = validate
        return request

    talk.ask("nothing", UpdateFeaturesRequest(timeout_ms=5000))
    talk.ask("a feature that is not there", update("nobody.version", 1))
    talk.ask("the level that it has", update("metadata.version", 30))
    talk.ask("a level that nobody has", update("metadata.version", 200))
    talk.ask("a level below zero", update("metadata.version", -1))
    talk.ask("level 0", update("metadata.version", 0))
    if talk.version >= 1:
        talk.ask("down, said to be up", update("metadata.version", 29))
        talk.ask("down, safely", update("metadata.version", 29, upgrade_type=2))
        talk.ask("an upgrade type that is not there", update("metadata.version", 30, upgrade_type=9))
    twice = update("metadata.version", 30)
    twice.feature_updates *= 2
    talk.ask("the same feature twice", twice)
    talk.ask("kraft.version as it is", update("kraft.version", 1))
    talk.ask("kraft.version down", update("kraft.version", 0))
    talk.ask("kraft.version too far up", update("kraft.version", 9))


@script(ApiKey.UNREGISTER_BROKER, Asked.BOTH)
def brokers_unregistered(talk: Talk) -> None:
    talk.ask("a broker that is not there", UnregisterBrokerRequest(broker_id=77))
    talk.ask("a broker below zero", UnregisterBrokerRequest(broker_id=-1))
