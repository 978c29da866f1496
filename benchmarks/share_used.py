"""How often the bounds on the share used hold, and what 10^5 texts take.

Normal scores: 40 listed texts, of which a share was used and scores `gap` higher, 200 never used
and 40 known to have been used. Each bound must hold in 95 of 100 runs. Then lists of 10^3 to 10^5.

    python benchmarks/share_used.py [--runs 2500]
"""

import argparse
import time
import tracemalloc

import numpy as np

from vestige.metrics.listed import share_used


def coverage(gap, share, runs):
    """How often the lower and the upper bound hold."""
    chance = np.random.default_rng([int(10 * gap), 200, int(10 * share)])
    used, held = round(40 * share), np.zeros(2)
    for _ in range(runs):
        listed = np.concatenate([chance.normal(gap, 1, used), chance.normal(0, 1, 40 - used)])
        found = share_used(listed, chance.normal(0, 1, 200), chance.normal(gap, 1, 40))
        held += [found.at_least <= used, found.at_most >= used]
    return held / runs


def main():
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--runs", type=int, default=2500)
    runs = asked.parse_args().runs
    spread = 1.96 * np.sqrt(0.95 * 0.05 / runs)
    print(f"{runs:,} runs each, 0.95 ± {spread:.3f} by chance")
    print("| gap | share used | lower holds | upper holds |\n| --- | --- | --- | --- |")
    for gap in (0.5, 1.5, 3.0):
        for share in (0.0, 0.1, 0.5, 1.0):
            low, high = coverage(gap, share, runs)
            print(f"| {gap} | {share:.0%} | {low:.3f} | {high:.3f} |", flush=True)
    print("| texts | seconds | MiB |\n| --- | --- | --- |")
    for count in (10**3, 10**4, 10**5):
        chance, used = np.random.default_rng(0), count // 10
        listed = np.concatenate([chance.normal(2, 1, used), chance.normal(0, 1, count - used)])
        never, known = chance.normal(0, 1, count), chance.normal(2, 1, 1000)
        began = time.process_time()
        tracemalloc.start()
        share_used(listed, never, known)
        peak = tracemalloc.get_traced_memory()[1] / 2**20
        tracemalloc.stop()
        print(f"| {count:,} | {time.process_time() - began:.2f} | {peak:.1f} |", flush=True)


if __name__ == "__main__":
    main()
