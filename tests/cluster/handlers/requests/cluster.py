"""DescribeCluster, UpdateFeatures and UnregisterBroker on both listeners."""

from __future__ import annotations

from cluster.handlers.script_run import ScriptRun
from cluster.handlers.script_runner import Listeners, script
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.cluster import (
    DescribeClusterRequest,
    FeatureUpdateKey,
    UnregisterBrokerRequest,
    UpdateFeaturesRequest,
)


@script(ApiKey.DESCRIBE_CLUSTER, Listeners.BOTH)
def cluster_described(run: ScriptRun) -> None:
    run.record("brokers", DescribeClusterRequest())
    run.record("with authorized operations", DescribeClusterRequest(include_cluster_authorized_operations=True))
    if run.version >= 1:
        for kind in (1, 2, 0, 3, -1):
            run.record(f"endpoints of type {kind}", DescribeClusterRequest(endpoint_type=kind))
        request = DescribeClusterRequest(endpoint_type=2, include_cluster_authorized_operations=True)
        run.record("controllers, with authorized operations", request)
    if run.version >= 2:
        run.record("brokers, including fenced brokers", DescribeClusterRequest(include_fenced_brokers=True))


@script(ApiKey.UPDATE_FEATURES, Listeners.BOTH)
def features_updated(run: ScriptRun) -> None:
    def update(name: str, level: int, *, upgrade_type: int = 1, validate: bool = True) -> UpdateFeaturesRequest:
        one = FeatureUpdateKey(feature=name, max_version_level=level)
        if run.version >= 1:
            one.upgrade_type = upgrade_type
        request = UpdateFeaturesRequest(timeout_ms=5000, feature_updates=[one])
        if run.version >= 1:
            request.validate_only = validate
        return request

    run.record("an empty request", UpdateFeaturesRequest(timeout_ms=5000))
    run.record("an unknown feature", update("nobody.version", 1))
    run.record("the current level", update("metadata.version", 30))
    run.record("an unsupported level", update("metadata.version", 200))
    run.record("a negative level", update("metadata.version", -1))
    run.record("level 0", update("metadata.version", 0))
    if run.version >= 1:
        run.record("a downgrade sent as an upgrade", update("metadata.version", 29))
        run.record("a safe downgrade", update("metadata.version", 29, upgrade_type=2))
        run.record("an unknown upgrade type", update("metadata.version", 30, upgrade_type=9))
    twice = update("metadata.version", 30)
    twice.feature_updates *= 2
    run.record("the same feature twice", twice)
    run.record("the current kraft.version", update("kraft.version", 1))
    run.record("a downgrade of kraft.version", update("kraft.version", 0))
    run.record("an unsupported kraft.version", update("kraft.version", 9))


@script(ApiKey.UNREGISTER_BROKER, Listeners.BOTH)
def brokers_unregistered(run: ScriptRun) -> None:
    run.record("an unknown broker", UnregisterBrokerRequest(broker_id=77))
    run.record("a negative broker", UnregisterBrokerRequest(broker_id=-1))
