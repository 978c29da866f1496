"""The cost of ten scores of texts from one pass, beside a forward pass and a pass for each score.

A GPT-2 of the size of those in `text_claims.py`, untrained, and random texts of 10 to 200 tokens.

    python benchmarks/text_statistics.py [--texts 200] [--repeats 3]
"""

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from reproduction.updates.subwords import gpt2
from vestige.audits.membership.text_scores import SCORES, zlib_score
from vestige.data.corpus import Corpus
from vestige.data.subwords import SubwordVocabulary
from vestige.models.reading import pack, read
from vestige.models.token_statistics import token_statistics

ROWS = 2**12
"""Tokens whose logits are made together."""


@torch.no_grad()
def loss_alone(model, texts):
    """One score as it is written first: a text, a forward pass, a mean."""
    return [
        -float(cross_entropy(model(torch.tensor([[model.first_token, *ids[:-1]]]))[0][0],
                             torch.tensor(ids)))
        for ids in texts
    ]  # fmt: skip


@torch.no_grad()
def forward(model, texts):
    """Forward passes over the same batches, whose logits nobody reads."""
    for span in read(model, pack(texts)):
        for part in span.hidden.split(ROWS):
            model.predict(part)


def shortest(repeats, work):
    """Seconds of the quickest of some repeats."""
    taken = []
    for _ in range(repeats):
        started = time.process_time()
        work()
        taken.append(time.process_time() - started)
    return min(taken)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--texts", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    chance = np.random.default_rng(0)
    words = ["".join(chr(97 + one) for one in chance.integers(0, 26, 4)) for _ in range(3000)]
    corpus = Corpus.from_texts([" ".join(chance.choice(words, 60)) for _ in range(500)])
    model = gpt2(SubwordVocabulary.train_bpe(corpus, size=2048), 96, 0).eval()
    texts = [
        chance.integers(0, model.vocab_size, length).tolist()
        for length in chance.integers(10, 201, given.texts)
    ]
    raw = ["x" * len(ids) for ids in texts]

    def one():
        SCORES["loss"](target=token_statistics(model, texts))

    def ten():
        told = token_statistics(model, texts)
        for name in SCORES:
            SCORES[name](target=told, base=told)
        zlib_score(told, raw)

    plain, passes, each, alone = (
        shortest(given.repeats, work)
        for work in (
            lambda: forward(model, texts), one, ten, lambda: loss_alone(model, texts)
        )
    )  # fmt: skip
    count = len(SCORES) + 1
    print(f"{given.texts} texts, {sum(map(len, texts))} tokens")
    print(f"all statistics over a forward pass: {passes / plain:.2f}")
    print(f"{count} scores over one from one pass: {each / passes:.2f}")
    print(f"one score, a text a pass, over the same in batches with all statistics: "
          f"{alone / passes:.2f}")  # fmt: skip
    print(f"{count} scores, each by its own passes text by text, over all from one pass: "
          f"{count * alone / each:.1f}")  # fmt: skip


if __name__ == "__main__":
    main()
