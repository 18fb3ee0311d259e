"""Creates first-minute.svg: runs the README's commands on a terminal and draws their output.

PYTHONPATH=src .venv/bin/python docs/images/first_minute.py
"""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

REPOSITORY = Path(__file__).resolve().parents[2]
COMMANDS = [
    "./strandline up --detach",
    "./strandline topic create orders -p 3",
    "printf 'first\\nsecond\\nthird\\n' | ./strandline produce orders",
    "./strandline consume orders -o start -n 3 -f '%t-%p @%o %v\\n'",
    "./strandline topic describe orders",
    "./strandline down",
]


def on_a_terminal(command: str, directory: str) -> str:
    """The output of the command on a terminal of 100 columns."""
    leader, follower = pty.openpty()
    environment = {**os.environ, "COLUMNS": "100", "TERM": "xterm-256color"}
    with subprocess.Popen(
        ["sh", "-c", command.replace("./strandline", str(REPOSITORY / "strandline"))],
        stdin=subprocess.DEVNULL, stdout=follower, stderr=follower, cwd=directory, env=environment,
    ) as process:  # fmt: skip
        os.close(follower)
        printed = b""
        while True:
            try:
                chunk = os.read(leader, 65536)
            except OSError:
                break
            if not chunk:
                break
            printed += chunk
        process.wait()
    os.close(leader)
    return printed.decode().replace("\r\n", "\n").replace(directory, "~")


def main() -> None:
    console = Console(record=True, width=100, file=io.StringIO())
    with tempfile.TemporaryDirectory() as directory:
        for command in COMMANDS:
            console.print(Text.assemble(("$ ", "bold green"), (command, "bold")))
            console.print(Text.from_ansi(on_a_terminal(command, directory)))
    # Without the fonts that rich would load from the web: the viewer's monospace font is used.
    svg = re.sub(r"@font-face \{.*?\}", "", console.export_svg(title="Strandline: the first minute"), flags=re.DOTALL)
    svg = re.sub(r"<!--.*?-->", "", svg).replace("Fira Code, monospace", "monospace")
    (REPOSITORY / "docs/images/first-minute.svg").write_text(svg)


if __name__ == "__main__":
    main()
