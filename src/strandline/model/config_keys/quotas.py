"""Broker keys of the windows over which quotas are measured."""

from __future__ import annotations

from strandline.model.config_keys.key import ConfigKey
from strandline.model.config_keys.key_types import class_name, integer

KEYS: tuple[ConfigKey, ...] = (
    integer("quota.window.num", 11, "Samples kept for clients' quotas.", at_least=1),
    integer("quota.window.size.seconds", 1, "Length of one sample for clients' quotas.", at_least=1),
    integer("replication.quota.window.num", 11, "Samples kept for replication throttles.", at_least=1),
    integer("replication.quota.window.size.seconds", 1, "Length of one sample for replication throttles.", at_least=1),
    integer(
        "alter.log.dirs.replication.quota.window.num",
        11,
        "Samples kept for the throttle on moves between directories.",
        at_least=1,
    ),
    integer(
        "alter.log.dirs.replication.quota.window.size.seconds",
        1,
        "Length of one sample for the throttle on moves between directories.",
        at_least=1,
    ),
    integer("controller.quota.window.num", 11, "Samples kept for quotas on changes of topics.", at_least=1),
    integer(
        "controller.quota.window.size.seconds", 1, "Length of one sample for quotas on changes of topics.", at_least=1
    ),
    class_name("client.quota.callback.class", None, "Class that decides which quota a client has."),
)
