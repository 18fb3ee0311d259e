"""Dynamic configs: IncrementalAlterConfigs (44) and the older AlterConfigs (33), which replaces all configs of a
resource.

Each resource of a request succeeds or fails on its own. The configs of a resource are checked together after the
change, so that two keys that depend on each other can be set together. A topic's record is written only when its value
changes; a broker's always, because writing the same value again makes a broker reload a key store.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from strandline.controller.decisions import Decision, check_size
from strandline.controller.leader_eligibility import MIN_INSYNC_REPLICAS, cluster_layers, elr_enabled
from strandline.controller.settings import ControllerSettings
from strandline.metadata.effective_configs import broker_value
from strandline.metadata.values import BROKER_RESOURCE, CLIENT_METRICS_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE
from strandline.metadata.views import View
from strandline.model.config_keys.broker import broker_key, check_broker_configs
from strandline.model.config_keys.group import (
    CLIENT_METRICS_KEYS,
    GROUP_KEYS,
    check_client_metrics_configs,
    check_group_configs,
)
from strandline.model.config_keys.key import ConfigError, ConfigKey, ConfigKind
from strandline.model.config_keys.topic import TOPIC_KEYS, check_topic_configs
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.topic_names import check_topic_name
from strandline.protocol.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from strandline.protocol.messages.metadata_records import ClearElrRecord, ConfigRecord
from strandline.protocol.types import Message

SET, DELETE, APPEND, SUBTRACT = range(4)
Operation = tuple[str, int, str | None]
"""(key, one of the above, value)"""


class _Alteration(Protocol):
    """A resource of either request."""

    @property
    def resource_type(self) -> int: ...
    @property
    def resource_name(self) -> str: ...


class Configs:
    def __init__(self, view: View, settings: ControllerSettings) -> None:
        self._view = view
        self._settings = settings

    def alter_incrementally(self, request: IncrementalAlterConfigsRequest) -> Decision[IncrementalAlterConfigsResponse]:
        alterations = [
            (each, [(c.name, c.config_operation, c.value) for c in each.configs]) for each in request.resources
        ]
        responses, records = self._alter(alterations, replace=False)
        return Decision(IncrementalAlterConfigsResponse(responses=responses), [] if request.validate_only else records)

    def alter(self, request: AlterConfigsRequest) -> Decision[AlterConfigsResponse]:
        alterations = [(each, [(c.name, SET, c.value) for c in each.configs]) for each in request.resources]
        responses, records = self._alter(alterations, replace=True)
        return Decision(AlterConfigsResponse(responses=responses), [] if request.validate_only else records)

    def _alter(
        self, alterations: Sequence[tuple[_Alteration, list[Operation]]], *, replace: bool
    ) -> tuple[list[AlterConfigsResourceResponse], list[Message]]:
        times = Counter((each.resource_type, each.resource_name) for each, _ in alterations)
        responses: list[AlterConfigsResourceResponse] = []
        records: list[Message] = []
        for each, operations in alterations:
            resource = (each.resource_type, each.resource_name)
            code, why = ErrorCode.NONE, None
            try:
                if times[resource] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "a resource is given twice")
                records += self._change(*resource, operations, replace=replace)
            except KafkaError as error:
                code, why = error.code, error.why
            except ConfigError as error:
                code, why = _invalid_config_code(resource[0]), str(error)
            responses.append(
                AlterConfigsResourceResponse(
                    error_code=code, error_message=why, resource_type=resource[0], resource_name=resource[1]
                )
            )
        check_size(len(records))
        return responses, records

    def _change(
        self, resource_type: int, name: str, operations: Sequence[Operation], *, replace: bool
    ) -> list[Message]:
        """The records for one resource; raises unless all its configs are valid."""
        self._check_resource(resource_type, name)
        if any(count > 1 for count in Counter(key for key, _, _ in operations).values()):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a key is given twice")
        before = self._view.configs(resource_type, name)
        changed: dict[str, str | None] = {}
        for key, operation, value in operations:
            changed[key] = self._applied(resource_type, key, operation, value, before)
        if replace:
            changed |= dict.fromkeys(sorted(before.keys() - changed.keys()))
        after = {key: value for key, value in {**before, **changed}.items() if value is not None}
        self._check_elr(resource_type, name, changed)
        self._check(resource_type, name, after, changed)
        return self._records(resource_type, name, before, changed)

    def _check_resource(self, resource_type: int, name: str) -> None:
        if resource_type == TOPIC_RESOURCE:
            if not name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "there are no default configs of topics: give a topic name")
            check_topic_name(name)
            if self._view.topic(name) is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name} does not exist")
        elif resource_type == BROKER_RESOURCE:
            if name:
                self._check_broker(name)
        elif resource_type in (CLIENT_METRICS_RESOURCE, GROUP_RESOURCE):
            if not name:
                kind = "group" if resource_type == GROUP_RESOURCE else "subscription"
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"a {kind} name is needed")
        else:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"resources of type {resource_type} have no dynamic configs")

    def _check_broker(self, name: str) -> None:
        try:
            broker_id = int(name)
        except ValueError:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name!r} is not a broker id: ids are whole numbers") from None
        if broker_id < 0:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"broker ids are not negative: {broker_id}")
        if self._view.broker(broker_id) is None and self._view.controller(broker_id) is None:
            raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"no broker {broker_id} is registered")

    def _applied(
        self, resource_type: int, key: str, operation: int, value: str | None, before: Mapping[str, str]
    ) -> str | None:
        """The new value of the key; None when it is removed."""
        if operation == DELETE:
            return None
        if operation not in (SET, APPEND, SUBTRACT):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{operation} is not a config operation")
        if value is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{key} needs a value; to remove it, delete it")
        if operation == SET:
            return value
        known = _key(resource_type, key)
        if known is None or known.kind is not ConfigKind.LIST:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG, f"{key} is not a list, so there is nothing to {_verb(operation)}"
            )
        items = _items(before.get(key, self._inherited(known)))
        given = _items(value)
        if operation == APPEND:
            items += [item for item in given if item not in items]
        else:
            items = [item for item in items if item not in given]
        return ",".join(items)

    def _inherited(self, key: ConfigKey) -> str:
        """The list that is appended to or subtracted from when the resource has no value of its own."""
        layers = cluster_layers(self._view, self._settings.static)
        for synonym in key.synonyms:
            value = broker_value(synonym.name, layers)
            if isinstance(value, tuple):
                return ",".join(value)
        return key.default or ""

    def _check_elr(self, resource_type: int, name: str, changed: Mapping[str, str | None]) -> None:
        """ELR needs one min.insync.replicas for the whole cluster (KIP-966)."""
        if resource_type != BROKER_RESOURCE or MIN_INSYNC_REPLICAS not in changed or not elr_enabled(self._view):
            return
        if name:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                "with eligible leader replicas, min.insync.replicas is set for all brokers and not for one",
            )
        if changed[MIN_INSYNC_REPLICAS] is None:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                "with eligible leader replicas, the cluster's min.insync.replicas may be changed but not removed",
            )

    def _check(
        self, resource_type: int, name: str, after: Mapping[str, str], changed: Mapping[str, str | None]
    ) -> None:
        if resource_type == TOPIC_RESOURCE:
            check_topic_configs(after)
        elif resource_type == GROUP_RESOURCE:
            layers = cluster_layers(self._view, self._settings.static)
            check_group_configs(after, lambda key: broker_value(key, layers))
        elif resource_type == CLIENT_METRICS_RESOURCE:
            check_client_metrics_configs(after)
        else:
            # Only the keys being set: those that an older node accepted must not block the change of others.
            given = {key: value for key, value in changed.items() if value is not None}
            check_broker_configs(given, whole_cluster=not name)

    def _records(
        self, resource_type: int, name: str, before: Mapping[str, str], changed: Mapping[str, str | None]
    ) -> list[Message]:
        records: list[Message] = [
            ConfigRecord(resource_type=resource_type, resource_name=name, name=key, value=value)
            for key, value in changed.items()
            if before.get(key) != value or (resource_type == BROKER_RESOURCE and value is not None)
        ]
        if MIN_INSYNC_REPLICAS in changed and records and elr_enabled(self._view):
            records.append(ClearElrRecord(topic_name=name if resource_type == TOPIC_RESOURCE else ""))
        return records


_KEYS: Final = {TOPIC_RESOURCE: TOPIC_KEYS, GROUP_RESOURCE: GROUP_KEYS, CLIENT_METRICS_RESOURCE: CLIENT_METRICS_KEYS}


def _key(resource_type: int, name: str) -> ConfigKey | None:
    return broker_key(name) if resource_type == BROKER_RESOURCE else _KEYS[resource_type].get(name)


def _invalid_config_code(resource_type: int) -> ErrorCode:
    """The error code of an invalid config. In Kafka, brokers reject invalid broker configs before the controller
    receives them, and client metrics have checks of their own: both with another error code than topics and groups."""
    odd = resource_type in (BROKER_RESOURCE, CLIENT_METRICS_RESOURCE)
    return ErrorCode.INVALID_REQUEST if odd else ErrorCode.INVALID_CONFIG


def _verb(operation: int) -> str:
    return "append" if operation == APPEND else "subtract"


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]
