"""Prints docs/SUPPORTED.md from the API table: `python -m strandline.protocol.supported > docs/SUPPORTED.md`.

A unit test compares the checked-in file with this output.
"""

from __future__ import annotations

from collections.abc import Iterator

from strandline.protocol.apis import API, LIMITATIONS, Api

_INTRODUCTION = """\
# What is supported

Generated from `src/strandline/protocol/apis.py` by `python -m strandline.protocol.supported`; do not edit by hand.

Every request and response of Apache Kafka 4.3, in every version that Kafka 4.3 reads, is declared and compared byte for
byte with Kafka's own classes. Not all of these APIs are served; a node advertises only those that are.
"""


def page() -> str:
    return "\n".join(
        [
            _INTRODUCTION,
            *_section("Served", [api for api in API.values() if api.is_served]),
            *_section("Declared, not served yet", [api for api in API.values() if not api.is_served]),
            "## Differences from Kafka",
            "",
            *(f"- **{where}**: {what}" for where, what in LIMITATIONS),
            "",
        ]
    )


def _section(title: str, apis: list[Api]) -> Iterator[str]:
    yield f"## {title}"
    yield ""
    yield "| key | API | versions | flexible from | listener | |"
    yield "|---:|---|---|---:|---|---|"
    for api in apis:
        flexible = "never" if api.flexible_from is None else str(api.flexible_from)
        yield f"| {api.key.value} | {api.name} | {_versions(api)} | {flexible} | {_listeners(api)} | {_note(api)} |"
    yield ""


def _note(api: Api) -> str:
    if api.not_served is not None:
        return api.not_served
    return "forwarded to the active controller" if api.forwarded else ""


def _versions(api: Api) -> str:
    if api.min_version == api.advertised_max_version:
        return str(api.min_version)
    return f"{api.min_version}–{api.advertised_max_version}"


def _listeners(api: Api) -> str:
    return ", ".join(name for name, there in (("broker", api.broker), ("controller", api.controller)) if there)


if __name__ == "__main__":
    print(page(), end="")
