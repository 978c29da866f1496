"""Passages of texts that are extracted from a model, read from its files or from a server.

A server that echoes prompts shows the most probable tokens of each position. They decide whether
greedy decoding generates a passage, and how probable a sample of it is. Only the first token of a
text is unknown; it counts as not generated.
"""

from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np

from vestige import claims
from vestige.audits.extraction.memorization import Extracted, Table, memorized
from vestige.audits.extraction.memorized_texts import compared_tokens, memorization_result
from vestige.claims.checks import model_checks
from vestige.claims.comparable import comparable_texts
from vestige.claims.model_checks import adapter_check
from vestige.claims.text_lists import ListedTexts, listed_texts
from vestige.models.remote.options import is_endpoint
from vestige.models.served_texts import ServedTexts
from vestige.models.shown_statistics import (
    known_tokens,
    select_tokens,
    server_pieces,
    shown_statistics,
    split_by_list,
)
from vestige.models.snapshots import Snapshots
from vestige.models.token_statistics import CachedOutputs, cached_outputs
from vestige.results import Result
from vestige.session import Session

EXCERPT = 200
"""Characters of a text that a run keeps."""
COMPARED = 8
"""Texts on which an adapter is compared with its base."""
LIKELIEST = 20
"""Most probable tokens of each position that are cached at least."""


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
            role: memorized(own, how, lists.units[role]) for role, own in source.statistics.items()
        }
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
        statistics: by list; known: of the tokens with a known log-probability.
        read: tokens of the texts that were scored, and all that they have.
        checks: of the model, besides those that its statistics allow.
    """

    def __init__(
        self, run: Session, model: Any, lists: ListedTexts, how: Extracted, outputs: CachedOutputs
    ) -> None:
        run.arguments["remote"].reject_for_local()
        models = Snapshots.open({"target": model}, device=run.device, monitor=run.monitor)
        self.recorded = models.recorded
        self.top_k = min(how.top_k, models.target.vocab_size)
        encoded = models.encoded_lists(lists.compared)
        audited = list(lists.compared["texts"])
        self.read = models.tokens_read(audited)
        texts = models.encoded(audited[:COMPARED])
        adapter = adapter_check(models.target, seed=run.seed, texts=texts)
        self.checks = () if adapter is None else (adapter,)
        most = max(LIKELIEST, self.top_k)
        self.statistics = self.known = {
            role: models.statistics(ids, outputs, of=f"`{role}`", likeliest=most)["target"]
            for role, ids in encoded.items()
        }


class _Server:
    """A server that echoes prompts, in its own tokens; attributes as of `_Files`."""

    checks: tuple[claims.Check, ...] = ()

    def __init__(
        self, run: Session, model: Any, lists: ListedTexts, how: Extracted, outputs: CachedOutputs
    ) -> None:
        self._served = ServedTexts.open(model, None, run.arguments["remote"], device="cpu")
        texts = list(chain.from_iterable(lists.compared.values()))
        self._served.log_cost(texts, run.monitor)
        shown = self._served.shown_by("target", texts, outputs)
        cuts, ids = server_pieces(texts, shown)
        most = self._served.accesses["target"].shown
        found = shown_statistics(texts, shown, cuts, ids=ids, likeliest=most)
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
        counts = {role: len(corpus) for role, corpus in lists.compared.items()}
        split = split_by_list(counts, {"target": ranked})
        self.statistics = {role: own["target"] for role, own in split.items()}
        self.known = {
            role: select_tokens(own["target"], known_tokens(own)) for role, own in split.items()
        }
        # A server shows nothing of the first token of a text.
        every = self.statistics["texts"].log_probs.size - counts["texts"]
        self.read = (self.known["texts"].log_probs.size, every)

    @property
    def recorded(self) -> dict[str, object]:
        """Provenance, with the calls of all sessions."""
        record: Any = self._served.recorded["target"]
        return {"target": {**record, **self._served.spent}}


def _checks(
    source: _Files | _Server,
    own: Table,
    rest: Table | None,
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
