"""The command line: `run(argv)` calls one command, and turns whatever happened into an exit code.

Exit codes are a contract: 0 done, 1 failed, 2 misused. A stack trace means a bug of ours and says so.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence

from strandline.cli.errors import CommandFailed


def run(argv: Sequence[str]) -> int:
    # A caller that has closed them does not want to hear from us; everything below may still print.
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
        # Whoever read our output has seen enough; let nothing complain about that while we leave.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except SystemExit as left:
        return left.code if isinstance(left.code, int) else 1
    except Exception:
        import traceback

        traceback.print_exc()
        _print_error("this is a bug in Strandline: please report it with the lines above")
        return 1


def _run(argv: list[str]) -> int:
    if len(argv) == 2 and argv[0] == "server" and not argv[1].startswith("-"):
        # As nodes are started: nothing is left to parse, and what parses takes time to load.
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
