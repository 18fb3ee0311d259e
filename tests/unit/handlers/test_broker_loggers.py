"""Loggers as configuration: levels of this process, by Kafka's names."""

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


def shown(*names: str) -> list[str | None]:
    described = {config.name: config.value for config in describe_loggers(1, "1", None)}
    return [described[name] for name in names]


def test_a_module_goes_by_its_package_and_that_by_the_root_unless_they_have_levels_of_their_own() -> None:
    assert shown("root", PACKAGE, MODULE) == ["INFO", "INFO", "INFO"]
    alter((PACKAGE, SET, "DEBUG"))
    assert shown("root", PACKAGE, MODULE) == ["INFO", "DEBUG", "DEBUG"]
    assert logging.getLogger(MODULE).isEnabledFor(logging.DEBUG)
    alter((MODULE, SET, "FATAL"), ("root", SET, "TRACE"))
    assert shown("root", PACKAGE, MODULE) == ["TRACE", "DEBUG", "FATAL"]
    alter((MODULE, DELETE, None))
    assert shown(MODULE) == ["DEBUG"]


def test_nothing_changes_when_it_is_only_validated_or_when_one_of_several_changes_cannot_be() -> None:
    alter((MODULE, SET, "ERROR"), validate_only=True)
    with pytest.raises(KafkaError):
        alter((MODULE, SET, "ERROR"), ("no.such.logger", SET, "ERROR"))
    assert shown(MODULE) == ["INFO"]


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
def test_what_cannot_be_is_refused(change: tuple[str, int, str | None], code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as raised:
        alter(change)
    assert raised.value.code == code


def test_only_this_node_s_loggers_are_here() -> None:
    for node in ("2", "", "one"):
        with pytest.raises(KafkaError) as raised:
            describe_loggers(1, node, None)
        assert raised.value.code == ErrorCode.INVALID_REQUEST
        with pytest.raises(KafkaError):
            alter((MODULE, SET, "INFO"), node=node)
    assert [config.name for config in describe_loggers(1, "1", ["root", "no.such.logger"])] == ["root"]
