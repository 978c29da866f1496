"""Tokens a second of all token statistics of texts, beside plain forward passes, on a GPU.

Random weights in bfloat16 of the shapes of SmolLM2-135M and of a Llama of 1B, over random texts of
10 to 400 tokens; with `--tiny` a small model on the CPU, to see that it runs. Measured:

forward      a forward pass over the same batches, whose logits nobody reads
one by one   a score as it is written first: a text, a forward pass, a mean; of some texts only
statistics   what ten scores are made of (`token_statistics`)
ten scores   the statistics, and then every registered score

    python benchmarks/text_statistics_gpu.py [--seconds 20] [--tiny]

Each is repeated for so many seconds, and at least once; the whole takes under ten minutes.
"""

import argparse
import time

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from vestige.audits.membership.text_scores import SCORES
from vestige.data.corpus import Corpus
from vestige.data.subwords import SubwordVocabulary
from vestige.models.hugging_face import HuggingFaceLanguageModel
from vestige.models.reading import pack, read
from vestige.models.token_statistics import token_statistics

SHAPES = {
    "SmolLM2-135M": {"vocab_size": 49_152, "hidden_size": 576, "intermediate_size": 1536,
                     "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3,
                     "tie_word_embeddings": True},
    "Llama 1B": {"vocab_size": 128_256, "hidden_size": 2048, "intermediate_size": 8192,
                 "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8,
                 "tie_word_embeddings": True},
}  # fmt: skip
TINY = {
    "tiny": {"vocab_size": 2_000, "hidden_size": 32, "intermediate_size": 64,
             "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2},
}  # fmt: skip


ROWS = 2**12
"""Tokens whose logits are made together."""


def random_model(shape, device):
    """A Llama whose weights are drawn where it will be."""
    from transformers import LlamaConfig, LlamaForCausalLM

    vocabulary = SubwordVocabulary.train_bpe(Corpus.from_texts(["a b c"] * 5), size=300)
    torch.manual_seed(0)
    with torch.device(device):
        network = LlamaForCausalLM(LlamaConfig(max_position_embeddings=2048, **shape))
    return HuggingFaceLanguageModel(network.to(torch.bfloat16), vocabulary).eval()


@torch.no_grad()
def forward(model, texts):
    """Forward passes over the batches of `token_statistics`, head and all."""
    for span in read(model, pack(texts)):
        for part in span.hidden.split(ROWS):
            model.predict(part)


@torch.no_grad()
def one_by_one(model, texts):
    """The loss of each text by a pass of its own."""
    found = []
    for ids in texts:
        read = torch.tensor([[model.first_token, *ids]], device=model.device)
        found.append(-float(cross_entropy(model(read[:, :-1])[0][0].float(), read[0, 1:])))
    return found


def ten_scores(model, texts):
    """Every registered score, from one pass."""
    told = token_statistics(model, texts)
    return {name: SCORES[name](target=told, base=told) for name in SCORES}


def tokens_a_second(work, model, texts, seconds):
    """Of repeats for so many seconds, after one that does not count."""
    tokens = sum(map(len, texts))
    work(model, texts[: max(1, len(texts) // 10)])
    done, began = 0, time.perf_counter()
    while not done or time.perf_counter() - began < seconds:
        work(model, texts)
        if model.device.type == "cuda":
            torch.cuda.synchronize()
        done += tokens
    return done / (time.perf_counter() - began)


def measure(name, shape, texts, *, device, seconds):
    """A row of the table."""
    model = random_model(shape, device)
    work = {
        "forward": (forward, texts),
        "one by one": (one_by_one, texts[: max(1, len(texts) // 10)]),
        "statistics": (lambda m, t: token_statistics(m, t), texts),
        "ten scores": (ten_scores, texts),
    }
    told = {what: tokens_a_second(run, model, some, seconds) for what, (run, some) in work.items()}
    peak = torch.cuda.max_memory_allocated() / 2**30 if device == "cuda" else None
    cells = [f"{rate:,.0f}" for rate in told.values()]
    ratios = (told["forward"] / told["statistics"], told["ten scores"] / told["one by one"])
    cells += [f"{ratio:.2f}" for ratio in ratios] + ["" if peak is None else f"{peak:.1f}"]
    print("| " + " | ".join([name, *cells]) + " |", flush=True)
    return told


def main(words=None):
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--seconds", type=float, default=20.0)
    asked.add_argument("--texts", type=int, default=2_000)
    asked.add_argument("--tiny", action="store_true", help="a small model on the CPU")
    given = asked.parse_args(words)
    if not given.tiny and not torch.cuda.is_available():
        asked.error("no GPU is here: give --tiny for a small model on the CPU")
    device, shapes = ("cpu", TINY) if given.tiny else ("cuda", SHAPES)
    chance = np.random.default_rng(0)
    least = min(shape["vocab_size"] for shape in shapes.values())
    texts = [chance.integers(0, least, n).tolist() for n in chance.integers(10, 401, given.texts)]
    if given.tiny:
        texts = texts[:20]
    where = "a CPU" if given.tiny else torch.cuda.get_device_name()
    print(f"{len(texts):,} texts, {sum(map(len, texts)):,} tokens, on {where}; tokens a second")
    heads = ("model", "forward", "one by one", "statistics", "ten scores",
             "statistics over forward, in time", "ten scores over one by one, in speed",
             "GiB")  # fmt: skip
    print("| " + " | ".join(heads) + " |\n|" + " --- |" * len(heads))
    return {
        name: measure(name, shape, texts, device=device, seconds=given.seconds)
        for name, shape in shapes.items()
    }


if __name__ == "__main__":
    main()
