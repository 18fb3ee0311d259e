"""Our declarations against the field tables inside Kafka's jars: every message, field, version, default and marker."""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path
from typing import Any

import pytest

from strandline.model.ids import ZERO_UUID
from strandline.protocol.apis import API
from strandline.protocol.types import NEWEST, Field, Message, Primitive, Struct, layout
from unit.protocol.kafka_json import snake_case
from unit.protocol.random_messages import every_message

Table = dict[str, Any]
TABLES = re.compile(r"common/(message|metadata)/\w+\.json")
PRIMITIVES = {"bool", "int8", "int16", "int32", "int64", "uint16", "uint32", "float64"}
PRIMITIVES |= {"string", "bytes", "records", "uuid"}
OURS = {cls.__name__: cls for cls in every_message()}


@pytest.fixture(scope="module")
def tables(kafka_lib: Path) -> dict[str, Table]:
    found: dict[str, Table] = {}
    for jar in kafka_lib.glob("kafka*.jar"):
        with zipfile.ZipFile(jar) as opened:
            for name in filter(TABLES.fullmatch, opened.namelist()):
                text = re.sub(r"^\s*//.*$", "", opened.read(name).decode(), flags=re.MULTILINE)
                table = json.loads(text)
                found[table["name"]] = table
    assert len(found) > 250
    return found


def versions(text: str | None) -> range:
    if text is None or text == "none":
        return range(0)
    if text.endswith("+"):
        return range(int(text[:-1]), NEWEST)
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def test_every_message_of_kafka_is_declared_and_no_other(tables: dict[str, Table]) -> None:
    alive = {name for name, table in tables.items() if table["validVersions"] != "none"}
    assert set(OURS) == alive


def test_keys_and_version_ranges_are_those_of_kafka(tables: dict[str, Table]) -> None:
    wrong = []
    for name, cls in OURS.items():
        table = tables[name]
        valid, flexible = versions(table["validVersions"]), versions(table.get("flexibleVersions"))
        theirs = (table.get("apiKey"), (valid[0], valid[-1]), flexible[0] if flexible else None)
        if (cls.api_key, cls.versions, cls.flexible) != theirs:
            wrong.append(f"{name}: {cls.api_key, cls.versions, cls.flexible}, Kafka: {theirs}")
    assert wrong == []


def test_every_field_is_declared_as_in_kafkas_table(tables: dict[str, Table]) -> None:
    wrong: list[str] = []
    for name, cls in OURS.items():
        table = tables[name]
        valid = versions(table["validVersions"])
        shared = {struct["name"]: struct["fields"] for struct in table.get("commonStructs", [])}
        for version in valid:
            _compare(cls, table["fields"], version, valid, shared, name, wrong)
    assert wrong == []


LATEST_VERSION_NOT_ADVERTISED = {"ListTransactions"}
"""docs/SUPPORTED.md says why."""


def test_the_api_table_names_the_listeners_of_kafka(tables: dict[str, Table]) -> None:
    requests = {table["apiKey"]: table for table in tables.values() if table["type"] == "request"}
    alive = {key: table for key, table in requests.items() if table["validVersions"] != "none"}
    assert set(API) == set(alive)
    for key, api in API.items():
        assert api.request.__name__ == alive[key]["name"]
        assert (api.broker, api.controller) == tuple(
            listener in alive[key]["listeners"] for listener in ("broker", "controller")
        ), api.name
        unstable = alive[key].get("latestVersionUnstable", False) or api.name in LATEST_VERSION_NOT_ADVERTISED
        assert api.advertised_max_version == api.max_version - int(unstable), api.name


def _compare(
    cls: type[Struct],
    table: list[Table],
    version: int,
    valid: range,
    shared: dict[str, list[Table]],
    where: str,
    wrong: list[str],
) -> None:
    """One struct at one version. Fields that no version of ours can carry are not declared, and not compared."""
    theirs = [entry for entry in table if any(each in _present(entry) for each in valid)]
    ours = {field.name: field for field in layout(cls)}
    order = [name for name in (snake_case(entry["name"]) for entry in theirs)]
    if [name for name in order if name in ours] != list(ours):
        wrong.append(f"{where}: {list(ours)}, Kafka: {order}")
        return
    for entry in theirs:
        field = ours.get(snake_case(entry["name"]))
        path = f"{where}.{entry['name']} v{version}"
        if field is None:
            if version in _present(entry):
                wrong.append(f"{path}: not declared")
            continue
        wrong += [f"{path}: {what}" for what in _field(field, entry, version)]
        if not isinstance(field.kind, Primitive) and version in _present(entry):
            fields = entry.get("fields") or shared[entry["type"].removeprefix("[]")]
            _compare(field.kind, fields, version, valid, shared, path, wrong)


def _present(entry: Table) -> range:
    return versions(entry.get("versions", entry.get("taggedVersions")))


def _field(field: Field, entry: Table, version: int) -> list[str]:
    present = version in _present(entry)
    if (version in field.present) != present:
        return [f"present {version in field.present}, Kafka: {present}"]
    kind = entry["type"].removeprefix("[]")
    compared = {
        "list": (field.is_list, entry["type"].startswith("[]")),
        "type": (field.kind.name if isinstance(field.kind, Primitive) else "struct", _kind(kind)),
        "default": (_plain(field.default), _default(entry, kind)),
    }
    if present:
        compared["nullable"] = (version in field.nullable, version in versions(entry.get("nullableVersions")))
        compared["tag"] = (field.tag, entry.get("tag"))
        compared["compact"] = (field.never_compact, entry.get("flexibleVersions") == "none")
    else:
        compared["ignorable"] = (field.ignorable, entry.get("ignorable", False) in (True, "true"))
    return [f"{what} {ours!r}, Kafka: {theirs!r}" for what, (ours, theirs) in compared.items() if ours != theirs]


def _kind(kind: str) -> str:
    return kind if kind in PRIMITIVES else "struct"


def _plain(default: Any) -> Any:
    return "struct" if isinstance(default, Struct) else default


def _default(entry: Table, kind: str) -> Any:
    """The value of an unset field. A JSON null means no default; only the string "null" means null."""
    text = entry.get("default")
    text = "" if text is None else str(text)
    if text == "null":
        return None
    if entry["type"].startswith("[]"):
        return []
    if kind in ("string", "bytes", "uuid", "bool"):
        return {"string": text, "bytes": b"", "uuid": ZERO_UUID, "bool": text.lower() == "true"}[kind]
    if kind == "records":
        # Kafka leaves records null even where null cannot be written; ours are empty there.
        return None if versions(entry.get("nullableVersions"))[-1:] == range(NEWEST - 1, NEWEST) else b""
    if kind in PRIMITIVES:
        return float(text or 0) if kind == "float64" else int(text or "0", 0)
    return "struct"


def test_a_message_class_is_reachable_from_the_api_table() -> None:
    reachable: set[type[Message]] = {cls for api in API.values() for cls in (api.request, api.response)}
    assert {cls for cls in OURS.values() if cls.__name__.endswith(("Request", "Response"))} == reachable
