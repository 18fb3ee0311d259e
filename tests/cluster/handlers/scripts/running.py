"""Scripts: what is asked, in every version, of our node and of Apache Kafka alike.

A module of scripts is one file of answers. `@script(key)` runs a function once for every version of that API, on the
broker's listener, the controller's, or both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from importlib import import_module
from pathlib import Path

from cluster.handlers.talk import Note, Talk, Target, versions_of
from strandline.protocol.apis import ApiKey

Body = Callable[[Talk], None]


class Asked(Enum):
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


def script(key: ApiKey, asked: Asked = Asked.BROKER) -> Callable[[Body], Body]:
    def keep(body: Body) -> Body:
        for controller in asked.value:
            title = body.__name__.replace("_", " ")
            if asked is Asked.BOTH and controller:
                title += " by a controller"
            _scripts.setdefault(body.__module__, []).append(Script(key, body, title, controller))
        return body

    return keep


def scripts_of(module: str) -> list[Script]:
    name = f"cluster.handlers.scripts.{module}"
    import_module(name)
    return _scripts[name]


def modules() -> list[str]:
    """Coordinators come last: asked for one, Kafka makes internal topics, whose absence others speak of."""
    names = (path.stem for path in Path(__file__).parent.glob("*.py") if path.stem != "running")
    return sorted(names, key=lambda name: (name == "coordinators", name))


def run(module: str, target: Target) -> list[Note]:
    """Every script of a module in every version, oldest version first."""
    notes = []
    for each in scripts_of(module):
        for version in versions_of(each.key):
            talk = Talk(target, each.title, version, each.controller)
            try:
                each.body(talk)
            finally:
                talk.disconnect()
            notes += talk.notes
    return notes
