"""How much of a claimed epsilon does one training's audit prove, by kind of canary?

A small LSTM of public sentences learns 1,000 other ones of WikiText-2, among which coin-flip
canaries stand once each or not at all, by DP-SGD. Every step takes all sequences (sample rate 1),
so that the mechanism is a Gaussian one. The canaries are audited against the model before
(`audit_canaries`). Each line is JSON: at delta 1e-5 the bound that needs fair coins only (Steinke
et al. 2023), the one for the mechanism that the claim states (Mahloujifar et al. 2024), the one
that also takes scores for independent, the verdict, and the mu that the scores tell (of two normal
distributions with their AUC) beside that of the claim.

    VESTIGE_DATA=data python benchmarks/measured_epsilon.py kinds [--runs 3] [--kind sampled]
    VESTIGE_DATA=data python benchmarks/measured_epsilon.py broken [--runs 20]
    VESTIGE_DATA=data python benchmarks/measured_epsilon.py right [--runs 30]
    VESTIGE_DATA=data python benchmarks/measured_epsilon.py sampled [--runs 5]
    python benchmarks/measured_epsilon.py simulated [--runs 5000]

"kinds" crosses kinds of canaries and claims, or claims alone with one `--kind`. Sampled canaries
are written by a model of the public sentences that has no reserved words. "broken" adds half of the
noise that it claims and "right" all of it, with repeated-token canaries at a claimed 4. "sampled"
has batches of a tenth of the text for 100 steps, of a right training and of a broken one.
"simulated" audits Gaussian mechanisms and randomised responses without a training.
"""

import argparse
import json
import math
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import NormalDist
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import brentq

from vestige.audits.exposure.epsilon import CanaryAudit, audit_canaries
from vestige.data.canaries.coins import CanaryKind, coin_flip_canaries, sampled_canaries
from vestige.data.canaries.texts import Canary, plant
from vestige.data.corpus import Corpus
from vestige.data.vocabulary import WordVocabulary
from vestige.metrics.epsilon import one_run_epsilon
from vestige.metrics.f_dp_epsilon import GAUSSIAN, Curves, f_dp_epsilon
from vestige.models.protocols import LanguageModel
from vestige.models.recurrent_network import LSTMConfig
from vestige.preparation.sampled_canaries import sample_phrases
from vestige.privacy.accounting import noise_for
from vestige.privacy.dp_sgd import DPSGDStep
from vestige.training.batches import IGNORED, Batch
from vestige.training.new_models import new_model
from vestige.training.steps import plain_step

SENTENCES, WORDS, HIDDEN = 1000, 1000, 32
SHAPE = LSTMConfig(layers=1, embedding_size=HIDDEN, hidden_size=HIDDEN)
PUBLIC_EPOCHS = 5
DELTA = 1e-5
CLAIMS = (1.0, 2.0, 4.0, 8.0, math.inf)
Kind = CanaryKind | Literal["sampled"]
KINDS: tuple[tuple[Kind, int], ...] = (
    ("words", 5),
    ("random", 5),
    ("new-token", 5),
    ("new-token", 1),
    ("repeated-token", 5),
    ("sampled", 5),
)
"""Kinds of canaries and their length in tokens."""
TEMPERATURES = (1.0, 4.0)
"""At which "sampled" ones are drawn."""


@dataclass(frozen=True, kw_only=True)
class Training:
    """One training and its canaries.

    Attributes:
        kind: of the canaries.
        length: of each, in tokens.
        claim: epsilon.
        canaries: by as many coins.
        steps: updates.
        sample_rate: how likely a sequence is to be in a batch.
        move: standard deviation, in weight, of what all noise moves one weight by.
        honesty: the share of the claimed noise that is added.
        seed: of coins, canaries and batches; the noise is fresh, as in any private training.
        temperature: of sampled canaries.
    """

    kind: Kind
    length: int
    claim: float
    canaries: int = 1000
    steps: int = 4
    sample_rate: float = 1.0
    move: float = 0.003
    honesty: float = 1.0
    seed: int = 0
    temperature: float = 1.0


@dataclass(frozen=True)
class World:
    """What all trainings share: the private text, and a model of public text.

    Attributes:
        private: sentences among which the canaries stand.
        start: weights after the public text, which no canary is in. Reserved words, which it has
            none of either, start at the mean of all words, as new tokens do in practice.
        public: sentences of which the models have learnt.
        vocabulary: the public text's commonest words, those that the private text has not left
            out, and reserved ones, so that all new tokens are of one kind.
    """

    private: Corpus
    start: dict[str, torch.Tensor]
    vocabulary: WordVocabulary
    public: Corpus

    @classmethod
    def made(cls, reserved: int) -> "World":
        """Of WikiText-2, with so many reserved words."""
        return cls.of(sentences("wiki.test.tokens"), sentences("wiki.valid.tokens"), reserved)

    @classmethod
    def of(cls, public: Corpus, private: Corpus, reserved: int) -> "World":
        """Train on the public text, without privacy."""
        used = {word for text in private for word in text.split()}
        common = WordVocabulary.build(public, size=WORDS).words
        words = [word for word in common if word in {"<unk>", "<eos>", *used}]
        vocabulary = WordVocabulary((*words, *(f"reserved{i}" for i in range(reserved))))
        model = new_model(vocabulary, SHAPE, seed=0)
        batch = whole_batch(public, vocabulary)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        step = plain_step()
        for epoch in range(PUBLIC_EPOCHS):
            order = torch.from_numpy(np.random.default_rng(epoch).permutation(len(batch.inputs)))
            for rows in torch.split(order, 50):
                step(model, batch.select(rows), None)
                optimizer.step()
        weights = model.state_dict()
        for name in ("embedding.weight", "head.weight", "head.bias"):
            rows = weights[name]
            rows[len(words) :] = rows[: len(words)].mean(0)
        return cls(private, weights, vocabulary, public)

    def model(self) -> LanguageModel:
        """The model of the public text."""
        model = new_model(self.vocabulary, SHAPE, seed=0)
        model.load_state_dict(self.start)
        return model

    @cached_property
    def writer(self) -> LanguageModel:
        """A model of the public text without reserved words, which writes canaries."""
        return World.of(self.public, self.private, 0).model().eval()

    def canaries(self, asked: "Training") -> tuple[Canary, ...]:
        """The canaries of a training."""
        if asked.kind == "sampled":
            drawn = sample_phrases(
                self.writer,
                self.private,
                number=asked.canaries,
                seed=[asked.seed, 3],
                temperature=asked.temperature,
                length=asked.length,
            )
            return sampled_canaries(self.private, drawn, seed=asked.seed)
        return coin_flip_canaries(
            self.private,
            self.vocabulary,
            number=asked.canaries,
            kind=asked.kind,
            length=asked.length,
            seed=asked.seed,
        )


def sentences(name: str) -> Corpus:
    """The first words of paragraphs of WikiText-2."""
    file = Path(os.environ["VESTIGE_DATA"]) / "wikitext2" / name
    lines = (line.split() for line in file.read_text(encoding="utf-8").splitlines())
    texts = [" ".join(words[:12]) for words in lines if len(words) >= 30][:SENTENCES]
    return Corpus.from_texts(texts)


def whole_batch(corpus: Corpus, vocabulary: WordVocabulary) -> Batch:
    """All texts, each after an end-of-text token and up to its own."""
    eos = vocabulary.eos_id
    rows = [[eos, *ids, eos] for ids in vocabulary.encode_batch(list(corpus))]
    lengths = torch.tensor([len(row) - 1 for row in rows])
    width = int(lengths.max())
    inputs = torch.full((len(rows), width), eos)
    targets = torch.full((len(rows), width), IGNORED)
    for place, row in enumerate(rows):
        inputs[place, : len(row) - 1] = torch.tensor(row[:-1])
        targets[place, : len(row) - 1] = torch.tensor(row[1:])
    return Batch(inputs, targets, padding=int((targets == IGNORED).sum()), lengths=lengths)


def audited(training: Training, world: World) -> CanaryAudit:
    """The audit of a training."""
    asked = training
    canaries = world.canaries(asked)
    planted, manifest = plant(world.private, canaries, seed=asked.seed, vocabulary=world.vocabulary)
    model = world.model()
    claimed = asked.claim if math.isfinite(asked.claim) else None
    rate, steps = asked.sample_rate, asked.steps
    noise = 0.0
    if claimed:
        noise = noise_for(
            epsilon=claimed, delta=DELTA, sample_rate=rate, steps=steps, accountant="pld"
        )
    learn(model, whole_batch(planted, world.vocabulary), asked, noise)
    return audit_canaries(
        model,
        manifest.canaries,
        delta=DELTA,
        reference=world.model(),
        claimed=claimed,
        mechanism=Curves(rate, steps) if claimed else None,
    )


def learn(model: LanguageModel, batch: Batch, training: Training, noise: float) -> None:
    """DP-SGD on batches that every sequence joins by chance."""
    rows, chance = len(batch.inputs), np.random.default_rng([training.seed, 7])
    expected = round(rows * training.sample_rate)
    step = DPSGDStep(
        noise_multiplier=noise * training.honesty,
        max_grad_norm=1.0,
        expected_units=expected,
        sequence_length=1,
        physical_batch_size=500,
    )
    rate = training.move * expected / (math.sqrt(training.steps) * (noise or 1.0))
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for _ in range(training.steps):
        drawn = np.flatnonzero(chance.random(rows) < training.sample_rate)
        step(model, batch.select(torch.from_numpy(drawn)), None)
        optimizer.step()


def gaussian_mu(epsilon: float) -> float:
    """The mu of a Gaussian mechanism with some epsilon."""
    return float(brentq(lambda mu: GAUSSIAN.epsilon(mu, DELTA) - epsilon, 1e-3, 20))


def row(training: Training, world: World) -> dict[str, object]:
    """What one training's audit says."""
    began = time.process_time()
    audit = audited(training, world)
    area = min(max(audit.separation.value, 1e-9), 1 - 1e-9)
    return {
        "kind": training.kind,
        "length": training.length,
        **({"temperature": training.temperature} if training.kind == "sampled" else {}),
        "canaries": training.canaries,
        "sample_rate": training.sample_rate,
        "steps": training.steps,
        "claim": training.claim if math.isfinite(training.claim) else None,
        "honesty": training.honesty,
        "seed": training.seed,
        "one_run": round(audit.one_run.epsilon, 3),
        "f_dp": round(audit.f_dp.epsilon, 3),
        "ceiling": round(audit.ceiling, 3),
        "threshold": round(audit.threshold.epsilon, 3),
        "auc": round(area, 4),
        "mu_of_scores": round(math.sqrt(2) * NormalDist().inv_cdf(area), 3),
        "mu_of_claim": round(gaussian_mu(audit.claimed), 3) if audit.claimed else None,
        "verdict": audit.verdict,
        "seconds": round(time.process_time() - began, 1),
    }


def kinds(runs: int, only: str | None) -> Iterator[dict[str, object]]:
    """Every kind of canary, or one, at every claim."""
    world = World.made(1000)
    chosen = [
        Training(kind=kind, length=length, claim=math.inf, temperature=temperature)
        for kind, length in KINDS
        for temperature in (TEMPERATURES if kind == "sampled" else (1.0,))
        if only in (None, kind)
    ]
    for seed in range(runs):
        for one in chosen:
            for claim in CLAIMS:
                yield row(replace(one, claim=claim, seed=seed), world)


def sampled(runs: int) -> Iterator[dict[str, object]]:
    """Batches of a tenth of the text, a hundred of them."""
    world = World.made(1000)
    for seed in range(runs):
        for honesty in (1.0, 0.5):
            strongest = Training(kind="repeated-token", length=5, claim=4.0, honesty=honesty)
            yield row(replace(strongest, sample_rate=0.1, steps=100, seed=seed), world)


def repeated(runs: int, honesty: float, canaries: int) -> Iterator[dict[str, object]]:
    """Trainings with the strongest canaries, and how many of them were accused."""
    world, verdicts = World.made(canaries), []
    strongest = Training(
        kind="repeated-token", length=5, claim=4.0, canaries=canaries, honesty=honesty
    )
    for seed in range(runs):
        found = row(replace(strongest, seed=1000 + seed), world)
        verdicts.append(str(found["verdict"]))
        yield found
    counted = {verdict: verdicts.count(verdict) for verdict in sorted(set(verdicts))}
    yield {"honesty": honesty, "canaries": canaries, "runs": runs, **counted}


def simulated(runs: int) -> Iterator[dict[str, object]]:
    """How often bounds are above the truth, and above a claim of twice the noise."""
    for canaries in (1000, 5000):
        for claim in CLAIMS[:-1]:
            for honesty in (1.0, 0.5):
                yield gaussian(runs, canaries, claim, honesty)
        for epsilon in (0.5, 1.0, 2.0, 4.0):
            yield randomised_response(runs, canaries, epsilon)


def gaussian(runs: int, canaries: int, claim: float, honesty: float) -> dict[str, object]:
    """Audits of a mechanism whose noise is some share of what the claim needs."""
    generator = np.random.default_rng(0)
    mu = gaussian_mu(claim) / honesty
    bounds = []
    for _ in range(runs):
        heads = generator.random(canaries) < 0.5
        scores = heads * mu + generator.normal(size=canaries)
        bounds.append(all_bounds(scores, heads, 0.975))
    return {"mechanism": "gaussian", "canaries": canaries, "claim": claim, "honesty": honesty} | (
        counts(bounds, claim)
    )


def randomised_response(runs: int, canaries: int, epsilon: float) -> dict[str, object]:
    """Audits of answers that are right with odds of e to the epsilon."""
    generator, bounds = np.random.default_rng(1), []
    for _ in range(runs):
        heads = generator.random(canaries) < 0.5
        honest = generator.random(canaries) < 1 / (1 + math.exp(-epsilon))
        scores = (heads == honest) + generator.random(canaries) / 2
        bounds.append(all_bounds(scores, heads, 0.95))
    # The Gaussian curve that the mechanism's own touches is what the family can say of it.
    touching = GAUSSIAN.epsilon(2 * NormalDist().inv_cdf(1 / (1 + math.exp(-epsilon))), DELTA)
    found = counts(bounds, epsilon)
    above = float(np.mean([bound[1] > touching for bound in bounds]))
    kind = {"mechanism": "randomised response", "canaries": canaries, "epsilon": epsilon}
    return kind | found | {"touching": round(touching, 3), "f_dp_above": above}


def all_bounds(
    scores: NDArray[np.float64], heads: NDArray[np.bool_], confidence: float
) -> tuple[float, float]:
    """Of fair coins alone, and of a Gaussian mechanism as well."""
    inside, outside = scores[heads], scores[~heads]
    bounds = (one_run_epsilon, f_dp_epsilon)
    one, other = (
        bound(inside, outside, delta=DELTA, confidence=confidence).epsilon for bound in bounds
    )
    return one, other


def counts(bounds: list[tuple[float, float]], truth: float) -> dict[str, object]:
    """Means of both bounds, and how often each exceeds a figure."""
    table = np.array(bounds)
    return {
        "runs": len(table),
        "one_run": round(float(table[:, 0].mean()), 3),
        "f_dp": round(float(table[:, 1].mean()), 3),
        "one_run_above": float((table[:, 0] > truth).mean()),
        "f_dp_above": float((table[:, 1] > truth).mean()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=("kinds", "broken", "right", "sampled", "simulated"))
    parser.add_argument("--runs", type=int)
    parser.add_argument("--kind", choices=sorted({kind for kind, _ in KINDS}))
    parser.add_argument("--canaries", type=int, default=5000)
    asked = parser.parse_args()
    parts = {
        "kinds": lambda: kinds(asked.runs or 3, asked.kind),
        "broken": lambda: repeated(asked.runs or 20, 0.5, asked.canaries),
        "right": lambda: repeated(asked.runs or 30, 1.0, asked.canaries),
        "sampled": lambda: sampled(asked.runs or 5),
        "simulated": lambda: simulated(asked.runs or 5000),
    }
    for found in parts[asked.part]():
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
