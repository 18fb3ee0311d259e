"""Every file named in README and docs/ exists, so that a rename cannot leave the documentation behind."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
SOURCE = REPOSITORY / "src" / "strandline"
DOCUMENTS = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]
# In backticks: a path of the repository or below src/strandline, with or without `.py`, maybe with `.name` behind it.
_PATH = re.compile(r"`([\w.*-]+(?:/[\w.*-]*)+)`")
_LINK = re.compile(r"\]\(([^)#:]+)\)")
_DECISION = re.compile(r"docs/decisions/(\d{4})")


def exists(path: str) -> bool:
    """A file, a module without `.py`, a directory, a glob, or a module and a name in it (`a/module.name`)."""
    module, _, name = path.rpartition(".")
    for root in (REPOSITORY, SOURCE):
        if any(True for _ in root.glob(path.rstrip("/"))) or (root / f"{path}.py").is_file():
            return True
        if module and (root / f"{module}.py").is_file():
            return re.search(rf"\b{re.escape(name)}\b", (root / f"{module}.py").read_text()) is not None
    return False


def is_ours(path: str) -> bool:
    first = path.partition("/")[0]
    return (REPOSITORY / first).is_dir() or (SOURCE / first).is_dir()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_path_named_in_a_document_exists(document: Path) -> None:
    text = document.read_text()
    missing = [path for path in _PATH.findall(text) if is_ours(path) and not exists(path)]
    missing += [link for link in _LINK.findall(text) if not (document.parent / link).exists()]
    assert not missing, f"{document.name} names files that do not exist: {missing}"


def test_every_decision_cited_in_the_code_exists() -> None:
    numbers = {path.name[:4] for path in (REPOSITORY / "docs" / "decisions").glob("*.md")}
    cited = {
        number
        for directory in ("src", "tests", "bench", "docs")
        for path in (REPOSITORY / directory).rglob("*")
        if path.suffix in (".py", ".md", ".patch")
        for number in _DECISION.findall(path.read_text())
    }
    assert cited <= numbers
