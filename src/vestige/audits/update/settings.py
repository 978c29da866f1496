"""Settings of a search: what it proposes, how phrases grow and where they are cut."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vestige.audits.update.pair import Pair
    from vestige.audits.update.prompts import Prompt


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """Settings of the samples.

    Attributes:
        samples: texts over all prompts; more are drawn if documents end before `length`.
        length: tokens per text, and per turn of a dialogue.
        alpha: weight of the change between the models.
        temperature: of the softmax.
        alternatives: best alternatives that are extended, over all samples.
        per_position: alternatives considered at each position.
        min_gain: least gain of an alternative.
        context: tokens of the sample before an alternative.
        token_penalty: while an alternative grows; afterwards it is cut like every text.
        block: samples drawn in one batch.
    """

    samples: int = 400
    length: int = 48
    alpha: float = 0.5
    temperature: float = 1.0
    alternatives: int = 400
    per_position: int = 4
    min_gain: float = 0.6
    context: int = 4
    token_penalty: float = 0.7
    block: int = 100

    @property
    def tokens_read(self) -> int:
        """Tokens that a sample of full length reads: all except its last one."""
        return max(1, self.length - 1)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a search proposes and how phrases grow.

    Attributes:
        token_penalty: cost of each token, in units of the score.
        surprise: cost of each nat of the later model's surprise.
        drop: a hypothesis is dropped if it scores this much less than its seed's best.
        split_threshold: a phrase is split where its score falls by more than this.
        loop_penalty: cost of a token that repeats three tokens of its phrase, four in a sample.
        min_tokens: shorter phrases are not reported; they are pieces of words and headers.
        max_tokens: longest phrase.
        sampling: settings of the samples; None: no samples.
        openings: promoted first tokens of a text, over all prompts; 0: none.
        opening_beam: hypotheses per opening.
        pairs: most promoted pairs of tokens; 0: none.
        pair_vocabulary: larger vocabularies are not searched for pairs; None: no limit.
        repaired: best phrases that are repaired.
        seed: random seed.
    """

    token_penalty: float = 1.2
    surprise: float = 0.4
    drop: float = 6.0
    split_threshold: float = 2.0
    loop_penalty: float = 3.0
    min_tokens: int = 4
    max_tokens: int = 48
    sampling: Sampling | None = field(default_factory=Sampling)
    openings: int = 40
    opening_beam: int = 4
    pairs: int = 2000
    pair_vocabulary: int | None = 2048
    repaired: int = 50
    seed: int = 0

    @property
    def room(self) -> int:
        """Most tokens that a model reads after a prompt."""
        return max(self.max_tokens, self.sampling.length if self.sampling else 0) + 1

    def scaled(self, size: float) -> "Settings":
        """The settings with `size` times as many samples, alternatives and pairs."""
        sampling = self.sampling and replace(
            self.sampling,
            samples=max(1, round(size * self.sampling.samples)),
            alternatives=round(size * self.sampling.alternatives),
        )
        pairs = max(1, round(size * self.pairs)) if self.pairs else 0
        return replace(self, sampling=sampling, pairs=pairs)

    def fitted(self, pair: "Pair", prompts: "Sequence[Prompt]") -> "Settings":
        """The settings with texts short enough for both models after every prompt."""
        if pair.longest is None:
            return self
        available = pair.longest - max(len(prompt.tokens) for prompt in prompts)
        context, sampling = 1, self.sampling
        if sampling is not None:
            context = sampling.context
            sampling = replace(sampling, length=max(1, min(sampling.length, available)))
        max_tokens = max(self.min_tokens, min(self.max_tokens, available - context))
        return replace(self, sampling=sampling, max_tokens=max_tokens)

    def searches_pairs(self, pair: "Pair") -> bool:
        """Whether pairs of tokens are searched, which needs the logits of all v x v pairs."""
        small = self.pair_vocabulary is None or pair.vocab_size <= self.pair_vocabulary
        return self.pairs > 0 and small


def share_of(total: int, index: int, prompts: int) -> int:
    """The part of a total that one of several prompts gets; at least 1."""
    return max(1, len(range(index, total, prompts)))
