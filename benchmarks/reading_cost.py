"""What reading texts costs beyond the forward passes and products that it cannot do without.

- `ranks`: ranks of true words relative to the fastest of several shapes of the output product
  alone, and a full argsort of the same logits relative to it; memory for 600 and for 6,000 words.
- `statistics`: all token statistics of texts relative to a plain forward pass over the same
  batches, ten scores relative to one, and one score text by text relative to both. `--device cuda`
  takes a network of SmolLM2-135M's shape in bfloat16.
- `callback`: a measurement of `LeakageCallback` in steps of the training that it interrupts, and
  from how many steps on the first and the last one take 3 %. LoRA of rank 16 on steps of 8 chats,
  40 canaries, 256 references; of `--model FOLDER` on `--chats FILE`, or of a small random network.

    python benchmarks/reading_cost.py [ranks] [statistics] [callback]
"""

import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from corpora import invented
from harness import Row, Run, Work, main, paired, peak_mib, seconds
from networks import gpt2, llama, loss_of, padded
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
"""Vocabulary, width of what the head reads, words."""
SHAPES = ((256, 1024), (512, 512), (512, 1024), (1024, 512), (1024, 1024), (512, 50_000))
"""Rows and columns of the products alone."""
SORTED_AT_ONCE = 64


def ranks(run: Run) -> list[Row]:
    """Time of ranks and of sorting relative to the product alone, by vocabulary and width."""
    rows = [rank_case(run, *case) for case in run.size(CASES, ((300, 16, 128),))]
    if not run.quick:
        few, many = (peak_mib(partial(rank_words, n)) for n in (600, 6000))
        rows.append({"MiB for 600 words": few, "MiB for 6,000": many})
    return rows


@torch.no_grad()
def rank_case(run: Run, vocabulary: int, width: int, n: int) -> Row:
    """One vocabulary and head."""
    head, hidden = nn.Linear(width, vocabulary), torch.randn(n, width)
    truth = frequent_words(n, vocabulary)
    counter = LinearRanks(head)
    exact = ranks_in(head(hidden[:SORTED_AT_ONCE]), truth[:SORTED_AT_ONCE])
    off = (counter(hidden[:SORTED_AT_ONCE], truth[:SORTED_AT_ONCE])["ranks"] - exact).abs().max()
    assert int(off) <= 1  # products of other shapes may differ in a last bit
    works: dict[str, Work] = {"ranks": lambda: counter(hidden, truth)}
    works |= {f"{r}x{c}": partial(products, hidden, head, r, c) for r, c in SHAPES}
    told = paired(works, run.times(9))
    alone = min(row["seconds"] for name, row in told.items() if name != "ranks")
    few = max(SORTED_AT_ONCE, n // 8)
    sorting = seconds(lambda: ranks_by_sorting(hidden[:few], head, truth[:few])) * n / few
    taken = told["ranks"]["seconds"]
    return {
        "vocabulary": vocabulary, "width": width, "ranks": taken / alone,
        "argsort": sorting / alone, "words a second": round(n / taken),
    }  # fmt: skip


def frequent_words(n: int, vocabulary: int) -> Tensor:
    """Ids as text has them, the commonest first."""
    return (1 / torch.rand(n)).pow(1.2).long() % vocabulary


def rank_words(n: int) -> Work:
    """Ranks of n words over a vocabulary of 50,000."""
    head, hidden, truth = nn.Linear(128, 50_000), torch.randn(n, 128), frequent_words(n, 50_000)
    return lambda: LinearRanks(head)(hidden, truth)


@torch.no_grad()
def products(hidden: Tensor, head: nn.Linear, rows: int, columns: int) -> None:
    """The output product and nothing else, into memory that is used again."""
    out = torch.empty(rows * min(columns, head.out_features))
    slices = [part.t() for part in head.weight.split(columns)]
    for some in hidden.split(rows):
        for part in slices:
            torch.mm(some, part, out=out[: len(some) * part.shape[1]].view(len(some), -1))


@torch.no_grad()
def ranks_by_sorting(hidden: Tensor, head: nn.Linear, truth: Tensor) -> Tensor:
    """Ranks as places in a stable sort of all words."""
    places = []
    for some, true in zip(hidden.split(SORTED_AT_ONCE), truth.split(SORTED_AT_ONCE), strict=True):
        order = head(some).argsort(dim=1, descending=True, stable=True)
        places.append((order == true[:, None]).int().argmax(1) + 1)
    return torch.cat(places)


# Statistics of texts -----------------------------------------------------------------------------

ROWS = 2**12
"""Tokens whose logits are computed together."""
SMOLLM2 = {
    "width": 576, "inner": 1536, "layers": 30, "heads": 9, "num_key_value_heads": 3,
    "vocab_size": 49_152, "tie_word_embeddings": True,
}  # fmt: skip


def statistics(run: Run) -> list[Row]:
    """Time of each way to score texts, relative to a forward pass over all of them."""
    device = run.options.device
    model = statistics_model(run, device)
    chance = np.random.default_rng(0)
    count, longest = run.size((200, 200), (20, 40))
    texts = [
        chance.integers(0, model.vocab_size, length).tolist()
        for length in chance.integers(10, longest + 1, count)
    ]
    works = {
        "forward": lambda: forward(model, texts),
        "statistics": lambda: token_statistics(model, texts),
        "ten scores": lambda: ten_scores(model, texts),
        "one score, text by text": lambda: losses(model, texts),
    }
    found = paired(works, run.times(3), device)
    tokens = sum(map(len, texts))
    return [
        {"work": name, **row, "tokens a second": round(tokens / row["seconds"])}
        for name, row in found.items()
    ]


def statistics_model(run: Run, device: str) -> Any:
    """A GPT-2 of four layers of 96 on a CPU, SmolLM2's shape on a GPU."""
    corpus = Corpus.from_texts(invented(500, seed=0))
    vocabulary = SubwordVocabulary.train_bpe(corpus, size=run.size(2048, 300))
    if device != "cpu":
        return llama(vocabulary, **SMOLLM2).to(device, torch.bfloat16)
    return gpt2(vocabulary, width=96, layers=4, heads=4, positions=256)


@torch.no_grad()
def forward(model: Any, texts: list[list[int]]) -> None:
    """Forward passes over the batches of `token_statistics`, head and all."""
    for span in read(model, pack(texts)):
        for part in span.hidden.split(ROWS):
            model.predict(part)


@torch.no_grad()
def losses(model: Any, texts: list[list[int]]) -> list[float]:
    """One score as it is written first: a text, a forward pass, a mean."""
    found = []
    for ids in texts:
        tokens = torch.tensor([[model.first_token, *ids]], device=model.device)
        found.append(-float(cross_entropy(model(tokens[:, :-1])[0][0].float(), tokens[0, 1:])))
    return found


def ten_scores(model: Any, texts: list[list[int]]) -> Mapping[str, Any]:
    """Every score of texts, from one pass."""
    told = token_statistics(model, texts)
    found = {name: SCORES[name](target=told, base=told) for name in SCORES}
    return found | {"zlib": zlib_score(told, ["x" * len(ids) for ids in texts])}


# LeakageCallback ---------------------------------------------------------------------------------

BUDGET = 0.03
CHAT = [
    {"role": "user", "content": "When does the train to the coast leave on Sunday morning?"},
    {"role": "assistant", "content": "At a quarter past nine, from the second platform."},
]
TEMPLATE = (
    "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
)


def callback(run: Run) -> list[Row]:
    """Seconds of a step and of measurements between steps, in both precisions."""
    from datasets import Dataset
    from peft import LoraConfig, get_peft_model

    from vestige.integrations.planting import plant

    network, tokenizer = chat_model(run.options.model)
    lora = LoraConfig(r=16, target_modules="all-linear", task_type="CAUSAL_LM")
    model = get_peft_model(network, lora).train()
    data = Dataset.from_dict({"messages": [CHAT] * 100})
    if run.options.chats is not None:
        data = Dataset.from_json(str(run.options.chats))
    texts = [tokenizer.apply_chat_template(one, return_dict=False) for one in data["messages"][:8]]
    labels, rows = padded([ids[:256] for ids in texts]), []
    with tempfile.TemporaryDirectory() as folder:
        canaries = Path(folder) / "canaries"
        plant(data, out=canaries, coin_flip=run.size(40, 8))
        for precision in ("float32", "bfloat16"):
            args = SimpleNamespace(bf16=precision == "bfloat16", fp16=False)
            trainer = SimpleNamespace(model=model, processing_class=tokenizer, args=args)
            rows.append({"precision": precision, **callback_cost(run, trainer, labels, canaries)})
    return rows


def callback_cost(run: Run, trainer: Any, labels: Tensor, canaries: Path) -> Row:
    """Of one precision."""
    from vestige.integrations.trainer_audit import Baseline, TrainerAudit, training_precision

    learning = [one for one in trainer.model.parameters() if one.requires_grad]
    optimizer = torch.optim.AdamW(learning, lr=0.0)

    def step() -> None:
        with training_precision(trainer.args, trainer.model):
            loss = loss_of(trainer.model, labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    references = run.size(256, 100)
    measurement = TrainerAudit(trainer, canaries=canaries, references=references, seed=0)
    works: dict[str, Callable[[], object]] = {
        "step": step,
        "measurement": lambda: measurement.measure(Baseline(), last=False),
        "last measurement": lambda: measurement.measure(Baseline(), last=True),
    }
    told = {name: row["seconds"] for name, row in paired(works, run.times(3)).items()}
    both = told["measurement"] + told["last measurement"]
    return {
        "step, seconds": told["step"],
        "measurement, steps": told["measurement"] / told["step"],
        "last measurement, steps": told["last measurement"] / told["step"],
        "within 3 % from steps": both / told["step"] / BUDGET,
    }


def chat_model(folder: Path | None) -> tuple[Any, Any]:
    """(network, tokenizer) of a folder, or small random ones."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    if folder is not None:
        network = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        return network, AutoTokenizer.from_pretrained(folder)
    words = Corpus.from_texts([message["content"] for message in CHAT])
    vocabulary = SubwordVocabulary.train_bpe(words, size=300)
    vocabulary.tokenizer.chat_template = TEMPLATE
    model = llama(vocabulary, width=64, inner=128, layers=2, heads=2, vocab_size=512)
    return model.network, vocabulary.tokenizer


def options(parser: Any) -> None:
    """Models and devices of the parts."""
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"), help="of `statistics`")
    parser.add_argument("--model", type=Path, help="a folder with a chat template, for `callback`")
    parser.add_argument("--chats", type=Path, help='JSONL with "messages", for `callback`')


PARTS = {"ranks": ranks, "statistics": statistics, "callback": callback}

if __name__ == "__main__":
    main("reading_cost", __doc__, PARTS, options)
