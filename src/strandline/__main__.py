"""`python -m strandline`: imports the command line late, so that `--version` is fast."""

import sys


def main() -> None:
    if sys.argv[1:] == ["--version"]:
        from strandline import __version__

        print(f"strandline {__version__}")
        return
    from strandline.cli.main import run

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
