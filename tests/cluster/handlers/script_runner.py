"""Scripts: functions in `requests/` that send the same requests, in every version, to our node and to Apache Kafka.

A module of scripts has one file of expected responses. `@script(key)` runs a function once for every version of that
API, on the broker listener, the controller listener, or both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from importlib import import_module
from pathlib import Path

from cluster.handlers.script_run import NodeAddress, RecordedResponse, ScriptRun, versions_of
from strandline.protocol.apis import ApiKey

_WITH_COORDINATORS = frozenset({"committed_offsets", "consumer_groups", "coordinators", "group_membership", "groups"})

Body = Callable[[ScriptRun], None]


class Listeners(Enum):
    """Whether a script is run on the controller listener: False, True, or one after the other."""

    BROKER = (False,)
    CONTROLLER = (True,)
    BOTH = (False, True)


@dataclass(frozen=True, slots=True)
class Script:
    key: ApiKey
    body: Body
    title: str
    controller: bool


_scripts: dict[str, list[Script]] = {}


def script(key: ApiKey, listeners: Listeners = Listeners.BROKER) -> Callable[[Body], Body]:
    def register(body: Body) -> Body:
        for controller in listeners.value:
            title = body.__name__.replace("_", " ")
            if listeners is Listeners.BOTH and controller:
                title += " by a controller"
            _scripts.setdefault(body.__module__, []).append(Script(key, body, title, controller))
        return body

    return register


def scripts_of(module: str) -> list[Script]:
    name = f"cluster.handlers.requests.{module}"
    import_module(name)
    return _scripts[name]


def modules() -> list[str]:
    """Those that need coordinators come last: internal topics are created for them, whose absence others record."""
    names = (path.stem for path in (Path(__file__).parent / "requests").glob("*.py"))
    return sorted(names, key=lambda name: (name in _WITH_COORDINATORS, name))


def run_scripts(module: str, node: NodeAddress) -> list[RecordedResponse]:
    """Runs every script of a module in every version, oldest version first."""
    responses = []
    for each in scripts_of(module):
        for version in versions_of(each.key):
            run = ScriptRun(node, each.title, version, each.controller)
            try:
                each.body(run)
            finally:
                run.disconnect()
            responses += run.responses
    return responses
