"""The entry point: `run(argv)` runs one command and returns its exit code.

Exit codes are a contract: 0 success, 1 failure, 2 invalid usage. A stack trace is printed only for bugs in Strandline.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence

from strandline.cli.errors import CommandFailed


def run(argv: Sequence[str]) -> int:
    # The caller may have closed them; the code below prints in any case.
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    try:
        code = _run(list(argv))
        sys.stdout.flush()
        return code
    except CommandFailed as failure:
        _print_error(str(failure))
        return failure.exit_code
    except KeyboardInterrupt:
        _print_error("interrupted")
        return 1
    except BrokenPipeError:
        # The reader has closed the pipe: avoid another error when the interpreter flushes standard output.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except SystemExit as exit_:
        return exit_.code if isinstance(exit_.code, int) else 1
    except Exception:
        import traceback

        traceback.print_exc()
        _print_error("this is a bug in Strandline: please report it with the lines above")
        return 1


def _run(argv: list[str]) -> int:
    if len(argv) == 2 and argv[0] == "server" and not argv[1].startswith("-"):
        # How nodes are started: there is nothing to parse, and importing argparse takes time.
        from strandline.cli.server import serve

        return serve(argv[1])
    from strandline.cli.commands import parse

    arguments = parse(argv)
    if arguments is None:
        return 2
    code: int = arguments.run(arguments)
    return code


def _print_error(message: str) -> None:
    with contextlib.suppress(OSError):
        prefix = "\x1b[31merror:\x1b[0m" if _uses_colour() else "error:"
        print(f"{prefix} {message}", file=sys.stderr)


def _uses_colour() -> bool:
    return sys.stderr.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
