"""Privacy statement: the guarantee of a training, whom it covers, and what it does not.

The guarantee is (epsilon, delta)-differential privacy; Dwork and Roth (2014), "The Algorithmic
Foundations of Differential Privacy", Definition 2.4. Its meaning depends on the unit, the
neighbours, the sampling of batches, and other releases of the records. The terms are those that
Ponomareva et al. (2023), "How to DP-fy ML", section 5.3, require of a claim.

The claim is the planned budget. If a training ends early, its weights decided so, and the epsilon
of the steps taken is not that of a fixed mechanism: Rogers et al. (2016), "Privacy Odometers and
Filters".
"""

import math
from dataclasses import dataclass

from vestige.privacy.accounting import PrivacySpent, Unit
from vestige.privacy.ledger import Ancestry, LedgerEntry

UNNOISED = (
    "log.jsonl (loss, median_norm, clipped)",
    "history.json and run/ (perplexity, accuracy, counts, word frequencies)",
    "training.json and run/run.json (SHA-256 of the text)",
    "data/ and records/ (the text as ids, a hash of every record)",
    "checkpoint.safetensors, and during training secret.key, from which noise and batches follow",
)
"""Files of a training's directory with content without noise. Only model/ is for release."""


@dataclass(frozen=True, kw_only=True)
class PrivacyStatement:
    """The guarantee of a private training.

    Attributes:
        defence: "dp-sgd" or "dp-fedavg".
        planned: the budget of all planned steps: the claim.
        units: number of sequences or users.
        sequence_length: maximum tokens of a sequence.
        held_out: documents (or users) used to choose the epoch.
        capped: maximum documents per user; None: all.
        limited: number of first documents that were used; None: all.
        ancestry: effect of earlier trainings.
        taken: budget of the steps taken; None before the training.
        void: reasons that void the guarantee.
        in_pieces: whether a longer document is split; otherwise it is cut.
        unnoised: files with content without noise.
        released: the only part for release.
    """

    defence: str
    planned: PrivacySpent
    units: int
    sequence_length: int
    held_out: int
    ancestry: Ancestry
    capped: int | None = None
    limited: int | None = None
    taken: PrivacySpent | None = None
    void: tuple[str, ...] = ()
    in_pieces: bool = True
    unnoised: tuple[str, ...] = UNNOISED
    released: str = "the folder model/"

    @property
    def holds(self) -> bool:
        """Whether this training has a guarantee, for records that no other training used."""
        return not self.void and math.isfinite(self.planned.epsilon)

    def summary(self) -> dict[str, object]:
        """Scalars by name, for a table."""
        spent = {**self.planned.summary()}
        del spent["steps"]
        after = None if self.taken is None else self.taken.epsilon
        return {
            **spent,
            "steps_planned": self.planned.steps,
            "epsilon_of_steps_taken": after if after is not None and math.isfinite(after) else None,
            "epsilon_with_ancestors": self.ancestry.epsilon if self.holds else None,
            "ancestors_on_same_text": len(self.ancestry.shared),
            "guarantee_void": not self.holds,
            "protected_units": self.units,
            "units_held_out": self.held_out,
            "unknown_ancestors": len(self.ancestry.unknown),
            "vocabulary_made_of": self.ancestry.vocabulary,
        }

    def sentences(self) -> tuple[str, ...]:
        """All terms, epsilon first."""
        return tuple(self.terms().values())

    def headlines(self) -> tuple[str, ...]:
        """The most important terms: epsilon, earlier trainings, vocabulary, left-out records."""
        terms, most = self.terms(), ["guarantee", "earlier trainings"]
        if self.ancestry.vocabulary != "other":
            most.append("vocabulary")
        if self.taken is not None and self.taken.steps != self.planned.steps:
            most.append("steps")
        return tuple(terms[name] for name in [*most, "left out"] if name in terms)

    def terms(self) -> dict[str, str]:
        """Sentences by topic."""
        spent, unit = self.planned, _unit(self.planned.unit)
        contribution = "update" if self.defence == "dp-fedavg" else "gradient"
        held_out = f"1 {unit} was" if self.held_out == 1 else f"{self.held_out:,} {unit}s were"
        terms = {
            "guarantee": self._guarantee(),
            "meaning": self._meaning(),
            "neighbours": (
                f"Two texts are neighbours if one has one {unit} more and all else is equal (add "
                "or remove one)."
            ),
            "mechanism": (
                f"Gaussian ({self.defence}): each {spent.unit}'s {contribution} is clipped to norm "
                f"C = {spent.max_grad_norm:g}, and noise of standard deviation σC, σ = "
                f"{spent.noise_multiplier:.4g}, is added to their sum."
            ),
            "sampling": (
                f"Poisson: each of the {self.units:,} {spent.unit}s is in a step independently, "
                f"with probability q = {spent.sample_rate:.3g}."
            ),
            "steps": self._steps(),
            "accountant": f"{spent.accountant}, an upper bound.",
            "earlier trainings": self._earlier(),
            "vocabulary": self._vocabulary(),
            "left out": (
                f"{held_out} used without noise to choose the epoch: ε does not cover them."
                if self.held_out
                else ""
            ),
            "outside": f"Not in ε: {'; '.join(self._outside())}.",
            "without noise": (
                f"Not for release: {'; '.join(self.unnoised)}. Release {self.released} alone."
            ),
        }
        return {name: text for name, text in terms.items() if text}

    def _guarantee(self) -> str:
        epsilon, delta = number(self.planned.epsilon), small(self.planned.delta)
        if self.planned.unit == "user":
            unit = "a user with all of their documents"
        else:
            piece = "each piece of {:,}" if self.in_pieces else "the part that was used"
            length = self.sequence_length
            unit = (
                f"a document of at most {length:,} tokens (of a longer one, {piece.format(length)})"
            )
        claim = f"ε = {epsilon} at δ = {delta} for {unit}"
        if self.void:
            return f"No guarantee: {'; '.join(self.void)}. Otherwise it would be {claim}."
        if not self.holds:
            return f"No guarantee: without noise, ε is infinite for {unit}."
        earlier = self.ancestry
        if earlier.reasons:
            return f"No guarantee: {'; '.join(earlier.reasons)}. This training alone has {claim}."
        if not earlier.shared or earlier.epsilon is None:
            return f"{claim}, of the weights after every step."
        return (
            f"ε = {number(earlier.epsilon)} at δ = {delta} for {unit}, of all trainings that read "
            f"it. This one alone has ε = {epsilon}."
        )

    def _meaning(self) -> str:
        epsilon = self.ancestry.epsilon
        if not self.holds or epsilon is None:
            return ""
        # The best guess: Kairouz, Oh and Viswanath (2015), "The Composition Theorem", section 3.
        success = (1 + self.planned.delta * math.exp(-epsilon)) / (1 + math.exp(-epsilon))
        return (
            "An adversary who knows all other records, and guesses at even odds whether one "
            f"{_unit(self.planned.unit)} was used, is right at most {_percent(min(success, 1.0))} "
            "of the time."
        )

    def _steps(self) -> str:
        planned, taken = self.planned.steps, self.taken
        if taken is None or taken.steps == planned:
            return f"{planned:,} steps, fixed in advance."
        return (
            f"ε is for the {planned:,} steps planned; {taken.steps:,} were taken. These alone "
            f"would spend {number(taken.epsilon)}. That is no guarantee: the training stopped "
            "because of what the weights showed."
        )

    def _earlier(self) -> str:
        earlier, unit, sentences = self.ancestry, _unit(self.planned.unit), list[str]()
        if earlier.shared and not earlier.reasons and earlier.epsilon is not None:
            length = earlier.longest
            limit = "" if length is None else f", for those of at most {length:,} tokens"
            sentences.append(
                f"Some of the {unit}s were also used by {_names(earlier.shared)}: ε = "
                f"{number(earlier.epsilon)} together{limit}, as if all of them were."
            )
        if earlier.unknown:
            consequence = f"there is no guarantee: {'; '.join(earlier.unknown_reasons)}"
            if earlier.if_read is not None:
                bound = f"ε = {number(earlier.if_read)} at δ = {small(self.planned.delta)}"
                consequence = f"all together have {bound}"
            sentences.append(
                f"What {_names(earlier.unknown)} trained on is unknown. For a {unit} that it used, "
                f"{consequence}."
            )
        return " ".join(sentences)

    def _vocabulary(self) -> str:
        origin, count = self.ancestry.vocabulary, self.ancestry.in_vocabulary
        if origin == "other":
            return "Made from a text with none of these records."
        if origin == "unknown":
            return (
                "The text of the vocabulary is unknown: ε covers it only if that text has none "
                "of these records."
            )
        source = "this text" if origin == "own" else f"a text with {count:,} of these documents"
        return (
            f"ε does not cover the vocabulary, which was made from {source}: a rare word can be in "
            "it, unredacted."
        )

    def _outside(self) -> list[str]:
        unit = _unit(self.planned.unit)
        parts = [
            f"the number of {unit}s, which q and the steps reveal",
            "options chosen by looking at the text, and other trainings on it (--seeds)",
            f"copies: ε is for one {unit}, and grows faster than their number (Mechanism, copies)",
            "the fact that a training ended because a gradient was not finite",
            "rounding: the proof is for real numbers, the noise is sampled in float32",
        ]
        if self.capped is not None and self.planned.unit == "sequence":
            parts.append(
                f"users over the cap of {self.capped:,} documents: one more can displace another, "
                "so two differ"
            )
        if self.limited is not None:
            parts.append(
                f"unused text (--limit): one {unit} more among the first {self.limited:,} "
                "documents displaces others, so more than one differs"
            )
        return parts


def number(epsilon: float) -> str:
    """Epsilon with three digits, or "infinity"."""
    return f"{epsilon:.3g}" if math.isfinite(epsilon) else "infinity"


def small(delta: float) -> str:
    """Delta as "1e-5", with all its digits.

    Example:
        >>> small(1e-5), small(2.5e-7)
        ('1e-5', '2.5e-7')
    """
    mantissa, _, exponent = f"{delta:e}".partition("e")
    return f"{float(mantissa):.3g}e{int(exponent)}"


def noise_dominates(planned: PrivacySpent, expected_units: float) -> str | None:
    """A warning if the noise is too large to learn anything; otherwise None.

    The sum of a batch's clipped gradients has at most norm C times its units; the noise has
    standard deviation sigma C in each direction.

    Args:
        planned: the budget.
        expected_units: sequences, or users, in a batch on average.
    """
    noise = planned.noise_multiplier
    if noise <= expected_units / 4:
        return None
    return (
        f"The model will learn almost nothing: the noise is as large as the sum of {noise:.3g} "
        f"{planned.unit}s, and a step has {expected_units:,.0f}. Use a larger --epsilon, larger "
        "batches, or more text."
    )


def _percent(share: float) -> str:
    """Percentage with enough digits to differ from 100.

    Example:
        >>> _percent(0.731), _percent(0.99966)
        ('73.1%', '99.966%')
    """
    digits = 1 if share < 0.99 else 3
    return "almost 100%" if share > 0.99999 else f"{100 * share:.{digits}f}%"


def _names(trainings: tuple[LedgerEntry, ...]) -> str:
    return " and ".join(training.name for training in trainings)


def _unit(unit: Unit) -> str:
    return "user" if unit == "user" else "document"
