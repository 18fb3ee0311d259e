"""Every transcript in `scenarios/` matches what the raft machine does; `transcripts.py` explains the format."""

from __future__ import annotations

from pathlib import Path

import pytest

import transcripts
from unit.raft.transcript_player import TranscriptCluster

_SCENARIOS = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))


@pytest.mark.parametrize("path", _SCENARIOS, ids=[path.stem for path in _SCENARIOS])
def test_a_transcript_matches_what_happens(path: Path, rewrite: bool) -> None:
    transcripts.check(path, transcripts.replay(path.read_text(), TranscriptCluster().play), rewrite=rewrite)


def test_there_are_transcripts() -> None:
    assert len(_SCENARIOS) >= 17
