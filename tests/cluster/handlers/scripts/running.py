"""Scripts: what is asked, in every version, of our node and of Apache Kafka alike.

A module of scripts is one file of answers. `@script(key)` runs a function once for every version of that API.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from cluster.handlers.talk import Note, Talk, Target, versions_of
from strandline.protocol.apis import ApiKey

Body = Callable[[Talk], None]


@dataclass(frozen=True, slots=True)
class Script:
    key: ApiKey
    body: Body
    controller: bool

    @property
    def title(self) -> str:
        return self.body.__name__.replace("_", " ")


_scripts: dict[str, list[Script]] = {}


def script(key: ApiKey, *, controller: bool = False) -> Callable[[Body], Body]:
    def keep(body: Body) -> Body:
        _scripts.setdefault(body.__module__, []).append(Script(key, body, controller))
        return body

    return keep


def modules() -> list[str]:
    """Coordinators come last: asked for one, Kafka makes internal topics, whose absence others speak of."""
    names = (path.stem for path in Path(__file__).parent.glob("*.py") if path.stem != "running")
    return sorted(names, key=lambda name: (name == "coordinators", name))


def run(module: str, target: Target) -> list[Note]:
    """Every script of a module in every version, oldest version first."""
    name = f"cluster.handlers.scripts.{module}"
    import_module(name)
    notes = []
    for each in _scripts[name]:
        for version in versions_of(each.key):
            talk = Talk(target, each.title, version, each.controller)
            try:
                each.body(talk)
            finally:
                talk.hang_up()
            notes += talk.notes
    return notes
