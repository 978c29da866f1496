"""Passages of texts that are extracted from a model, read from its files or from a server.

A server that echoes prompts shows the most probable tokens of each position. They decide whether
greedy decoding generates a passage, and how probable a sample of it is. Only the first token of a
text is unknown; it counts as not generated.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from vestige import claims
from vestige.audits.extraction.continuations import best_continuations
from vestige.audits.extraction.memorization import (
    Extracted,
    drawn_texts,
    memorized,
    with_continued,
)
from vestige.audits.extraction.memorized_texts import compared_tokens, memorization_result
from vestige.claims.checks import model_checks
from vestige.claims.comparable import comparable_texts
from vestige.claims.model_checks import adapter_check
from vestige.claims.text_lists import ListedTexts, listed_texts
from vestige.models.endpoint_address import is_endpoint
from vestige.models.endpoint_tokens import places
from vestige.models.endpoint_wire import Question
from vestige.models.served_texts import STEP, ServedTexts
from vestige.models.shown_statistics import by_list, known_by_all, numbered, only, shown_statistics
from vestige.models.text_models import TextModels
from vestige.models.token_statistics import CachedOutputs, TokenStatistics, cached_outputs
from vestige.results import Result
from vestige.session import Session

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped]

EXCERPT = 200
"""Characters of a text that a run keeps."""
ROWS = 32
"""Texts that are continued together."""
COMPARED = 8
"""Texts on which an adapter is compared with its base."""
LIKELIEST = 20
"""Most probable tokens of each position that are cached at least."""

Numbers: TypeAlias = Mapping[str, NDArray[np.int64]]
Pair: TypeAlias = tuple[Sequence[Hashable], Sequence[Hashable]]
"""The greedy continuation of a text after its prefix, and the true one, in tokens."""


def extract_passages(run: Session, model: Any, texts: Any) -> Result:
    """Measure how much of texts is extracted, and of the reference if there is one.

    Args:
        model: its files, or the address of a server.
        texts: a file, a folder or a corpus.

    Raises:
        ModelError: the model cannot be read, or the server does not answer; answers are cached.
        DataError: a text is in both lists, none is long enough for a passage, the budget is too
            small, or no prompt is echoed.
    """
    given = run.arguments
    options = {"user": given["author"], **{one: given[one] for one in ("format", "text", "limit")}}
    named = {"texts": texts, "reference": given["reference"]}
    lists = listed_texts(
        {role: run.corpus(role, one, **options) for role, one in named.items() if one is not None},
        author=given["author"],
    )
    how = Extracted(
        prefix=run.chosen(prefix=given["prefix"] or 50),
        suffix=given["suffix"],
        tries=given["samples"],
        chance=given["probability"],
        top_k=given["top_k"],
        temperature=given["temperature"],
    )
    folder = run.beside_out("statistics", given["statistics"])
    with cached_outputs(folder, run.monitor) as outputs:
        source = (_Server if is_endpoint(model) else _Files)(run, model, lists, how, outputs)
        how = replace(how, top_k=source.top_k)
        found = {
            role: memorized(source.statistics(role), how, lists.units[role])
            for role in lists.compared
        }
        numbers = {
            role: drawn_texts(own, given["continued"], seed=run.seed) for role, own in found.items()
        }
        pairs = source.continued(numbers, how)
        found = {role: with_continued(own, numbers[role], pairs) for role, own in found.items()}
    run.models |= source.recorded
    own, rest = found["texts"], found.get("reference")
    return memorization_result(
        own,
        rest,
        how,
        seed=run.seed,
        checks=_checks(source, own, rest, how, lists, run.seed),
        excerpts=[text[:EXCERPT] for text in lists.compared["texts"]],
    )


class _Files:
    """A model whose files are read.

    Attributes:
        recorded: provenance.
        top_k: most probable tokens from which is sampled.
        known: by list, statistics of the tokens with a known log-probability.
        read: tokens of the texts that were scored, and all that they have.
        checks: of the model, besides those that its statistics allow.
    """

    def __init__(
        self, run: Session, model: Any, lists: ListedTexts, how: Extracted, outputs: CachedOutputs
    ) -> None:

        run.arguments["remote"].reject_for_local()
        self._models = TextModels.alone(model, device=run.device)
        self._outputs = outputs
        self.recorded = self._models.recorded
        self.top_k = min(how.top_k, self._models.target.vocab_size)
        self._ids = self._models.encoded_lists(lists.compared)
        audited = list(lists.compared["texts"])
        self.known: dict[str, TokenStatistics] = {}
        self.read = self._models.tokens_read(audited)
        adapter = adapter_check(
            self._models.target, seed=run.seed, texts=self._models.encoded(audited[:COMPARED])
        )
        self.checks: tuple[claims.Check, ...] = () if adapter is None else (adapter,)

    def statistics(self, role: str) -> TokenStatistics:
        """Of one list of texts."""
        most = max(LIKELIEST, self.top_k)
        found = self._models.statistics(
            self._ids[role], self._outputs, of=f"`{role}`", likeliest=most
        )
        self.known[role] = found["target"]
        return found["target"]

    def continued(self, numbers: Numbers, how: Extracted) -> Iterator[Pair]:
        """Some texts of each list after their prefix."""
        model = self._models.target
        for role, chosen in numbers.items():
            ids = [self._ids[role][number] for number in chosen]
            for some in (ids[first : first + ROWS] for first in range(0, len(ids), ROWS)):
                prefixes = torch.tensor([one[: how.prefix] for one in some], device=model.device)
                with torch.no_grad():
                    found = best_continuations(model, prefixes, how.suffix, width=1)
                for one, generated in zip(some, found.tokens[:, 0].tolist(), strict=True):
                    yield generated, one[how.prefix : how.prefix + how.suffix]


class _Server:
    """A server that echoes prompts, in its own tokens; attributes as of `_Files`."""

    checks: tuple[claims.Check, ...] = ()

    def __init__(
        self, run: Session, model: Any, lists: ListedTexts, how: Extracted, outputs: CachedOutputs
    ) -> None:
        self._run, self._outputs = run, outputs
        self._served = ServedTexts.open(model, None, run.arguments["remote"], device="cpu")
        self._counts = {role: len(corpus) for role, corpus in lists.compared.items()}
        texts = [text for corpus in lists.compared.values() for text in corpus]
        continued = run.arguments["continued"] * len(self._counts)
        self._served.log_cost(texts, run.monitor, continued=continued, length=how.suffix)
        shown = self._served.shown_by("target", texts, outputs)
        cuts = [sorted({*places(text, own)} - {0}) for text, own in zip(texts, shown, strict=True)]
        self._texts, self._cuts = texts, cuts
        most = self._served.accesses["target"].shown
        found = shown_statistics(texts, shown, cuts, ids=numbered(texts, cuts), likeliest=most)
        unknown = np.isnan(found.likeliest_log_probs[:, 0])
        unknown[found.offsets[:-1]] = False
        if unknown.any():
            run.log(
                f"{unknown.mean():.1%} of the tokens do not spell the text, such as marks of a "
                "chat template: passages with one are left out"
            )
        if how.top_k > most:
            run.log(f"Samples use the {most} most probable tokens, all that the server shows")
        self.top_k = min(how.top_k, most)
        ranked = replace(found, ranks=np.where(found.ranks < 1, most + 1, found.ranks))
        self._by_role = by_list(self._counts, {"target": ranked})
        self.known = {
            role: only(own["target"], known_by_all(own)) for role, own in self._by_role.items()
        }
        # A server shows nothing of the first token of a text.
        every = self.statistics("texts").log_probs.size - self._counts["texts"]
        self.read = (self.known["texts"].log_probs.size, every)

    @property
    def recorded(self) -> dict[str, object]:
        """Provenance, with the calls of all sessions."""
        record: Any = self._served.recorded["target"]
        return {"target": {**record, **self._served.spent}}

    def statistics(self, role: str) -> TokenStatistics:
        """Of one list of texts."""
        return self._by_role[role]["target"]

    def continued(self, numbers: Numbers, how: Extracted) -> Iterator[Pair]:
        """Some texts of each list after their prefix."""

        firsts = accumulate(self._counts.values(), initial=0)
        chosen = [
            first + number
            for first, role in zip(firsts, self._counts, strict=False)
            for number in numbers[role].tolist()
        ]
        if not chosen:
            return
        questions = [
            Question(
                self._texts[number][: self._cuts[number][how.prefix - 1]],
                shown=1, length=how.suffix, greedy=True,
            )
            for number in chosen
        ]  # fmt: skip
        replies = []
        with (
            self._served.session("target", self._outputs) as (endpoint, _),
            self._run.progress("continuing texts") as step,
        ):
            some = STEP * self._served.remote.concurrency * endpoint.limits.together
            for first in range(0, len(questions), some):
                answers = endpoint.ask(questions[first : first + some])
                replies += [reply for reply in answers if reply is not None]
                if len(replies) < min(first + some, len(questions)):
                    raise endpoint.failed()
                step(len(replies), len(questions))
        for number, reply in zip(chosen, replies, strict=True):
            text, ends = self._texts[number], self._cuts[number][how.prefix - 1 :]
            true = [text[a:b] for a, b in pairwise(ends[: how.suffix + 1])]
            yield [token.text for token in reply.tokens], true


def _checks(
    source: _Files | _Server,
    own: "pandas.DataFrame",
    rest: "pandas.DataFrame | None",
    how: Extracted,
    lists: ListedTexts,
    seed: int,
) -> tuple[claims.Check, ...]:
    """All checks but "powerful"."""
    compared = own if rest is None else rest
    known = (source.known["texts"], source.known["texts" if rest is None else "reference"])
    scored, every = source.read
    read = (min(scored, compared_tokens(own, compared, how)), every)
    checks = (*model_checks({"the model": known}, read_tokens=read), *source.checks)
    if rest is None:
        missing = "No reference was given, so nothing can be compared."
        names = ("independent", "comparable")
        return (*checks, *(claims.Check(name, "could not run", missing) for name in names))
    tested = [side["unit"][side["passages"] > 0].to_numpy() for side in (own, rest)]
    independent = claims.independent(*tested, removed=lists.removed, of="texts with a passage")
    texts, reference = (list(lists.compared[role]) for role in ("texts", "reference"))
    units = (own["unit"].to_numpy(), rest["unit"].to_numpy())
    return (*checks, independent, comparable_texts(texts, reference, units=units, seed=seed))
