"""`python -m reproduction PAPER --out FOLDER`: the tables of four papers."""

from collections.abc import Sequence

from reproduction.reproduce import reproduce
from vestige.cli import app

COMMAND = "python -m reproduction"


def run(words: Sequence[str]) -> int:
    """Run a command line; the exit code."""
    return app.run_verb(COMMAND, reproduce, words)


if __name__ == "__main__":
    app.main(run)
