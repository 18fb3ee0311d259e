"""BROKER_LOGGER resources: the log levels of this process, with Kafka's names."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from strandline.handlers.broker_loggers import alter_loggers, describe_loggers
from strandline.model.errors import ErrorCode, KafkaError
from strandline.protocol.messages.configs import (
    IncrementalAlterConfigsRequestAlterableConfig,
    IncrementalAlterConfigsRequestAlterConfigsResource,
)

SET, DELETE, APPEND = 0, 1, 2
PACKAGE, MODULE = "strandline.example", "strandline.example.module"


@pytest.fixture(autouse=True)
def levels() -> Iterator[None]:
    logging.getLogger(MODULE)
    before = {name: logging.getLogger(name).level for name in (None, PACKAGE, MODULE)}
    logging.root.setLevel("INFO")
    yield
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)


def alter(*changes: tuple[str, int, str | None], node: str = "1", validate_only: bool = False) -> None:
    configs = [
        IncrementalAlterConfigsRequestAlterableConfig(name=name, config_operation=operation, value=value)
        for name, operation, value in changes
    ]
    resource = IncrementalAlterConfigsRequestAlterConfigsResource(resource_type=8, resource_name=node, configs=configs)
    alter_loggers(1, resource, validate_only=validate_only)


def levels_of(*names: str) -> list[str | None]:
    described = {config.name: config.value for config in describe_loggers(1, "1", None)}
    return [described[name] for name in names]


def test_a_logger_without_a_level_of_its_own_has_the_level_of_its_package_or_of_the_root() -> None:
    assert levels_of("root", PACKAGE, MODULE) == ["INFO", "INFO", "INFO"]
    alter((PACKAGE, SET, "DEBUG"))
    assert levels_of("root", PACKAGE, MODULE) == ["INFO", "DEBUG", "DEBUG"]
    assert logging.getLogger(MODULE).isEnabledFor(logging.DEBUG)
    alter((MODULE, SET, "FATAL"), ("root", SET, "TRACE"))
    assert levels_of("root", PACKAGE, MODULE) == ["TRACE", "DEBUG", "FATAL"]
    alter((MODULE, DELETE, None))
    assert levels_of(MODULE) == ["DEBUG"]


def test_no_level_changes_with_validate_only_or_when_one_change_is_invalid() -> None:
    alter((MODULE, SET, "ERROR"), validate_only=True)
    with pytest.raises(KafkaError):
        alter((MODULE, SET, "ERROR"), ("no.such.logger", SET, "ERROR"))
    assert levels_of(MODULE) == ["INFO"]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (("no.such.logger", SET, "INFO"), ErrorCode.INVALID_CONFIG),
        ((MODULE, SET, "LOUD"), ErrorCode.INVALID_CONFIG),
        ((MODULE, SET, None), ErrorCode.INVALID_REQUEST),
        ((MODULE, APPEND, "INFO"), ErrorCode.INVALID_REQUEST),
        ((MODULE, 9, "INFO"), ErrorCode.INVALID_REQUEST),
        (("root", DELETE, None), ErrorCode.INVALID_REQUEST),
    ],
)
def test_an_invalid_change_is_rejected(change: tuple[str, int, str | None], code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as raised:
        alter(change)
    assert raised.value.code == code


def test_loggers_of_another_node_are_rejected() -> None:
    for node in ("2", "", "one"):
        with pytest.raises(KafkaError) as raised:
            describe_loggers(1, node, None)
        assert raised.value.code == ErrorCode.INVALID_REQUEST
        with pytest.raises(KafkaError):
            alter((MODULE, SET, "INFO"), node=node)
    assert [config.name for config in describe_loggers(1, "1", ["root", "no.such.logger"])] == ["root"]
