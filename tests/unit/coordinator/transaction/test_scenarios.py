"""Each transcript in `scenarios/` still says what the transaction machine does; `stage.py` explains its verbs."""

from __future__ import annotations

from pathlib import Path

import pytest

import transcripts
from unit.coordinator.transaction.stage import Stage

_SCENARIOS = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))


@pytest.mark.parametrize("path", _SCENARIOS, ids=[path.stem for path in _SCENARIOS])
def test_a_transcript_says_what_happens(path: Path, rewrite: bool) -> None:
    transcripts.check(path, transcripts.replay(path.read_text(), Stage().step), rewrite=rewrite)
