"""`cutegen`, also as `python -m workbench`."""

import sys


def main() -> int:
    """Run the command line. Ctrl-C ends it with one line, also while modules are imported."""
    try:
        from workbench.cli import main as run

        return run()
    except KeyboardInterrupt:
        print("stopped; everything finished is kept", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
