"""Cost of ranks and of token statistics, relative to the products and passes that they need.

- `ranks`: ranks of true words relative to the fastest of several shapes of the output product
  alone, and a full argsort of the same logits relative to it; memory for 600 and for 6,000 words.
- `statistics`: all token statistics of texts relative to a forward pass over the same batches, ten
  scores relative to one, and one score text by text relative to both. `--device cuda` takes a
  network of SmolLM2-135M's shape in bfloat16.

    python benchmarks/reading_cost.py [ranks] [statistics]
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from corpora import invented
from harness import Row, Run, Task, main, paired, peak_mib, seconds
from networks import gpt2, llama
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from vestige.audits.membership.text_scores import SCORES, zlib_score
from vestige.data.corpus import Corpus
from vestige.data.subwords import SubwordVocabulary
from vestige.models.predictions import ranks_in
from vestige.models.ranks import LinearRanks
from vestige.models.reading import pack, read
from vestige.models.token_statistics import token_statistics

# Ranks -------------------------------------------------------------------------------------------

CASES = ((5_000, 128, 4096), (5_000, 512, 2048), (50_000, 128, 1024), (50_000, 512, 512))
"""Vocabulary, width of the head's input, words."""
SHAPES = ((256, 1024), (512, 512), (512, 1024), (1024, 512), (1024, 1024), (512, 50_000))
"""Rows and columns of a part of the product alone."""
SORTED_ROWS = 64
"""Words sorted at once."""


def ranks(run: Run) -> list[Row]:
    """Time of ranks and of sorting relative to the product alone, by vocabulary and width."""
    rows = [rank_case(run, *case) for case in run.size(CASES, ((300, 16, 128),))]
    if not run.quick:
        few, many = (peak_mib(partial(rank_words, n)) for n in (600, 6000))
        rows.append({"MiB for 600 words": few, "MiB for 6,000": many})
    return rows


@torch.no_grad()
def rank_case(run: Run, vocabulary: int, width: int, n: int) -> Row:
    """One vocabulary and width."""
    head, hidden = nn.Linear(width, vocabulary), torch.randn(n, width)
    truth, counter = frequent_words(n, vocabulary), LinearRanks(head)
    first = slice(SORTED_ROWS)
    exact = ranks_in(head(hidden[first]), truth[first])
    difference = (counter(hidden[first], truth[first])["ranks"] - exact).abs().max()
    assert int(difference) <= 1  # products of other shapes may differ in a last bit
    tasks: dict[str, Task] = {"ranks": lambda: counter(hidden, truth)}
    tasks |= {f"{rows}x{columns}": partial(product, hidden, head, rows, columns)
              for rows, columns in SHAPES}  # fmt: skip
    times = {name: row["seconds"] for name, row in paired(tasks, run.times(9)).items()}
    ranking = times.pop("ranks")
    fastest, few = min(times.values()), max(SORTED_ROWS, n // 8)
    sorting = seconds(lambda: ranks_by_sorting(hidden[:few], head, truth[:few])) * n / few
    return {
        "vocabulary": vocabulary, "width": width, "ranks": ranking / fastest,
        "argsort": sorting / fastest, "words a second": round(n / ranking),
    }  # fmt: skip


def frequent_words(n: int, vocabulary: int) -> Tensor:
    """Ids with the frequencies of a text, the most frequent first."""
    return (1 / torch.rand(n)).pow(1.2).long() % vocabulary


def rank_words(n: int) -> Task:
    """Ranks of n words over a vocabulary of 50,000."""
    head, hidden, truth = nn.Linear(128, 50_000), torch.randn(n, 128), frequent_words(n, 50_000)
    return lambda: LinearRanks(head)(hidden, truth)


@torch.no_grad()
def product(hidden: Tensor, head: nn.Linear, rows: int, columns: int) -> None:
    """The output product alone, into memory that is reused."""
    out = torch.empty(rows * min(columns, head.out_features))
    weights = [part.t() for part in head.weight.split(columns)]
    for part in hidden.split(rows):
        for weight in weights:
            size = len(part) * weight.shape[1]
            torch.mm(part, weight, out=out[:size].view(len(part), -1))


@torch.no_grad()
def ranks_by_sorting(hidden: Tensor, head: nn.Linear, truth: Tensor) -> Tensor:
    """Ranks as positions in a stable sort of all words."""
    positions = []
    for part, true in zip(hidden.split(SORTED_ROWS), truth.split(SORTED_ROWS), strict=True):
        order = head(part).argsort(dim=1, descending=True, stable=True)
        positions.append((order == true[:, None]).int().argmax(1) + 1)
    return torch.cat(positions)


# Token statistics --------------------------------------------------------------------------------

LOGIT_ROWS = 2**12
"""Tokens whose logits are computed together."""
SMOLLM2 = {
    "width": 576, "inner": 1536, "layers": 30, "heads": 9, "num_key_value_heads": 3,
    "vocab_size": 49_152, "tie_word_embeddings": True,
}  # fmt: skip


def statistics(run: Run) -> list[Row]:
    """Time of each way to score texts, relative to a forward pass over all of them."""
    model, rng = statistics_model(run), np.random.default_rng(0)
    count, longest = run.size((200, 200), (20, 40))
    lengths = rng.integers(10, longest + 1, count)
    texts = [rng.integers(0, model.vocab_size, length).tolist() for length in lengths]
    tasks = {
        "forward": lambda: forward(model, texts),
        "statistics": lambda: token_statistics(model, texts),
        "ten scores": lambda: ten_scores(model, texts),
        "one score, text by text": lambda: losses(model, texts),
    }
    times = paired(tasks, run.times(3))
    tokens = int(lengths.sum())
    return [
        {"work": name, **row, "tokens a second": round(tokens / row["seconds"])}
        for name, row in times.items()
    ]


def statistics_model(run: Run) -> Any:
    """A GPT-2 of four layers of 96 on a CPU, SmolLM2's shape on a GPU."""
    corpus = Corpus.from_texts(invented(500, seed=0))
    vocabulary = SubwordVocabulary.train_bpe(corpus, size=run.size(2048, 300))
    if run.options.device != "cpu":
        return llama(vocabulary, **SMOLLM2).to(run.options.device, torch.bfloat16)
    return gpt2(vocabulary, width=96, layers=4, heads=4, positions=256)


@torch.no_grad()
def forward(model: Any, texts: list[list[int]]) -> None:
    """Forward passes over the batches of `token_statistics`, with the head."""
    for span in read(model, pack(texts)):
        for part in span.hidden.split(LOGIT_ROWS):
            model.predict(part)
    synchronize(model)


@torch.no_grad()
def losses(model: Any, texts: list[list[int]]) -> list[float]:
    """Mean losses, one text and one forward pass at a time."""
    means = []
    for ids in texts:
        tokens = torch.tensor([[model.first_token, *ids]], device=model.device)
        means.append(-float(cross_entropy(model(tokens[:, :-1])[0][0].float(), tokens[0, 1:])))
    return means


def ten_scores(model: Any, texts: list[list[int]]) -> Mapping[str, Any]:
    """All scores of texts from one pass."""
    result = token_statistics(model, texts)
    scores = {name: SCORES[name](target=result, base=result) for name in SCORES}
    return scores | {"zlib": zlib_score(result, ["x" * len(ids) for ids in texts])}


def synchronize(model: Any) -> None:
    """Wait for a GPU."""
    if model.device.type == "cuda":
        torch.cuda.synchronize(model.device)


def options(parser: Any) -> None:
    """The device of `statistics`."""
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))


PARTS = {"ranks": ranks, "statistics": statistics}

if __name__ == "__main__":
    main("reading_cost", __doc__, PARTS, options)
