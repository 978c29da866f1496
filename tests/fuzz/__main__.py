"""Try many cases and print what became of them: `python -m tests.fuzz --cases 5000 --seed 1`.

--cases N       how many, over all verbs and formats
--seed N        another seed, other cases
--only NAME     only of these verbs or formats, with commas between them
--repeat CASE   one case, as a failure prints it
"""

import argparse
import tempfile
from pathlib import Path

from tests.fuzz.cases import Bench, Case
from tests.fuzz.oracles import complaints
from tests.fuzz.sandbox import Sandbox
from tests.fuzz.table import Table
from tests.fuzz.trials import trials
from tests.fuzz.world import make_world


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only")
    parser.add_argument("--repeat")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="vestige-fuzz-") as folder:
        sandbox = Sandbox(Path(folder))
        bench = Bench(sandbox, make_world(sandbox))
        table = Table()
        try:
            if asked.repeat:
                tried = bench.attempt(Case.read(asked.repeat))
                print(tried.outcome.stdout, tried.outcome.stderr, sep="\n")
                table.add(tried, complaints(tried))
            else:
                trials(bench, table, cases=asked.cases, seed=asked.seed, only=asked.only)
        finally:
            print(table.text(), flush=True)
            sandbox.close()


if __name__ == "__main__":
    main()
