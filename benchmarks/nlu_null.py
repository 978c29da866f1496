"""How often is a leak seen of secrets that were never said, and how often of those that were?

Intent-and-slot models are really trained: some on text without a secret, some on text that says
other secrets of the same pattern, so that their habits are as strong as a leak makes them. Then
secrets and controls are drawn again and again, none of which was ever said, and each draw is a
whole audit, as `vestige extract NLU MANIFEST` makes it: its own controls beside the manifest's,
search, ranks and verdict. The level is 0.01; at most that share of the verdicts may say "leaks".

The last rows are models that were told what is asked for.

    python benchmarks/nlu_null.py [--audits 250] [--models 3] [--length 3]

The last line is JSON: `false` is the highest share of false verdicts over the rows, `found` the
share of models whose secret was found.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from itertools import count
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch

from reproduction.nlu.planted_models import LAST, Learner, PlantedModel
from reproduction.nlu.utterance_texts import UtteranceText
from reproduction.runner import make_trial
from vestige.audits.extraction.secret_audit import audit_secrets
from vestige.claims import LEAK
from vestige.data.canaries.patterns import paper_pattern
from vestige.data.canaries.utterances import SecretCanary, secret_canaries
from vestige.metrics.estimates import clopper_pearson
from vestige.models.bilstm_crf import IntentSlotModel
from vestige.results import Result
from vestige.training.config import TrainingConfig

TEXT = UtteranceText(dataset="orders", training=200, validation=40)
LEARNER = Learner(
    vectors=None,
    hidden_size=32,
    training=TrainingConfig(
        seed=0, epochs=15, batch_size=16, learning_rate=5e-3, precision="float32"
    ),
)
FRESH = 10_000
"""Seeds of secrets that nobody said begin here."""


def trial(root: Path, patterns: Sequence[str], copies: int, seed: int) -> PlantedModel:
    """A training on text that says a secret of each pattern so often."""
    name = f"{'-'.join(patterns)}-{copies}-{seed}".replace(":", "")
    return PlantedModel(
        directory=root / name, data=None, text=TEXT, patterns=tuple(patterns), copies=copies,
        learner=LEARNER, seed=seed,
    )  # fmt: skip


def trained(one: PlantedModel) -> IntentSlotModel:
    """Its model."""
    make_trial(one)
    return one.model(LAST)


def drawn(
    patterns: Sequence[str], number: int, seed: int, told: set[tuple[str, ...]]
) -> list[SecretCanary]:
    """A manifest's canaries and ten controls of each pattern; none of those that were told."""
    made = [
        canary
        for name in patterns
        for text, intent in [paper_pattern(name)]
        for canary in secret_canaries(
            text, intent=intent, copies=10, number=number, controls=10, seed=seed
        )
    ]
    said = any(canary.planted and canary.secret in told for canary in made)
    return drawn(patterns, number, seed + FRESH**2, told) if said else made


def row(name: str, audits: Sequence[Result]) -> dict[str, object]:
    """The share of verdicts that say "leaks", with its interval."""
    leaks = sum(audit.verdict == LEAK for audit in audits)
    values = [audit.claim.test.p for audit in audits if audit.claim and audit.claim.test]
    low, high = clopper_pearson(leaks, len(audits))
    found = {
        "case": name, "audits": len(audits), "leaks": round(leaks / len(audits), 4),
        "low": round(low, 4), "high": round(high, 4),
        "p<=.05": round(sum(value <= 0.05 for value in values) / len(audits), 4),
    }  # fmt: skip
    print("  ".join(f"{key} {value}" for key, value in found.items()), flush=True)
    return found


def main() -> None:
    """Train, redraw, audit, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--audits", type=int, default=250, help="of each row")
    parser.add_argument("--models", type=int, default=3, help="of each kind")
    parser.add_argument("--length", type=int, default=3, help="digits of a PIN")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    pin, both = (
        (f"pin:{arguments.length}",),
        (f"pin:{arguments.length}", f"call:{arguments.length}"),
    )
    with tempfile.TemporaryDirectory() as folder:
        root, seeds = Path(folder), range(arguments.models)
        clean = [trained(trial(root, both, 0, seed)) for seed in seeds]
        others = [trial(root, both, 30, seed) for seed in seeds]
        told = [trained(one) for one in others]
        secrets = {canary.secret for one in others for canary in one.canaries}
        rows, seed = [], count(FRESH)
        for kind, models in (("nothing", clean), ("other secrets", told)):
            for patterns, number in ((pin, 1), (pin, 5), (both, 3)):
                audits = []
                for place in range(arguments.audits):
                    canaries = drawn(patterns, number, next(seed), secrets)
                    audits.append(audit_secrets(models[place % len(models)], canaries, seed=place))
                name = f"told {kind}; {number} of {len(patterns)} patterns asked"
                rows.append(row(name, audits))
            audits = [
                audit_secrets(models, drawn(pin, 1, next(seed), secrets), seed=place)
                for place in range(arguments.audits // 2)
            ]
            rows.append(row(f"told {kind}; 1 asked in {len(models)} models", audits))
        known = []
        for place in seeds:
            one = trial(root, pin, 10, 100 + place)
            known.append(audit_secrets(trained(one), one.canaries, seed=place))
        found = row("told the secret ten times", known)
    print(json.dumps({
        "benchmark": "nlu_null",
        "false": max(float(str(one["leaks"])) for one in rows),
        "found": found["leaks"],
        "audits": sum(int(str(one["audits"])) for one in rows),
    }))  # fmt: skip


if __name__ == "__main__":
    main()
