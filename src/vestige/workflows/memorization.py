"""What can be extracted of texts that a model was trained on: `vestige memorization`."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from os import fspath
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from annotated_types import Ge, Gt

from vestige import _validate
from vestige.monitor import SILENT, Monitor
from vestige.workflows.arguments import Call
from vestige.workflows.endpoint_settings import EndpointSettings
from vestige.workflows.options import (
    DATA,
    CorpusLike,
    DataFormat,
    Device,
    Directory,
    Flag,
    Group,
    Help,
    Limit,
    Metavar,
    ModelLike,
    Seed,
    TextColumn,
)

if TYPE_CHECKING:
    import numpy as np

    from vestige.attacks.texts.memorized_texts import Extraction
    from vestige.attacks.texts.text_memorization import TextMemorization
    from vestige.claims import Check
    from vestige.models.protocols import LanguageModel
    from vestige.workflows.endpoint_memorization import MeasuredMemorization
    from vestige.workflows.listed_texts import ListedTexts

OUTPUT, EXTRACTION = Group("Output"), Group("What counts as extracted")
EXCERPT = 200
"""Characters of a text that a run keeps."""
ROWS = 32
"""Texts that are continued together."""
COMPARED = 8
"""Texts on which an adapter is compared with its base."""


def memorization(
    model: ModelLike,
    texts: Annotated[CorpusLike, Flag("--texts"), Metavar("DATA")],
    *,
    reference: Annotated[CorpusLike | None, Metavar("DATA")] = None,
    out: Annotated[Directory | None, OUTPUT] = None,
    prefix: Annotated[int, Ge(1), EXTRACTION] = 50,
    suffix: Annotated[int, Ge(1), EXTRACTION] = 50,
    tries: Annotated[int, Ge(1), EXTRACTION] = 100,
    chance: Annotated[float, EXTRACTION] = 0.5,
    top_k: Annotated[int, Ge(1), EXTRACTION] = 20,
    temperature: Annotated[float, Gt(0), EXTRACTION] = 1.0,
    continued: Annotated[int, Ge(0), EXTRACTION] = 200,
    statistics: Annotated[Directory | None, OUTPUT] = None,
    format: DataFormat = "auto",
    text: TextColumn = "text",
    author: Annotated[str | None, DATA, Help("The column or field with the author.")] = None,
    limit: Limit = None,
    seed: Seed = 0,
    device: Device = "auto",
    endpoint: EndpointSettings = EndpointSettings(),
    monitor: Monitor = SILENT,
) -> "TextMemorization":
    """Measure how much of its training text can be extracted from a model.

    Each text is cut into passages of `suffix` tokens, and the model is queried for each after all of
    the text before it: whether greedy decoding generates it verbatim, and how many samples are
    needed until one is the passage ((n, p)-discoverable extraction). Neither needs text to be
    generated. Extraction strength, exact memorization and the longest verbatim run of each text are
    reported as well, and how similar the greedy continuation of some texts is.

    Common phrases are extracted from any model. `reference`, texts of the same kind that it did not
    read, shows how many: each figure is compared with theirs, with an interval of the difference.
    The verdict rests on this comparison.

    Near-duplicates count as one text. With `author`, all texts of an author count as one.

    The model's outputs are cached in `statistics`, which `vestige audit-texts` reads too: the same
    command resumes where it was interrupted. Both directories hold unredacted texts.

    A served model is queried in its own tokens. The most probable tokens at each position, which it
    returns, show as much as its files would, as long as samples are drawn from no more of them.

    Args:
        model: A model or training directory, a Hugging Face model, or an adapter; or an endpoint,
            openai:URL#MODEL, which must echo the log-probabilities of a prompt.
        texts: What the model was trained on, a text a row.
        reference: Texts of the same kind that are known not to be in the training data.
        out: A directory to make, for `vestige report`. Python may leave it out.
        prefix: Tokens of a text before its first passage.
        suffix: Tokens of a passage.
        tries: How many samples an attacker draws of each passage.
        chance: Probability, in (0, 1), with which one of them must be the passage.
        top_k: Samples are drawn from so many most probable tokens; 1 is greedy decoding.
        temperature: Of the samples.
        continued: How many random texts are continued greedily after their prefix, to measure how
            similar that is; 0 for none.
        statistics: Where token statistics are cached. Default: next to `out`, named after it.

    Returns:
        What is extracted of each text, and of all of them.

    Raises:
        ValueError: a setting is out of range.
        VestigeError: something cannot be read, no text is long enough, or both files share texts or
            authors.

    Examples:
        vestige memorization fine-tuned --texts mine.jsonl --reference never.jsonl --out memory

        vestige memorization fine-tuned --texts mine.jsonl --prefix 9 --suffix 9 --out memory --show-secrets
    """  # noqa: E501
    from vestige import results
    from vestige.attacks.texts.memorized_texts import Extraction
    from vestige.attacks.texts.text_memorization import TextMemorization, more_extracted
    from vestige.models.endpoint_address import is_endpoint
    from vestige.models.provenance import of_corpus
    from vestige.workflows.endpoint_memorization import served_memorization
    from vestige.workflows.listed_texts import listed_texts

    call = Call.of(memorization, locals())
    _validate.open_fraction(**{"`chance`": chance})
    if out is not None:
        results.require_new(Path(out))
    given = {"texts": texts, **({} if reference is None else {"reference": reference})}
    lists = listed_texts(given, author=author, format=format, text=text, limit=limit)
    how = Extraction(
        prefix=prefix, suffix=suffix, tries=tries, chance=chance, top_k=top_k,
        temperature=temperature,
    )  # fmt: skip
    folder = statistics or (None if out is None else f"{fspath(out)}.statistics")
    kept = None if folder is None else Path(folder)
    if is_endpoint(model):
        measured = served_memorization(
            model, lists, how, endpoint,
            continued=continued, seed=seed, folder=kept, monitor=monitor,
        )  # fmt: skip
    else:
        endpoint.refuse_for_folder()
        measured = _of_folder(
            model, lists, how, continued=continued, seed=seed, folder=kept, device=device,
            monitor=monitor,
        )  # fmt: skip
    own, rest = measured.found["texts"], measured.found.get("reference")
    found = TextMemorization(
        texts=own,
        reference=rest,
        extraction=measured.extraction,
        p_value=None if rest is None else more_extracted(own, rest, seed=seed),
        checks=_checks(measured, lists, seed=seed),
        excerpts=tuple(one[:EXCERPT] for one in lists.compared["texts"]),
    )
    found = call.record(
        found,
        configuration={"continued": continued, "seconds": call.seconds},
        seed=seed,
        models=measured.recorded,
        data={role: of_corpus(given[role], corpus) for role, corpus in lists.read.items()},
    )
    if out is not None:
        results.save(found, Path(out), run=found.record)
    return found


def _of_folder(
    model: ModelLike,
    lists: "ListedTexts",
    how: "Extraction",
    *,
    continued: int,
    seed: int,
    folder: Path | None,
    device: str,
    monitor: Monitor,
) -> "MeasuredMemorization":
    """What is extracted from a model that is read."""
    from vestige.attacks.model_checks import adapter_check
    from vestige.attacks.texts.memorized_texts import drawn_texts, memorized, with_continued
    from vestige.workflows.endpoint_memorization import MeasuredMemorization
    from vestige.workflows.text_models import TextModels

    models = TextModels.alone(model, device=device)
    how = replace(how, top_k=min(how.top_k, models.target.vocab_size))
    found, statistics = {}, {}
    for role, ids in models.encoded_lists(lists.compared).items():
        said = models.statistics(
            ids, folder, of=f"the {role}", monitor=monitor, likeliest=max(20, how.top_k)
        )["target"]
        every = memorized(said, how, lists.units_of(role))
        places = drawn_texts(every, continued, seed=seed)
        found[role] = with_continued(every, places, _written(models.target, ids, places, how))
        statistics[role] = said
    audited = list(lists.compared["texts"])
    adapter = adapter_check(models.target, seed=seed, texts=models.encoded(audited[:COMPARED]))
    return MeasuredMemorization(
        found, how, dict(models.recorded), statistics, models.read_of(audited),
        () if adapter is None else (adapter,),
    )  # fmt: skip


def _checks(
    measured: "MeasuredMemorization", lists: "ListedTexts", *, seed: int
) -> "tuple[Check, ...]":
    """All checks but "powerful"."""
    from vestige import claims
    from vestige.attacks.texts.list_checks import comparable_texts, model_checks
    from vestige.attacks.texts.text_memorization import compared_tokens

    own, rest = measured.found["texts"], measured.found.get("reference")
    known = measured.statistics
    asked = {"the model": (known["texts"], known["reference" if rest else "texts"])}
    scored, every = measured.read
    compared = compared_tokens(own, rest or own, measured.extraction)
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


def _written(
    model: "LanguageModel",
    ids: Sequence[Sequence[int]],
    places: "np.ndarray[tuple[int], np.dtype[np.int64]]",
    how: "Extraction",
) -> Iterator[tuple[list[int], list[int]]]:
    """What greedy decoding generates after the first tokens of some texts, and the text there."""
    import numpy as np

    for some in np.array_split(places, -(-len(places) // ROWS) or 1):
        said = _greedy(model, [ids[place][: how.prefix] for place in some], how.suffix)
        for place, own in zip(some, said.tolist(), strict=True):
            yield own, list(ids[place][how.prefix : how.prefix + how.suffix])


def _greedy(
    model: "LanguageModel", prefixes: Sequence[Sequence[int]], length: int
) -> "np.ndarray[tuple[int, int], np.dtype[np.int64]]":
    """(n, length) what greedy decoding generates after each prefix."""
    import numpy as np
    import torch

    from vestige.attacks.exposure.continuations import best_continuations

    if not prefixes:
        return np.empty((0, length), dtype=np.int64)
    with torch.no_grad():
        rows = torch.tensor(prefixes, device=model.device)
        found = best_continuations(model, rows, length, width=1)
    said: np.ndarray[tuple[int, int], np.dtype[np.int64]] = found.tokens[:, 0].cpu().numpy()
    return said
