"""How often does `compare` see a defence where there is none, and how often one that is there?

Trainings that differ in their seed alone are set against each other. Asked are (1) trainings that
were made, where `--runs` names directories of `vestige train`: every ordered pair with one training
each, by intervals over canaries as if one training told all; and random halves, k against k, by
`compare_defences`; (2) simulated ones: exposure of canary i in training j is a mean for the canary,
plus a normal effect of the training, plus one of the two together, with the spreads that the real
trainings have (`--canary`, `--training`, `--both`, in bits), and likewise losses of documents. A
defence that works takes `--effect` bits off.

    python benchmarks/compare_verdicts.py [--repeats 2000]
    python benchmarks/compare_verdicts.py --runs identical/* --manifest planted --test test.jsonl

The last line is JSON: false verdicts ("helps" or "worse") are wanted in at most 5 of 100.
"""

import argparse
import json
import math
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vestige.audits.comparison.comparison import compare_defences
from vestige.audits.comparison.measurements import MeasuredTraining
from vestige.audits.comparison.verdict import Difference, judge
from vestige.metrics.estimates import Estimate, mean, ratio_of_sums
from vestige.training.evaluate import DocumentScores

FALSE = ("helps", "worse")
DOCUMENTS, CANARIES = 200, 60
Floats = NDArray[np.float64]


def by_canaries(first: MeasuredTraining, second: MeasuredTraining) -> str:
    """The verdict from one training each, intervals over canaries and documents alone."""
    assert first.scores is not None
    assert second.scores is not None
    change = np.subtract(*(one.bits("exposure", planted=True) for one in (second, first)))
    nats = ratio_of_sums(second.scores.loss - first.scores.loss, first.scores.tokens)
    ratio = Estimate("ratio", *(math.exp(one) for one in (nats.value, *nats.interval)))
    told = Difference(name="x", change=mean(change), ratio=ratio)
    return judge(told, tolerance=0.05).kind


def by_trainings(first: Sequence[MeasuredTraining], second: Sequence[MeasuredTraining]) -> str:
    """The verdict of `compare_defences` from several trainings each."""
    groups = [_named("plain", first), _named("other", second)]
    found = compare_defences([one for group in groups for one in group], baseline="plain")
    return str(found.rows[1]["verdict"])


def _named(name: str, group: Sequence[MeasuredTraining]) -> list[MeasuredTraining]:
    return [MeasuredTraining(name=name, canaries=one.canaries, scores=one.scores) for one in group]


def made(exposure: Floats, loss: Floats, tokens: NDArray[np.int64]) -> list[MeasuredTraining]:
    """Trainings from (k, m) exposures and (k, d) losses."""
    rest = {"copies": 1, "shuffled_exposure": None, "at_ceiling": False}
    return [
        MeasuredTraining(
            name="x",
            canaries=tuple(
                {"phrase": f"canary {i}", "exposure": value, **rest}
                for i, value in enumerate(bits.tolist())
            ),
            scores=DocumentScores(loss=own, right=np.zeros_like(tokens), tokens=tokens),
        )
        for bits, own in zip(exposure, loss, strict=True)
    ]


def simulated(
    chance: np.random.Generator, number: int, spread: tuple[float, float, float], effect: float
) -> tuple[list[MeasuredTraining], list[MeasuredTraining]]:
    """Two groups of trainings for the same canaries; the second leaks `effect` bits less."""
    canary, training, both = spread
    tokens = chance.integers(20, 200, DOCUMENTS)
    hard = chance.normal(5.5, 0.5, DOCUMENTS)
    level = chance.normal(8.0, canary, CANARIES)

    def group(less: float) -> list[MeasuredTraining]:
        bits = level + chance.normal(0, training, (number, 1)) - less
        bits = bits + chance.normal(0, both, (number, CANARIES))
        nats = hard + chance.normal(0, 0.006, (number, 1))
        nats = nats + chance.normal(0, 0.05, (number, DOCUMENTS))
        return made(np.clip(bits, 0, 14), nats * tokens, tokens)

    return group(0.0), group(effect)


def spreads(exposure: Floats) -> tuple[float, float, float]:
    """Standard deviations of canaries, of trainings and of the two together, by their means."""
    k, m = exposure.shape
    rows, columns = exposure.mean(1), exposure.mean(0)
    rest = exposure - rows[:, None] - columns + exposure.mean()
    both = float((rest**2).sum() / ((k - 1) * (m - 1)))
    training = max(0.0, float(rows.var(ddof=1)) - both / m)
    canary = max(0.0, float(columns.var(ddof=1)) - both / k)
    return math.sqrt(canary), math.sqrt(training), math.sqrt(both)


def rate(kinds: Sequence[str], wanted: Sequence[str]) -> dict[str, float]:
    """The share of verdicts of some kinds, with its Monte-Carlo standard error."""
    share = sum(kind in wanted for kind in kinds) / len(kinds)
    return {"rate": share, "error": math.sqrt(share * (1 - share) / len(kinds))}


def measured(paths: Sequence[str], manifest: str, test: str, text: str) -> list[MeasuredTraining]:
    """What `vestige compare` measures of trainings, completion left out."""
    from vestige.audits.exposure.canaries import canary_exposure
    from vestige.data.canaries.texts import load_canaries
    from vestige.data.encoded import encode
    from vestige.data.formats.reading import read_source
    from vestige.models.checkpoints import load_model
    from vestige.training.evaluate import score_documents

    found = []
    for path in paths:
        model = load_model(path)
        _, canaries = load_canaries(Path(manifest), model.vocabulary)
        corpus = read_source(test, format="auto", text=text, user=None, limit=None)
        data = encode(corpus, model.vocabulary)
        exposure = canary_exposure(model, canaries, seed=0)
        found.append(
            MeasuredTraining(
                name="x", canaries=exposure.canaries, scores=score_documents(model, data)
            )
        )
    return found


def of_trainings(runs: Sequence[MeasuredTraining], seed: int, splits: int) -> dict[str, Any]:
    """Ordered pairs by canaries, and random halves by trainings."""
    chance = np.random.default_rng(seed)
    pairs = [by_canaries(a, b) for a, b in permutations(runs, 2)]
    eight = [by_canaries(a, b) for a, b in permutations(runs[:8], 2)]
    result: dict[str, Any] = {
        "trainings": len(runs),
        "pairs_by_canaries": rate(pairs, FALSE),
        "first_eight_false": sum(kind in FALSE for kind in eight),
        "first_eight_pairs": len(eight),
    }
    for number in (3, 4, 5):
        if 2 * number > len(runs):
            continue
        told = []
        for _ in range(splits):
            order = chance.permutation(len(runs))[: 2 * number]
            told.append(
                by_trainings([runs[i] for i in order[:number]], [runs[i] for i in order[number:]])
            )
        result[f"{number}_against_{number}"] = rate(told, FALSE)
    return result


def main() -> None:
    """Count verdicts and print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--canary", type=float, default=1.24)
    parser.add_argument("--training", type=float, default=0.22)
    parser.add_argument("--both", type=float, default=0.49)
    parser.add_argument("--effect", type=float, nargs="*", default=[0.5, 1.0, 2.0])
    parser.add_argument("--runs", nargs="*", default=[])
    parser.add_argument("--against", nargs="*", default=[], help="trainings under a defence")
    parser.add_argument("--manifest", default="planted")
    parser.add_argument("--test", default="test.jsonl")
    parser.add_argument("--text", default="text")
    arguments = parser.parse_args()
    result: dict[str, Any] = {"benchmark": "compare_verdicts"}
    spread = (arguments.canary, arguments.training, arguments.both)
    asked = (arguments.manifest, arguments.test, arguments.text)
    if arguments.runs:
        runs = measured(arguments.runs, *asked)
        result["trained"] = of_trainings(runs, arguments.seed, arguments.repeats)
        spread = spreads(
            np.array([one.bits("exposure", planted=True) for one in runs if one.canaries])
        )
        others = measured(arguments.against, *asked)
        for number in (3, 4, 5):
            if 0 < number <= min(len(others), len(runs)):
                verdict = by_trainings(runs[:number], others[:number])
                result[f"against_{number}"] = verdict
    result["spreads"] = dict(zip(("canary", "training", "both"), spread, strict=True))
    chance = np.random.default_rng(arguments.seed)
    for number in (1, 3, 4, 5):
        for effect in (0.0, *arguments.effect):
            draws = [simulated(chance, number, spread, effect) for _ in range(arguments.repeats)]
            told = (
                [by_canaries(a[0], b[0]) for a, b in draws]
                if number == 1
                else [by_trainings(a, b) for a, b in draws]
            )
            name = f"{number}_each_by_{'canaries' if number == 1 else 'trainings'}"
            result[f"{name}_effect_{effect:g}"] = rate(told, FALSE if effect == 0 else ["helps"])
            print(name, effect, result[f"{name}_effect_{effect:g}"], flush=True)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
