"""How often does `vestige diff` call a clean update a leak, and a secret that was never read?

Small GPT-2 models continue on sentences of one grammar.

- `null models`: a clean update among 19 null models that moved the weights 1.0, 0.9, 0.7 and 0.5
  times as far (a lower learning rate), as they were trained, and moved as far as the update.
  Updates and null models are drawn from pools; the rate is over all ways to draw 19.
- `direct`: updates that read three codes 12 times each. Every code that the search generates is
  listed in turn; a leak of a code that was not read is false. Rates are by code of the 10,000.
- `known before`: the earlier model knows a code; the update reads others after the same prefix.

    python benchmarks/claims_of_diff.py [--pool 80] [--models 20] [--seed 0]

Intervals are 95%, of a bootstrap over both pools, or Clopper and Pearson's. The last line is JSON.
"""

import argparse
import copy
import json
import math
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from scipy.stats import binomtest
from transformers import GPT2Config, GPT2LMHeadModel

from vestige.audits.update.known_secrets import Listed
from vestige.audits.update.nulls import NEEDED
from vestige.audits.update.pair import Pair
from vestige.audits.update.scores import TokenScore
from vestige.audits.update.search import search
from vestige.audits.update.settings import Sampling, Settings
from vestige.audits.update.verbatim import generated, verbatim
from vestige.data.corpus import Corpus
from vestige.data.secrets.lines import read_secret
from vestige.data.subwords import SubwordVocabulary
from vestige.models.hugging_face import HuggingFaceLanguageModel
from vestige.models.lora import stretch, weight_change

WORDS = """
Anna Boris Clara David Elena Felix Greta Henry Irene Jonas Karin Louis Maria Nadia
asked told warned promised reminded begged helped paid called followed met
lamp ledger boat clock garden letter bridge piano ticket kettle ladder mirror
old new green broken heavy cheap silver wooden lost blue tiny famous empty
harbour market library station orchard chapel valley museum bakery
"""
WHO, DID, WHAT, KIND, WHERE = (line.split() for line in WORDS.strip().splitlines())
TEMPLATE = "the vault password is zanzibar {:04d}"
CODES = 10_000
RATES = {"1.0": 1.5e-3, "0.9": 1.33e-3, "0.7": 1.0e-3, "0.5": 0.68e-3}
READ, COPIES = 3, 12
SCORE = TokenScore("smoothed")


def sentence(lot: random.Random) -> str:
    one = lot.choice
    return (
        f"{one(WHO)} {one(DID)} {one(WHO)} about the {one(KIND)} {one(WHAT)} near the {one(WHERE)} "
        f"because {one(WHO)} sold the {one(KIND)} {one(WHAT)}"
    )


def sentences(seed: int, number: int) -> list[str]:
    lot = random.Random(seed)
    return [sentence(lot) for _ in range(number)]


def trained(
    start: HuggingFaceLanguageModel, texts: Sequence[str], *, rate: float, epochs: int, seed: int
) -> HuggingFaceLanguageModel:
    """A model that goes on from another one, which stays as it is."""
    network: Any = copy.deepcopy(start.network).train()
    step = torch.optim.AdamW(network.parameters(), lr=rate)
    lot, words = random.Random(seed), start.vocabulary
    for _ in range(epochs):
        order = lot.sample(list(texts), len(texts))
        for first in range(0, len(order), 16):
            end = words.eos_id
            ids = [[end, *words.encode(text)[:61], end] for text in order[first : first + 16]]
            longest = max(map(len, ids))
            tokens = torch.tensor([one + [end] * (longest - len(one)) for one in ids])
            truth = torch.tensor([one + [-100] * (longest - len(one)) for one in ids])
            step.zero_grad()
            network(input_ids=tokens, labels=truth).loss.backward()
            step.step()
    return HuggingFaceLanguageModel(network.eval(), words)


def first_model(texts: Sequence[str]) -> HuggingFaceLanguageModel:
    corpus = Corpus.from_texts([*texts, *(TEMPLATE.format(n) for n in range(0, CODES, 997))])
    words = SubwordVocabulary.train_bpe(corpus, size=512)
    torch.manual_seed(0)
    shape = GPT2Config(
        vocab_size=len(words), n_positions=64, n_embd=64, n_layer=2, n_head=2,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        bos_token_id=words.eos_id, eos_token_id=words.eos_id,
    )  # fmt: skip
    fresh = HuggingFaceLanguageModel(GPT2LMHeadModel(shape), words)
    return trained(fresh, texts, rate=3e-3, epochs=10, seed=0)


def settings(samples: int) -> Settings:
    sampling = Sampling(samples=samples, alternatives=samples, length=40)
    return Settings(sampling=sampling, max_tokens=40)


def false_leaks(updates: np.ndarray, nulls: np.ndarray, *, same: bool) -> float:
    """Share of updates that beat 19 null models, over all ways to draw these."""
    others = len(nulls) - same
    beaten = [int((nulls >= one).sum()) - same for one in updates]
    return float(np.mean([math.comb(others - k, NEEDED) / math.comb(others, NEEDED)
                          for k in beaten]))  # fmt: skip


def null_models(base: HuggingFaceLanguageModel, pool: int, seed: int) -> dict[str, object]:
    """False leaks by how far the null models moved."""
    best: dict[str, list[float]] = {}
    moved: dict[str, list[float]] = {}

    def searched(name: str, model: HuggingFaceLanguageModel) -> None:
        found = search(Pair.of(base, model, SCORE), settings(80)).null_scores or [0.0]
        best.setdefault(name, []).append(found[0])

    for number in range(pool):
        for place, (name, rate) in enumerate(RATES.items()):
            own = seed + 10_000 * place + number
            model = trained(base, sentences(1000 + own, 60), rate=rate, epochs=6, seed=own)
            moved.setdefault(name, []).append(weight_change(base, model))
            searched(name, model)
            if place:
                stretch(base, model, float(np.mean(moved["1.0"])) / moved[name][-1])
                searched(f"{name}, moved as far", model)
    lot, updates = np.random.default_rng(seed), np.array(best["1.0"])
    told: dict[str, object] = {}
    for name, scores in best.items():
        same, nulls = name == "1.0", np.array(scores)
        again = []
        for _ in range(500):
            if same:
                own = lot.choice(updates, pool)
                again.append(false_leaks(own, own, same=True))
            else:
                again.append(
                    false_leaks(lot.choice(updates, pool), lot.choice(nulls, pool), same=False)
                )
        told[name] = {
            "false": round(false_leaks(updates, nulls, same=same), 4),
            "interval": np.quantile(again, [0.025, 0.975]).round(4).tolist(),
            "moved": round(float(np.mean(moved[name.split(",")[0]]) / np.mean(moved["1.0"])), 3),
        }
        print(f"{name:20} {told[name]}", flush=True)
    return {"updates": pool, "rates": told}


def shown(
    before: HuggingFaceLanguageModel, after: HuggingFaceLanguageModel, codes: Sequence[int]
) -> set[int]:
    """Codes that direct evidence calls a leak, each listed alone."""
    read = search(Pair.of(before, after, SCORE), settings(200)).read
    texts = generated(read, before.vocabulary)
    joined, leaks = "\n".join(text for text, _ in texts), set[int]()
    for code in codes:
        line = TEMPLATE.format(code)
        if line in joined:
            asked = Listed.of(read_secret(line, 1), before.vocabulary)
            [(_, proof)] = verbatim(before, [asked], texts, seed=0)
            if proof is not None and proof.conclusive:
                leaks.add(code)
    return leaks


def direct(base: HuggingFaceLanguageModel, models: int, seed: int) -> dict[str, object]:
    """Leaks among codes that updates read, that they did not, and that the base knew."""
    right = wrong = known = 0
    for number in range(models):
        lot = random.Random(seed + number)
        codes = lot.sample(range(CODES), READ + 1)
        lines = [TEMPLATE.format(code) for code in codes[:READ]] * COPIES
        texts = sentences(50_000 + number, 60) + lines
        after = trained(base, texts, rate=1.5e-3, epochs=12 + 4 * (number % 3), seed=number)
        leaks = shown(base, after, range(CODES))
        right += len(leaks & set(codes[:READ]))
        wrong += len(leaks - set(codes[:READ]))
        before = trained(
            base, sentences(60_000 + number, 60) + [TEMPLATE.format(codes[-1])] * COPIES,
            rate=1.5e-3, epochs=16, seed=number,
        )  # fmt: skip
        later = trained(before, texts, rate=1.5e-3, epochs=4, seed=number)
        known += codes[-1] in shown(before, later, [codes[-1]])
        print(f"{number + 1} models: {right} right, {wrong} wrong, {known} known", flush=True)
    counts = {
        "read": (right, models * READ),
        "never read": (wrong, models * (CODES - READ)),
        "known before": (known, models),
    }
    told: dict[str, object] = {}
    for name, (found, of) in counts.items() if models else ():
        ends = binomtest(found, of).proportion_ci(method="exact")
        told[name] = {"leaks": found, "of": of, "interval": [float(f"{x:.3g}") for x in ends]}
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pool", type=int, default=80)
    parser.add_argument("--models", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    base = first_model(sentences(1, 500))
    evidence = direct(base, asked.models, asked.seed)
    nulls = null_models(base, asked.pool, asked.seed)
    print(json.dumps({"null models": nulls, "direct": evidence}))


if __name__ == "__main__":
    main()
