"""Log levels as config resources of type BROKER_LOGGER (KIP-412).

A logger has the name of a module (`strandline.server.connection`) or of a package; without a level of its own it has
that of the package above it, in the end that of `root`. Levels have Kafka's names. They belong to this process: the
controller does not know them, and a restart resets them.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Any, Final

from strandline.metadata.effective_configs import DescribedConfig
from strandline.model.config_keys.key import ConfigKind, ConfigSource
from strandline.model.errors import ErrorCode, KafkaError

_ROOT: Final = "root"
_LEVELS: Final = {"FATAL": 50, "ERROR": 40, "WARN": 30, "INFO": 20, "DEBUG": 10, "TRACE": 5}
_SET, _DELETE, _APPEND, _SUBTRACT = range(4)


def describe_loggers(node_id: int, name: str, names: Collection[str] | None) -> list[DescribedConfig]:
    _check_node(node_id, name)
    return [
        DescribedConfig(
            name=logger,
            value=_level_name(_level(logger)),
            source=ConfigSource.BROKER_LOGGER,
            read_only=False,
            sensitive=False,
            kind=ConfigKind.UNKNOWN,
            doc="",
            synonyms=(),
        )
        for logger in sorted(_known())
        if names is None or logger in names
    ]


def alter_loggers(node_id: int, resource: Any, *, validate_only: bool) -> None:
    """Makes all changes of a resource or, raising KafkaError, none."""
    _check_node(node_id, resource.resource_name)
    changes = [_checked(config) for config in resource.configs]
    if len({logger for logger, _ in changes}) < len(changes):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the request names a logger twice")
    if not validate_only:
        for logger, level in changes:
            logging.getLogger(None if logger == _ROOT else logger).setLevel(level)


def _check_node(node_id: int, name: str) -> None:
    if name != str(node_id):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"this is node {node_id}; send the request to node {name!r}",
        )


def _checked(config: Any) -> tuple[str, int]:
    """The logger and its new level."""
    logger, operation = config.name, config.config_operation
    if operation in (_APPEND, _SUBTRACT) or operation not in (_SET, _DELETE):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the level of a logger can only be set or deleted")
    if operation == _SET and config.value is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"the level for {logger!r} is missing")
    if logger not in _known():
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"there is no logger {logger!r}")
    if operation == _DELETE:
        if logger == _ROOT:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the root logger must have a level")
        return logger, logging.NOTSET
    level = _LEVELS.get(config.value)
    if level is None:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{config.value!r} is not one of the levels {', '.join(_LEVELS)}")
    return logger, level


def _known() -> dict[str, Any]:
    """The loggers of modules and of the packages above them (which may be placeholders)."""
    return {_ROOT: logging.root, **logging.root.manager.loggerDict}


def _level(name: str) -> int:
    """The effective level: the logger's own, or that of the nearest one above it."""
    known = _known()
    while name:
        found = known.get(name)
        if isinstance(found, logging.Logger) and found.level:
            return found.level
        name = name.rpartition(".")[0]
    return logging.root.level


def _level_name(level: int) -> str:
    return next((name for name, least in _LEVELS.items() if level >= least), "TRACE")
