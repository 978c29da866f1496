"""Passages of texts that are extracted from a model, compared with a reference."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vestige.models.remote_options import RemoteOptions
from vestige.results import Result
from vestige.session import Session

if TYPE_CHECKING:
    import numpy as np

    from vestige.attacks.texts.cached_outputs import CachedOutputs
    from vestige.attacks.texts.lists import ListedTexts
    from vestige.attacks.texts.memorized_texts import Extraction, MemorizedTexts
    from vestige.attacks.texts.token_statistics import TokenStatistics
    from vestige.claims import Check
    from vestige.models.protocols import LanguageModel

EXCERPT = 200
"""Characters of a text that a run keeps."""
ROWS = 32
"""Texts that are continued together."""
COMPARED = 8
"""Texts on which an adapter is compared with its base."""
LIKELIEST = 20
"""Most probable tokens of each position that are cached at least."""


@dataclass(frozen=True)
class Measured:
    """What is extracted of each list of texts, and what the checks need.

    Attributes:
        found: by list.
        how: what counts as extracted; a server may show fewer tokens than were asked for.
        statistics: by list, of the tokens with a known log-probability.
        read: tokens of the texts that were scored, and all that they have.
        checks: of the model, besides those that its statistics allow.
    """

    found: "dict[str, MemorizedTexts]"
    how: "Extraction"
    statistics: "dict[str, TokenStatistics]"
    read: tuple[int, int]
    checks: "tuple[Check, ...]" = ()


def extract_passages(
    run: Session,
    model: Any,
    given: Mapping[str, Any],
    how: "Extraction",
    *,
    continued: int,
    statistics: Any,
    columns: Mapping[str, Any],
    remote: RemoteOptions,
) -> Result:
    """Measure how much of texts is extracted.

    Args:
        given: the texts, and the reference if there is one, by role.
        how: what counts as extracted.
        continued: random texts of each list that are continued greedily.
        statistics: folder for the model's outputs; None: beside `out`.
        columns: how the texts are read: format, text, author, limit.
        remote: options of a server.

    Raises:
        DataError: a text is in both lists, or none is long enough for a passage.
    """
    from vestige.attacks.texts.cached_outputs import cached_outputs
    from vestige.attacks.texts.lists import listed_texts
    from vestige.attacks.texts.text_memorization import TextMemorization, more_extracted
    from vestige.audits.extraction.served_passages import served_passages
    from vestige.models.endpoint_address import is_endpoint

    own_columns = {"user" if name == "author" else name: one for name, one in columns.items()}
    lists = listed_texts(
        {role: run.corpus(role, data, **own_columns) for role, data in given.items()},
        author=columns["author"],
    )
    folder = None if statistics is None else Path(statistics)
    if folder is None and run.out is not None:
        folder = run.out.with_name(f"{run.out.name}.statistics")
    with cached_outputs(folder, run.monitor) as outputs:
        if is_endpoint(model):
            measured = served_passages(
                run, model, lists, how, continued=continued, outputs=outputs, remote=remote
            )
        else:
            remote.reject_for_local()
            measured = _read_passages(run, model, lists, how, continued=continued, outputs=outputs)
    own, rest = measured.found["texts"], measured.found.get("reference")
    return Result.of(
        TextMemorization(
            texts=own,
            reference=rest,
            extraction=measured.how,
            p_value=None if rest is None else more_extracted(own, rest, seed=run.seed),
            checks=_checks(measured, lists, seed=run.seed),
            excerpts=tuple(text[:EXCERPT] for text in lists.compared["texts"]),
        )
    )


def _read_passages(
    run: Session,
    model: Any,
    lists: "ListedTexts",
    how: "Extraction",
    *,
    continued: int,
    outputs: "CachedOutputs",
) -> Measured:
    """What is extracted from a model whose files are read."""
    from vestige.attacks.model_checks import adapter_check
    from vestige.attacks.texts.memorized_texts import drawn_texts, memorized, with_continued
    from vestige.attacks.texts.text_models import TextModels

    models = TextModels.alone(model, device=run.device)
    run.models |= models.recorded
    how = replace(how, top_k=min(how.top_k, models.target.vocab_size))
    found, statistics = {}, {}
    for role, ids in models.encoded_lists(lists.compared).items():
        statistics[role] = models.statistics(
            ids, outputs, of=f"`{role}`", likeliest=max(LIKELIEST, how.top_k)
        )["target"]
        every = memorized(statistics[role], how, lists.units_of(role))
        places = drawn_texts(every, continued, seed=run.seed)
        found[role] = with_continued(every, places, _continued(models.target, ids, places, how))
    audited = list(lists.compared["texts"])
    adapter = adapter_check(models.target, seed=run.seed, texts=models.encoded(audited[:COMPARED]))
    checks = () if adapter is None else (adapter,)
    return Measured(found, how, statistics, models.tokens_read(audited), checks)


def _continued(
    model: "LanguageModel",
    ids: Sequence[Sequence[int]],
    places: "np.ndarray[tuple[int], np.dtype[np.int64]]",
    how: "Extraction",
) -> Iterator[tuple[list[int], list[int]]]:
    """The greedy continuation of some texts after their prefix, and the true one."""
    import numpy as np
    import torch

    from vestige.attacks.exposure.continuations import best_continuations

    for some in np.array_split(places, -(-len(places) // ROWS) or 1):
        if not some.size:
            continue
        prefixes = torch.tensor([ids[place][: how.prefix] for place in some], device=model.device)
        with torch.no_grad():
            found = best_continuations(model, prefixes, how.suffix, width=1)
        for place, generated in zip(some, found.tokens[:, 0].tolist(), strict=True):
            yield generated, list(ids[place][how.prefix : how.prefix + how.suffix])


def _checks(measured: Measured, lists: "ListedTexts", *, seed: int) -> "tuple[Check, ...]":
    """All checks but "powerful"."""
    from vestige import claims
    from vestige.attacks.texts.list_checks import comparable_texts, model_checks
    from vestige.attacks.texts.text_memorization import compared_tokens

    own, rest = measured.found["texts"], measured.found.get("reference")
    known = measured.statistics
    asked = {"the model": (known["texts"], known["reference" if rest else "texts"])}
    scored, every = measured.read
    compared = compared_tokens(own, rest or own, measured.how)
    of_model = model_checks(asked, read=(min(scored, compared), every))
    if rest is None:
        missing = "No reference was given, so nothing can be compared."
        names = ("independent", "comparable")
        needed = tuple(claims.Check(name, "could not run", missing) for name in names)
        return (*of_model, *measured.checks, *needed)
    independent = claims.independent(
        own.owners[own.passages > 0],
        rest.owners[rest.passages > 0],
        removed=lists.removed,
        of="texts with a passage",
    )
    comparable = comparable_texts(
        list(lists.compared["texts"]),
        list(lists.compared["reference"]),
        units=(own.owners, rest.owners),
        seed=seed,
    )
    return (*of_model, *measured.checks, independent, comparable)
