"""Passages of texts that are extracted from a local model or from a server.

A server that echoes prompts shows the most probable tokens of each position. They determine whether
greedy decoding generates a passage, and how probable a sample of it is. Only the first token of a
text is unknown; it counts as not generated.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np

from vestige import claims
from vestige.audits.extraction.memorization import ExtractionCriterion, Table, memorization_table
from vestige.audits.extraction.passages_result import compared_tokens, memorization_result
from vestige.claims.checks import statistics_checks
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
from vestige.models.token_statistics import CachedOutputs, TokenStatistics, cached_outputs
from vestige.results import Result
from vestige.session import Session

EXCERPT = 200
"""Characters of a text that are saved."""
ADAPTER_TEXTS = 8
"""Texts on which an adapter is compared with its base."""
MIN_LIKELIEST = 20
"""Least number of most probable tokens of each position that are cached."""


def extract_passages(run: Session, model: Any, texts: Any) -> Result:
    """Measure how much of the texts is extracted, and of the reference if there is one.

    Args:
        model: a local model, or the address of a server.
        texts: a file, a folder or a corpus.

    Raises:
        ModelError: the model cannot be read, or the server does not answer; answers are cached.
        DataError: a text is in both lists, none is long enough for a passage, the budget is too
            small, or no prompt is echoed.
    """
    arguments = run.arguments
    columns = {name: arguments[name] for name in ("format", "text", "limit")}
    data = {"texts": texts, "reference": arguments["reference"]}
    lists = listed_texts(
        {
            role: run.corpus(role, source, user=arguments["author"], **columns)
            for role, source in data.items()
            if source is not None
        },
        author=arguments["author"],
    )
    criterion = ExtractionCriterion(
        prefix=run.record_choice(prefix=arguments["prefix"] or 50),
        suffix=arguments["suffix"],
        samples=arguments["samples"],
        probability=arguments["probability"],
        top_k=arguments["top_k"],
        temperature=arguments["temperature"],
    )
    folder = run.output_folder("statistics", arguments["statistics"])
    with cached_outputs(folder, run.monitor) as outputs:
        read = _read_from_server if is_endpoint(model) else _read_locally
        reading = read(run, model, lists, criterion.top_k, outputs)
        criterion = replace(criterion, top_k=reading.top_k)
        tables = {
            role: memorization_table(statistics, criterion, lists.units[role])
            for role, statistics in reading.statistics.items()
        }
    run.models |= reading.models
    return memorization_result(
        tables["texts"],
        tables.get("reference"),
        criterion,
        seed=run.seed,
        checks=_checks(reading, tables, criterion, lists, run.seed),
        excerpts=[text[:EXCERPT] for text in lists.compared["texts"]],
    )


@dataclass(frozen=True)
class _Reading:
    """Token statistics of the texts under a model.

    Attributes:
        models: provenance.
        top_k: number of most probable tokens that a token is sampled from.
        statistics: by list.
        known: the same, of the tokens with a known log-probability.
        read: number of scored tokens of the texts, and of all their tokens.
        checks: of the model, in addition to those by its statistics.
    """

    models: Mapping[str, object]
    top_k: int
    statistics: Mapping[str, TokenStatistics]
    known: Mapping[str, TokenStatistics]
    read: tuple[int, int]
    checks: tuple[claims.Check, ...] = ()


def _read_locally(
    run: Session, model: Any, lists: ListedTexts, top_k: int, outputs: CachedOutputs
) -> _Reading:
    """Read the texts with a local model."""
    run.arguments["remote"].reject_for_local()
    models = Snapshots.open({"target": model}, device=run.device, monitor=run.monitor)
    top_k = min(top_k, models.target.vocab_size)
    encoded = models.encoded_lists(lists.compared)
    texts = list(lists.compared["texts"])
    read = models.tokens_read(texts)
    adapter = adapter_check(
        models.target, seed=run.seed, texts=models.encoded(texts[:ADAPTER_TEXTS])
    )
    likeliest = max(MIN_LIKELIEST, top_k)
    statistics = {
        role: models.statistics(rows, outputs, of=f"`{role}`", likeliest=likeliest)["target"]
        for role, rows in encoded.items()
    }
    return _Reading(
        models=models.recorded,
        top_k=top_k,
        statistics=statistics,
        known=statistics,
        read=read,
        checks=() if adapter is None else (adapter,),
    )


def _read_from_server(
    run: Session, model: Any, lists: ListedTexts, top_k: int, outputs: CachedOutputs
) -> _Reading:
    """Read the texts with a server that echoes prompts, in its own tokens."""
    served = ServedTexts.open(model, None, run.arguments["remote"], device="cpu")
    texts = list(chain.from_iterable(lists.compared.values()))
    served.log_cost(texts, run.monitor)
    shown = served.shown_by("target", texts, outputs)
    cuts, ids = server_pieces(texts, shown)
    likeliest = served.accesses["target"].shown
    statistics = shown_statistics(texts, shown, cuts, ids=ids, likeliest=likeliest)
    unknown = np.isnan(statistics.likeliest_log_probs[:, 0])
    unknown[statistics.offsets[:-1]] = False
    if unknown.any():
        run.log(
            f"{unknown.mean():.1%} of the tokens do not spell the text, such as marks of a "
            "chat template: passages with one are left out"
        )
    if top_k > likeliest:
        run.log(f"Samples use the {likeliest} most probable tokens, all that the server shows")
    ranks = np.where(statistics.ranks < 1, likeliest + 1, statistics.ranks)
    counts = {role: len(corpus) for role, corpus in lists.compared.items()}
    by_role = split_by_list(counts, {"target": replace(statistics, ranks=ranks)})
    known = {
        role: select_tokens(by_model["target"], known_tokens(by_model))
        for role, by_model in by_role.items()
    }
    # A server shows nothing of the first token of a text.
    tokens = by_role["texts"]["target"].log_probs.size - counts["texts"]
    record: Any = served.recorded["target"]
    return _Reading(
        models={"target": {**record, **served.spent}},
        top_k=min(top_k, likeliest),
        statistics={role: by_model["target"] for role, by_model in by_role.items()},
        known=known,
        read=(known["texts"].log_probs.size, tokens),
    )


def _checks(
    reading: _Reading,
    tables: Mapping[str, Table],
    criterion: ExtractionCriterion,
    lists: ListedTexts,
    seed: int,
) -> tuple[claims.Check, ...]:
    """All checks but "powerful"."""
    sides = ("texts", "reference" if "reference" in tables else "texts")
    scored, tokens = reading.read
    compared = compared_tokens(tables["texts"], tables[sides[1]], criterion)
    checks = (
        *statistics_checks(
            {"the model": tuple(reading.known[side] for side in sides)},
            read_tokens=(min(scored, compared), tokens),
        ),
        *reading.checks,
    )
    if "reference" not in tables:
        missing = "No reference was given, so nothing can be compared."
        names = ("independent", "comparable")
        return (*checks, *(claims.Check(name, "could not run", missing) for name in names))
    tested, tested_reference = (
        tables[side]["unit"][tables[side]["passages"] > 0].to_numpy() for side in sides
    )
    independent = claims.independent(
        tested, tested_reference, removed=lists.removed, of="texts with a passage"
    )
    texts, reference = (list(lists.compared[side]) for side in sides)
    units = (tables["texts"]["unit"].to_numpy(), tables["reference"]["unit"].to_numpy())
    return (*checks, independent, comparable_texts(texts, reference, units=units, seed=seed))
