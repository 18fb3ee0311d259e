"""Authorized operations as bit fields in responses (KIP-430).

Without an authorizer every operation that exists on a resource is allowed.
"""

from __future__ import annotations

from enum import IntEnum


class Operation(IntEnum):
    """Kafka's numbers; bit n of a field is set when operation n is allowed."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


def _field(*operations: Operation) -> int:
    return sum(1 << operation for operation in operations)


# The value of the field when the request does not ask for operations.
NO_OPERATIONS = -(2**31)

ALL_CLUSTER_OPERATIONS = _field(
    Operation.CREATE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.CLUSTER_ACTION,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
    Operation.IDEMPOTENT_WRITE,
)

ALL_TOPIC_OPERATIONS = _field(
    Operation.READ,
    Operation.WRITE,
    Operation.CREATE,
    Operation.DELETE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)

ALL_GROUP_OPERATIONS = _field(
    Operation.READ,
    Operation.DELETE,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)
