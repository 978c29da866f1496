"""Methods that reconstruct an update: two models and a budget in, ranked rows of tokens out.

| method | what it does | differs from its source |
| --- | --- | --- |
| hybrid | `diff` by default | – |
| pairs and openings | `diff` before samples: all pairs of tokens and openings, extended | as many pairs as the budget allows |
| beams | Zanella-Béguelin et al. (2020), arXiv:1912.07942, section 2.4: one halving beam | the floor spends the budget; near-copies are folded |
| CDD | "Reading the Finetuning Prior" (2026), arXiv:2605.25902: samples from log p' + α (log p' − log p), α = 0.5 | written from its abstract; ranked by the mean log-ratio, where a language model reads them |
| reversed guidance | Wu et al. (2025), arXiv:2505.24379: greedy texts by log p + 2 (log p' − log p), among tokens within 5 nats of the best | not given half of each text: each likely first token replaces it |
| Diff Mining | science-of-finetuning/diffing-toolkit: counts the tokens that are among the 100 whose logits rose most | texts sampled from the model before; a row is one token |
| plain samples | Carlini et al. (2021), arXiv:2012.07805: samples of the later model by log-probability | temperature 1 throughout, no other model |
"""  # noqa: E501

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from reproduction.updates.searches import PAIRS_AND_OPENINGS, beam_search, folded, halving_widths
from vestige.audits.update.pair import Pair
from vestige.audits.update.plan import tokens_of
from vestige.audits.update.prompts import beginning
from vestige.audits.update.scores import TokenScore
from vestige.audits.update.search import search_update
from vestige.audits.update.settings import Sampling, Settings
from vestige.models.protocols import NextToken, State

LENGTH, BLOCK = 48, 100
"""Most tokens of a sampled text, as of the samples of `diff`; texts of a batch."""
BEAM_TOKENS = 10
ALPHA, WEIGHT, MARGIN = 0.5, 2.0, 5.0
RAISED, MINED = 100, 30
"""Of Diff Mining: tokens that are counted at a position, and tokens of a reference text."""
MOST_PAIRS = 2000
FEWEST = 10_000
"""The least budget of the default search."""
SMALL = Settings(
    sampling=Sampling(samples=8, length=16, alternatives=12), openings=2, pairs=0, repaired=2
)
"""The search with a smaller budget."""

Ids = tuple[int, ...]
Mix = Callable[[Tensor, Tensor], Tensor]
"""(n, v) log-probabilities after and before the update -> (n, v) logits to sample from."""


@dataclass(frozen=True)
class SearchRow:
    """A text that the update taught, according to a method.

    Attributes:
        tokens: ids.
        score: rows are ranked by it.
        fragment: listed after all phrases, and never counted as revealed.
    """

    tokens: Ids
    score: float
    fragment: bool = False


@dataclass(frozen=True, kw_only=True)
class Result:
    """Rows, best first, and the tokens that each model read.

    Attributes:
        scores: of the method as a null search; None: those of the rows.
    """

    rows: tuple[SearchRow, ...]
    before: int
    after: int
    scores: tuple[float, ...] | None = None

    @property
    def null_scores(self) -> tuple[float, ...]:
        return tuple(row.score for row in self.rows) if self.scores is None else self.scores


def ranked(scored: Sequence[tuple[Ids, float]], tokens_read: Sequence[int]) -> Result:
    """Each text once with its highest score, best first, ties by token ids."""
    best: dict[Ids, float] = {}
    for tokens, score in scored:
        if tokens:
            best[tokens] = max(score, best.get(tokens, score))
    ordered = sorted((-score, tokens) for tokens, score in best.items())
    rows = tuple(SearchRow(tokens, -negative) for negative, tokens in ordered)
    return Result(rows=rows, before=tokens_read[0], after=tokens_read[1])


# Searches of `diff`, and beams -------------------------------------------------------------------


def hybrid(before: NextToken, after: NextToken, budget: int, seed: int) -> Result:
    """The default search, which reads about the benchmark's budget; a small one below that."""
    settings = Settings(seed=seed) if budget >= FEWEST else replace(SMALL, seed=seed)
    return searched(before, after, settings)


def pairs_and_openings(before: NextToken, after: NextToken, budget: int, seed: int) -> Result:
    """As many pairs of tokens as the budget is expected to allow; deterministic."""
    pair, settings = open_pair(before, after), PAIRS_AND_OPENINGS
    for pairs in range(MOST_PAIRS, 0, -100):
        settings = replace(PAIRS_AND_OPENINGS, pairs=pairs)
        if tokens_of(settings, pair, [beginning(pair)]) <= budget:
            break
    return searched(before, after, settings, fragments=False)


def searched(
    before: NextToken, after: NextToken, settings: Settings, fragments: bool = True
) -> Result:
    """A search of `diff`."""
    result = search_update(open_pair(before, after), settings)
    phrases = [phrase for phrase, _ in result.phrases if len(phrase.phrase) >= settings.min_tokens]
    rows = [
        SearchRow(phrase.phrase, phrase.score) for phrase in phrases if not phrase.is_repetitive
    ]
    if fragments:
        rows += [
            SearchRow(phrase.phrase, phrase.score, fragment=True)
            for phrase, _ in (*result.fragments, *result.samples)
            if not phrase.is_repetitive
        ]
    read_before, read_after = result.tokens
    scores = tuple(result.null_scores)
    return Result(rows=tuple(rows), before=read_before, after=read_after, scores=scores)


def beams(before: NextToken, after: NextToken, budget: int, seed: int) -> Result:
    """A halving beam by the differential score; deterministic."""
    pair = Pair.of(before, after, TokenScore("differential"))
    widths = beam_widths(pair.vocab_size, budget)
    phrases = [
        phrase for phrase, _ in folded(beam_search(pair, widths)) if not phrase.is_repetitive
    ]
    read = 1 + sum(widths[:-1])  # each prefix once, though little memory makes the search repeat
    rows = tuple(SearchRow(phrase.tokens, phrase.score) for phrase in phrases)
    return Result(rows=rows, before=read, after=read)


def beam_widths(vocab_size: int, budget: int) -> list[int]:
    """The halving beam with the highest floor that both models can read within the budget."""
    low, high = 1, vocab_size
    while low < high:
        middle = (low + high + 1) // 2
        read = sum(halving_widths(vocab_size, BEAM_TOKENS, floor=middle)[:-1])
        low, high = (middle, high) if 2 * (read + 1) <= budget else (low, middle - 1)
    return halving_widths(vocab_size, BEAM_TOKENS, floor=low)


# Samples -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Text:
    """A sampled text with each token's log-probability after and before the update."""

    tokens: Ids
    later: tuple[float, ...]
    earlier: tuple[float, ...]

    @property
    def log_ratio(self) -> float:
        """Mean gain of the tokens' log-probability by the update, in nats."""
        return (sum(self.later) - sum(self.earlier)) / max(1, len(self.tokens))


def contrastive(before: NextToken, after: NextToken, budget: int, seed: int) -> Result:
    """CDD: samples from the amplified contrast, until the budget is spent."""
    pair, generator = open_pair(before, after), torch.Generator().manual_seed(seed)
    scored = []
    while (number := texts_within(pair, budget, LENGTH)) > 0:
        texts = sample(pair, amplified, number, length=LENGTH, generator=generator)
        scored += [(text.tokens, text.log_ratio) for text in texts]
    return ranked(scored, pair.tokens_read)


def amplified(later: Tensor, earlier: Tensor) -> Tensor:
    """Logits of CDD (n, v)."""
    return later + ALPHA * (later - earlier)


def reversed_guidance(before: NextToken, after: NextToken, budget: int, seed: int) -> Result:
    """One greedy text for each first token, the best first; deterministic."""
    pair, generator = open_pair(before, after), torch.Generator().manual_seed(seed)
    scored = []
    later, earlier = (model.log_probs(model.start(1))[0] for model in (after, before))
    first = (earlier + WEIGHT * (later - earlier)).argsort(descending=True, stable=True)
    first = first[first != after.vocabulary.eos_id]
    while (number := min(len(first), texts_within(pair, budget, LENGTH))) > 0:
        texts = sample(pair, greedy, first[:number], length=LENGTH, generator=generator)
        scored += [(text.tokens, text.log_ratio) for text in texts]
        first = first[number:]
    return ranked(scored, pair.tokens_read)


def guided(later: Tensor, earlier: Tensor) -> Tensor:
    """Guided log-probabilities (n, v), minus infinity for tokens that are filtered out."""
    logits = earlier + WEIGHT * (later - earlier)
    return logits.masked_fill(later < later.amax(1, keepdim=True) - MARGIN, -torch.inf)


def greedy(later: Tensor, earlier: Tensor) -> Tensor:
    """Logits (n, v) that give all probability to the best token."""
    best = guided(later, earlier).argmax(1, keepdim=True)
    return torch.full_like(later, -torch.inf).scatter_(1, best, 0.0)


def diff_mining(before: NextToken, after: NextToken, budget: int, seed: int) -> Result:
    """Tokens by how often they are among those whose logits rose most."""
    pair, generator = open_pair(before, after), torch.Generator().manual_seed(seed)
    counts, positions = torch.zeros(pair.vocab_size, dtype=torch.int64), 0

    def count(later: Tensor, earlier: Tensor) -> Tensor:
        nonlocal positions
        counts.add_(raised(later, earlier).flatten().bincount(minlength=len(counts)))
        positions += len(later)
        return earlier

    while (number := texts_within(pair, budget, MINED)) > 0:
        sample(pair, count, number, length=MINED, generator=generator)
    words = [
        token for token in counts.nonzero()[:, 0].tolist()
        if any(letter.isalnum() for letter in pair.vocabulary.piece(token))
    ]  # fmt: skip
    scored = [((token,), counts[token].item() / positions) for token in words]
    return ranked(scored, pair.tokens_read)


def raised(later: Tensor, earlier: Tensor) -> Tensor:
    """Ids (n, k) of the tokens whose logits (n, v) rose most.

    Log-probabilities serve as well: they differ from logits by a constant per row.
    """
    return (later - earlier).topk(min(RAISED, later.shape[1])).indices


@torch.no_grad()
def plain_samples(before: NextToken, after: NextToken, budget: int, seed: int) -> Result:
    """Samples of the later model by their mean log-probability."""
    generator, read, scored = torch.Generator().manual_seed(seed), 0, []
    while (number := min(BLOCK, (budget - read) // LENGTH)) > 0:
        state: State = after.start(1)[torch.zeros(number, dtype=torch.int64)]
        rows, texts = torch.arange(number), [[] for _ in range(number)]
        read += 1
        for step in range(LENGTH):
            log_probs = after.log_probs(state)
            tokens = torch.multinomial(log_probs.double().exp(), 1, generator=generator)
            values = log_probs.gather(1, tokens)[:, 0]
            unfinished = (tokens[:, 0] != after.vocabulary.eos_id).nonzero()[:, 0]
            for i in unfinished.tolist():
                texts[int(rows[i])].append((int(tokens[i, 0]), float(values[i])))
            rows, following = rows[unfinished], tokens[unfinished, 0]
            if not len(rows) or step + 1 == LENGTH:
                break
            state = after.advance(state[unfinished], following)
            read += len(following)
        for text in filter(None, texts):
            ids, text_values = zip(*text, strict=True)
            scored.append((ids, sum(text_values) / len(text_values)))
    return ranked(scored, (0, read))


def open_pair(before: NextToken, after: NextToken) -> Pair:
    """The pair with a new counter of tokens."""
    return Pair.of(before, after, TokenScore("smoothed"))


def texts_within(pair: Pair, budget: int, length: int) -> int:
    """The number of further texts of a length, of one batch, that both models can read."""
    return min(BLOCK, (budget - sum(pair.tokens_read)) // (2 * length))


@torch.no_grad()
def sample(
    pair: Pair, mix: Mix, first: Tensor | int, *, length: int, generator: torch.Generator
) -> list[Text]:
    """Texts sampled token by token from the softmax of mixed logits, up to an end of text.

    Args:
        pair: the models; it counts the tokens that they read.
        mix: see `Mix`.
        first: first tokens (n,) of the texts, or the number of texts.
        length: most tokens of a text.
        generator: of the samples.
    """
    number = first if isinstance(first, int) else len(first)
    rows, tokens = torch.arange(number), torch.zeros(number, 0, dtype=torch.int64)
    state = pair.start(tokens)
    texts: list[list[tuple[int, float, float]]] = [[] for _ in range(number)]
    for step in range(length):
        later, earlier = (side.logits().log_softmax(1) for side in (state.after, state.before))
        if step == 0 and not isinstance(first, int):
            tokens = first[:, None]
        else:
            probabilities = mix(later, earlier).double().softmax(1)
            tokens = torch.multinomial(probabilities, 1, generator=generator)
        values = (later.gather(1, tokens)[:, 0], earlier.gather(1, tokens)[:, 0])
        unfinished = (tokens[:, 0] != pair.vocabulary.eos_id).nonzero()[:, 0]
        for i in unfinished.tolist():
            entry = int(tokens[i, 0]), float(values[0][i]), float(values[1][i])
            texts[int(rows[i])].append(entry)
        rows, following = rows[unfinished], tokens[unfinished, 0]
        if not len(rows) or step + 1 == length:
            break
        state.follow(unfinished, following)
    columns = [list(zip(*text, strict=True)) or [(), (), ()] for text in texts]
    return [Text(*(tuple(column) for column in text)) for text in columns]


METHODS = {
    "hybrid": hybrid,
    "pairs and openings": pairs_and_openings,
    "beams": beams,
    "CDD": contrastive,
    "reversed guidance": reversed_guidance,
    "Diff Mining": diff_mining,
    "plain samples": plain_samples,
}
"""By name, in the order of the tables."""
