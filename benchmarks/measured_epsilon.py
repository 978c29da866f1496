"""How much of a claimed epsilon one training's audit proves, by kind of canary.

A small LSTM of public sentences learns 1,000 other ones of WikiText-2, among which coin-flip
canaries stand once each or not at all, by DP-SGD; by default every step takes all sequences, so
that the mechanism is a Gaussian one. At delta 1e-5 the columns are the bound that needs fair coins
only (Steinke et al. 2023), the one for the mechanism that the claim states (Mahloujifar et al.
2024), the one that also takes scores for independent, the verdict, and the mu of the scores (of two
normal distributions with their AUC) beside that of the claim.

- `kinds`: kinds of canaries crossed with claims, or one `--kind`.
- `broken`: half of the claimed noise is added; `right`: all of it. Repeated-token canaries, a claim
  of 4, 5,000 coins.
- `sampled`: batches of a tenth of the text for 100 steps, of a right training and of a broken one.
- `simulated`: audits of Gaussian mechanisms and randomized responses, without a training.

    VESTIGE_DATA=corpora python benchmarks/measured_epsilon.py kinds [--kind words] [--times 3]
    python benchmarks/measured_epsilon.py simulated --times 1000
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import NormalDist
from typing import Any

import numpy as np
import torch
from corpora import lines
from harness import Row, Run, main
from scipy.optimize import brentq

from vestige.audits.exposure.epsilon import CanaryAudit, audit_canaries
from vestige.data.canaries.coins import CanaryKind, coin_flip_canaries
from vestige.data.canaries.texts import Canary, plant
from vestige.data.corpus import Corpus
from vestige.data.vocabulary import WordVocabulary
from vestige.metrics.epsilon import one_run_epsilon
from vestige.metrics.f_dp_epsilon import GAUSSIAN, Curves, f_dp_epsilon
from vestige.models.protocols import LanguageModel
from vestige.models.recurrent_network import LSTMConfig
from vestige.privacy.accounting import noise_for
from vestige.privacy.dp_sgd import DPSGDStep
from vestige.training.batches import IGNORED, Batch
from vestige.training.new_models import new_model
from vestige.training.steps import plain_step

SENTENCES, WORDS, HIDDEN = 1000, 1000, 32
SHAPE = LSTMConfig(layers=1, embedding_size=HIDDEN, hidden_size=HIDDEN)
PUBLIC_EPOCHS, DELTA = 5, 1e-5
CLAIMS = (1.0, 2.0, 4.0, 8.0, math.inf)
KINDS: tuple[tuple[CanaryKind, int], ...] = (
    ("words", 5),
    ("repeated-token", 1),
    ("repeated-token", 5),
)
"""Kinds of canaries, and their length in tokens."""


@dataclass(frozen=True, kw_only=True)
class Training:
    """One training and its canaries.

    Attributes:
        kind, length: of the canaries.
        claim: epsilon.
        canaries: by as many coins.
        steps: updates.
        sample_rate: how likely a sequence is to be in a batch.
        move: standard deviation, in weight, of what all noise moves one weight by.
        honesty: the share of the claimed noise that is added.
        seed: of coins, canaries and batches; the noise is fresh, as in any private training.
    """

    kind: CanaryKind = "repeated-token"
    length: int = 5
    claim: float = 4.0
    canaries: int = 1000
    steps: int = 4
    sample_rate: float = 1.0
    move: float = 0.003
    honesty: float = 1.0
    seed: int = 0


@dataclass(frozen=True)
class World:
    """What all trainings share: the private text, and a model of public text.

    Attributes:
        private: sentences among which the canaries stand.
        start: weights after the public text, which no canary is in. Reserved words, which it has
            none of either, start at the mean of all words, as new tokens do in practice.
        vocabulary: the public text's commonest words, those that the private text has not left
            out, and reserved ones, so that all new tokens are of one kind.
        public: sentences that the models have learned.
    """

    private: Corpus
    start: dict[str, torch.Tensor]
    vocabulary: WordVocabulary
    public: Corpus

    @classmethod
    def of(cls, public: Corpus, private: Corpus, reserved: int) -> "World":
        """Train on the public text, without privacy."""
        used = {word for text in private for word in text.split()}
        common = WordVocabulary.build(public, size=WORDS).words
        words = [word for word in common if word in {"<unk>", "<eos>", *used}]
        vocabulary = WordVocabulary((*words, *(f"reserved{i}" for i in range(reserved))))
        model, batch = new_model(vocabulary, SHAPE, seed=0), whole_batch(public, vocabulary)
        optimizer, step = torch.optim.Adam(model.parameters(), lr=1e-2), plain_step()
        for epoch in range(PUBLIC_EPOCHS):
            order = np.random.default_rng(epoch).permutation(len(batch.inputs))
            for rows in torch.split(torch.from_numpy(order), 50):
                step(model, batch.select(rows), None)
                optimizer.step()
        weights = model.state_dict()
        for name in ("embedding.weight", "head.weight", "head.bias"):
            weights[name][len(words) :] = weights[name][: len(words)].mean(0)
        return cls(private, weights, vocabulary, public)

    def model(self) -> LanguageModel:
        """The model of the public text."""
        model = new_model(self.vocabulary, SHAPE, seed=0)
        model.load_state_dict(self.start)
        return model

    def canaries(self, asked: Training) -> tuple[Canary, ...]:
        """The canaries of a training."""
        return coin_flip_canaries(
            self.private, self.vocabulary, kind=asked.kind, number=asked.canaries,
            length=asked.length, seed=asked.seed,
        )  # fmt: skip


def made_world(run: Run, reserved: int) -> World:
    """Of the first words of paragraphs of WikiText-2."""
    public, private = (
        Corpus.from_texts(
            [" ".join(line.split()[:12]) for line in lines(run, f"wikitext2/wiki.{part}.tokens")
             if len(line.split()) >= 30][: run.size(SENTENCES, 200)]
        )
        for part in ("test", "valid")
    )  # fmt: skip
    return World.of(public, private, reserved)


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


def audited(asked: Training, world: World) -> CanaryAudit:
    """The audit of a training."""
    canaries = world.canaries(asked)
    planted, manifest = plant(world.private, canaries, seed=asked.seed, vocabulary=world.vocabulary)
    model, claimed = world.model(), asked.claim if math.isfinite(asked.claim) else None
    mechanism = {"sample_rate": asked.sample_rate, "steps": asked.steps}
    noise = 0.0
    if claimed:
        noise = noise_for(epsilon=claimed, delta=DELTA, accountant="pld", **mechanism)
    learn(model, whole_batch(planted, world.vocabulary), asked, noise)
    return audit_canaries(
        model, manifest.canaries, delta=DELTA, reference=world.model(), claimed=claimed,
        mechanism=Curves(asked.sample_rate, asked.steps) if claimed else None,
    )  # fmt: skip


def learn(model: LanguageModel, batch: Batch, asked: Training, noise: float) -> None:
    """DP-SGD on batches that every sequence joins by chance."""
    rows, chance = len(batch.inputs), np.random.default_rng([asked.seed, 7])
    expected = round(rows * asked.sample_rate)
    step = DPSGDStep(
        noise_multiplier=noise * asked.honesty, max_grad_norm=1.0, expected_units=expected,
        sequence_length=1, physical_batch_size=500,
    )  # fmt: skip
    rate = asked.move * expected / (math.sqrt(asked.steps) * (noise or 1.0))
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for _ in range(asked.steps):
        drawn = np.flatnonzero(chance.random(rows) < asked.sample_rate)
        step(model, batch.select(torch.from_numpy(drawn)), None)
        optimizer.step()


def gaussian_mu(epsilon: float) -> float:
    """The mu of a Gaussian mechanism with some epsilon."""
    return float(brentq(lambda mu: GAUSSIAN.epsilon(mu, DELTA) - epsilon, 1e-3, 20))


def told(asked: Training, world: World) -> Row:
    """What one training's audit says."""
    audit = audited(asked, world)
    area = min(max(audit.separation.value, 1e-9), 1 - 1e-9)
    return {
        "one_run": audit.one_run.epsilon,
        "f_dp": audit.f_dp.epsilon,
        "threshold": audit.threshold.epsilon,
        "ceiling": audit.ceiling,
        "mu of scores": math.sqrt(2) * NormalDist().inv_cdf(area),
        "verdict": audit.verdict,
    }


# Parts -------------------------------------------------------------------------------------------


def kinds(run: Run) -> list[Row]:
    """Every kind of canary, or one, at every claim; means over trainings."""
    world, rows = made_world(run, run.size(1000, 200)), []
    chosen = [one for one in KINDS if run.options.kind in (None, one[0])]
    for kind, length in run.size(chosen, chosen[-1:]):
        for claim in run.size(CLAIMS, (4.0,)):
            asked = Training(kind=kind, length=length, claim=claim, canaries=run.size(1000, 100))
            title = f"{kind}, {length} tokens"
            audits = run.draw(
                f"{title}, claim {claim:g}",
                lambda seed, asked=asked: told(replace(asked, seed=seed), world),
                range(run.times(3)),
            )
            rows.append({"canaries": title, "claim": claim, **summary(audits)})
            if math.isfinite(claim):
                rows[-1]["mu of claim"] = gaussian_mu(claim)
    return rows


def repeated(honesty: float, trainings: int, run: Run) -> Row:
    """Trainings with the strongest canaries, and what is said of them."""
    canaries = run.options.canaries or run.size(5000, 200)
    world = made_world(run, canaries)
    asked = Training(canaries=canaries, honesty=honesty)
    audits = run.draw(
        f"honesty {honesty:g}, {canaries} canaries",
        lambda seed: told(replace(asked, seed=1000 + seed), world),
        range(run.times(trainings)),
    )
    return {"noise": honesty, "canaries": canaries, **summary(audits)}


def sampled(run: Run) -> list[Row]:
    """Batches of a tenth of the text, a hundred of them."""
    world, rows = made_world(run, run.size(1000, 200)), []
    for honesty in (1.0, 0.5):
        asked = Training(
            honesty=honesty, sample_rate=0.1, steps=run.size(100, 5), canaries=run.size(1000, 100)
        )
        audits = run.draw(
            f"sampled, honesty {honesty:g}",
            lambda seed, asked=asked: told(replace(asked, seed=seed), world),
            range(run.times(5)),
        )
        rows.append({"noise": honesty, **summary(audits)})
    return rows


def summary(audits: Sequence[Row]) -> Row:
    """Means with the least and the most, and the verdicts."""
    columns = ("one_run", "f_dp", "threshold", "ceiling", "mu of scores")
    found: Row = {"trainings": len(audits)}
    for name in columns:
        values = [audit[name] for audit in audits]
        found[name] = float(np.mean(values))
        if len(values) > 1 and name not in ("ceiling", "mu of scores"):
            found[f"{name}, least and most"] = [min(values), max(values)]
    said = [str(audit["verdict"]) for audit in audits]
    return found | {"verdicts": {one: said.count(one) for one in sorted(set(said))}}


def simulated(run: Run) -> list[Row]:
    """How often bounds are above the truth, and above a claim of twice the noise."""
    rows, runs = [], run.times(5000, 2)
    for canaries in run.size((1000, 5000), (100,)):
        for claim in CLAIMS[:-1]:
            for honesty in (1.0, 0.5):
                rows.append(gaussian(runs, canaries, claim, honesty))
        rows += [randomized_response(runs, canaries, true) for true in (0.5, 1.0, 2.0, 4.0)]
    return rows


def gaussian(runs: int, canaries: int, claim: float, honesty: float) -> Row:
    """Audits of a mechanism whose noise is some share of what the claim needs."""
    generator, mu, bounds = np.random.default_rng(0), gaussian_mu(claim) / honesty, []
    for _ in range(runs):
        heads = generator.random(canaries) < 0.5
        scores = heads * mu + generator.normal(size=canaries)
        bounds.append(both_bounds(scores, heads, 0.975))
    case = {"mechanism": "gaussian", "canaries": canaries, "epsilon": claim, "noise": honesty}
    return case | above(bounds, claim, claim)


def randomized_response(runs: int, canaries: int, true: float) -> Row:
    """Audits of answers that are right with odds of e to the epsilon."""
    generator, bounds = np.random.default_rng(1), []
    for _ in range(runs):
        heads = generator.random(canaries) < 0.5
        honest = generator.random(canaries) < 1 / (1 + math.exp(-true))
        scores = (heads == honest) + generator.random(canaries) / 2
        bounds.append(both_bounds(scores, heads, 0.95))
    # The Gaussian curve that the mechanism's own touches is what the family can say of it.
    touching = GAUSSIAN.epsilon(2 * NormalDist().inv_cdf(1 / (1 + math.exp(-true))), DELTA)
    case = {"mechanism": "randomized response", "canaries": canaries, "epsilon": true}
    return case | {"touching": touching} | above(bounds, true, touching)


def both_bounds(scores: np.ndarray, heads: np.ndarray, confidence: float) -> tuple[float, float]:
    """Of fair coins alone, and of a Gaussian mechanism as well."""
    given = {"delta": DELTA, "confidence": confidence}
    one, other = (
        bound(scores[heads], scores[~heads], **given).epsilon
        for bound in (one_run_epsilon, f_dp_epsilon)
    )
    return one, other


def above(bounds: Sequence[tuple[float, float]], truth: float, family: float) -> Row:
    """Means of both bounds, and how often each exceeds what is true of it."""
    table = np.array(bounds)
    return {
        "runs": len(table), "one_run": table[:, 0].mean(), "f_dp": table[:, 1].mean(),
        "one_run above": (table[:, 0] > truth).mean(), "f_dp above": (table[:, 1] > family).mean(),
    }  # fmt: skip


def options(parser: Any) -> None:
    """Canaries."""
    parser.add_argument("--kind", choices=sorted({kind for kind, *_ in KINDS}))
    parser.add_argument("--canaries", type=int, help="coins of `broken` and `right`")


PARTS = {
    "kinds": kinds,
    "broken": partial(repeated, 0.5, 20),
    "right": partial(repeated, 1.0, 30),
    "sampled": sampled,
    "simulated": simulated,
}

if __name__ == "__main__":
    main("measured_epsilon", __doc__, PARTS, options)
