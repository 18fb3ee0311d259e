"""Each transcript in `scenarios/` still says what the coordinator of a classic group does; `stage.py` explains its
verbs."""

from __future__ import annotations

from pathlib import Path

import pytest

import transcripts
from unit.coordinator.stage import Stage

_SCENARIOS = sorted((Path(__file__).parent / "scenarios").glob("classic-*.txt"))


@pytest.mark.parametrize("path", _SCENARIOS, ids=[path.stem for path in _SCENARIOS])
def test_a_transcript_says_what_happens(path: Path, rewrite: bool) -> None:
    stage = Stage()
    actual = transcripts.replay(path.read_text(), stage.perform)
    stage.close()
    transcripts.check(path, actual, rewrite=rewrite)
