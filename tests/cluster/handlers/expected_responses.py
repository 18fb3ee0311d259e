"""The responses of Apache Kafka 4.3.1 to every script in every version, as transcripts in `responses/`.

    > script: label
        v0-3
          error_code=NONE …
        v4
          …

Where our response differs on purpose, the reason and our own responses follow:

        differs: why
        ours v0-4
          …

`test_responses.py` compares our node with the files, `tests/oracle/responses` compares Apache Kafka. With `--rewrite`
each of them writes its own part of the files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from difflib import unified_diff
from itertools import groupby
from pathlib import Path

import transcripts
from cluster.handlers.script_run import RecordedResponse

DIRECTORY = Path(__file__).parent / "responses"
_DIFFERS = "differs: "
_OURS = "ours "


@dataclass(slots=True)
class Section:
    kafka: list[str] = field(default_factory=list)
    differs: str | None = None
    ours: list[str] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        yield from self.kafka
        if self.differs is not None:
            yield _DIFFERS + self.differs
            yield from self.ours


Sections = dict[str, Section]


def sections_of(responses: Iterable[RecordedResponse], *, kafka: bool) -> Sections:
    """Responses in the order of their versions; consecutive versions with equal responses are combined."""
    sections: Sections = {}
    by_label: dict[str, list[RecordedResponse]] = {}
    for response in responses:
        by_label.setdefault(response.label, []).append(response)
    for label, each in by_label.items():
        section = sections[label] = Section(differs=each[0].differs)
        own = section.kafka if kafka or section.differs is None else section.ours
        prefix = "" if own is section.kafka else _OURS
        for text, same in groupby(each, key=lambda response: response.text):
            versions = [response.version for response in same]
            span = f"v{versions[0]}" if len(versions) == 1 else f"v{versions[0]}-{versions[-1]}"
            own.append(prefix + span)
            own.extend("  " + line for line in text.split("\n"))
    return sections


def load(name: str) -> Sections:
    path = DIRECTORY / f"{name}.txt"
    sections: Sections = {}
    for step in transcripts.parse(path.read_text()) if path.exists() else ():
        if step.verb is None:
            continue
        section = sections[step.verb] = Section()
        lines = section.kafka
        for line in step.output:
            if line.startswith(_DIFFERS):
                section.differs = line.removeprefix(_DIFFERS)
                lines = section.ours
            else:
                lines.append(line)
    return sections


def save(name: str, sections: Sections) -> None:
    steps = [transcripts.Step([], label, list(section.lines())) for label, section in sections.items() if section.kafka]
    for step in steps[1:]:
        step.prose.append("")
    (DIRECTORY / f"{name}.txt").write_text(transcripts.render(steps))


def kafkas(section: Section) -> list[str]:
    return section.kafka


def ours(section: Section) -> list[str]:
    """The responses expected of our node: Kafka's, or our own where we differ."""
    return section.kafka if section.differs is None else section.ours


def differences(expected: Sections, actual: Sections, part: Callable[[Section], list[str]]) -> str:
    """A diff of the expected and the actual responses; empty if they are equal."""
    lines: list[str] = []
    for label in dict.fromkeys([*expected, *actual]):
        before = part(expected.get(label, Section()))
        now = part(actual.get(label, Section()))
        if before != now:
            lines += [label, *list(unified_diff(before, now, "expected", "actual", lineterm="", n=9))[3:]]
    return "\n".join(lines)


def merged(old: Sections, new: Sections, *, kafka: bool) -> Sections:
    """`new`, the responses of one node, combined with the recorded responses of the other node."""
    result: Sections = {}
    for label, section in new.items():
        before = old.get(label, Section())
        if kafka:
            result[label] = Section(section.kafka, section.differs, before.ours)
        else:
            result[label] = Section(before.kafka, section.differs, section.ours)
    return result
