"""Every transcript in `scenarios/` still says what happens. `--rewrite` makes it say so: read the difference."""

from __future__ import annotations

from pathlib import Path

import pytest

from unit.raft.transcript_player import play

_SCENARIOS = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))


@pytest.mark.parametrize("path", _SCENARIOS, ids=[path.stem for path in _SCENARIOS])
def test_a_transcript_tells_what_happens(path: Path, pytestconfig: pytest.Config) -> None:
    transcript = path.read_text()
    played = play(transcript)
    if pytestconfig.getoption("--rewrite", default=False):
        path.write_text(played)
    else:
        assert played == transcript


def test_there_are_transcripts() -> None:
    assert len(_SCENARIOS) >= 17
