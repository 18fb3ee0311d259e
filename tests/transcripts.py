"""Transcript tests: a text file contains commands and their output, and the test compares it with the actual output.

    Prose explains the scenario.

    > verb argument argument      # a comment
        a line of output
        another line of output

`replay` runs the verbs with a function of the test and returns the transcript with the actual output; `check` compares
it with the file. `pytest --rewrite` writes the actual output into the files instead: review the difference before
committing it. There are transcripts of raft, of leader and follower, of the failure detector, and of the responses of
every API (`cluster/handlers/expected_responses.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

_VERB = "> "
_INDENT = "    "


@dataclass(slots=True)
class Step:
    """A verb with the prose before it and the output after it; the last step of a transcript may be prose only."""

    prose: list[str] = field(default_factory=list)
    verb: str | None = None
    output: list[str] = field(default_factory=list)


def parse(transcript: str) -> list[Step]:
    steps = [Step()]
    for line in transcript.splitlines():
        if line.startswith(_VERB):
            if steps[-1].verb is not None:
                steps.append(Step())
            steps[-1].verb = line.removeprefix(_VERB)
        elif line.startswith(_INDENT) and steps[-1].verb is not None:
            steps[-1].output.append(line.removeprefix(_INDENT))
        else:
            if steps[-1].verb is not None:
                steps.append(Step())
            steps[-1].prose.append(line)
    return steps


def render(steps: Iterable[Step]) -> str:
    lines: list[str] = []
    for step in steps:
        lines += step.prose
        if step.verb is not None:
            lines.append(_VERB + step.verb)
            lines += [_INDENT + line for line in step.output]
    return "\n".join(lines) + "\n"


def replay(transcript: str, perform: Callable[[str], Iterable[str]]) -> str:
    """The transcript with the actual output of its verbs; `perform` gets a verb without its comment."""
    steps = parse(transcript)
    for step in steps:
        if step.verb is not None:
            step.output = list(perform(step.verb.partition("#")[0].strip()))
    return render(steps)


def check(path: Path, actual: str, *, rewrite: bool) -> None:
    if rewrite:
        path.write_text(actual)
    assert actual == path.read_text()
