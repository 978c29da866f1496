"""What comes back of texts that a model was trained on: `vestige memorization`."""

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
    CorpusLike,
    DataFormat,
    Device,
    Directory,
    Flag,
    Group,
    Limit,
    Metavar,
    ModelLike,
    Seed,
    TextColumn,
)

if TYPE_CHECKING:
    import numpy as np

    from vestige.attacks.texts.text_memorization import Extraction, TextMemorization
    from vestige.models.protocols import LanguageModel

OUTPUT, EXTRACTION = Group("Output"), Group("What counts as coming back")
EXCERPT = 200
"""Characters of a text that a run keeps."""
ROWS = 32
"""Texts that are continued together."""


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
    limit: Limit = None,
    seed: Seed = 0,
    device: Device = "auto",
    endpoint: EndpointSettings = EndpointSettings(),
    monitor: Monitor = SILENT,
) -> "TextMemorization":
    """Say how much of its training texts a model gives back.

    Each text is cut into passages of `suffix` tokens, and the model is asked for each behind all of
    the text before it: whether greedy decoding says it word for word, and how many samples it takes
    until one is the passage ((n, p)-discoverable extraction). Neither needs text to be generated.
    Beside them stand extraction strength, exact memorization and the longest verbatim run of each
    text, and how near the greedy continuation of some texts comes.

    Common phrases come back from any model. `reference`, texts of the same kind that it never saw,
    says how many: each figure stands beside theirs, with an interval of the difference.

    What the model says of each text is kept in `statistics`, which `vestige audit-texts` reads too:
    the same command goes on where it was interrupted. Both directories hold texts in the clear.

    A model that is served is asked in tokens of its own. What it shows, the likeliest tokens of
    each place, tells as much as its files would, while samples are drawn from no more of them.

    Args:
        model: A model or training directory, a Hugging Face model, or an adapter; or an endpoint,
            openai:URL#MODEL, which must echo the log-probabilities of a prompt.
        texts: What the model was trained on, a text a row.
        reference: Texts of the same kind that are known not to be in the training data.
        out: A directory to make, for `vestige report`. Python may leave it out.
        prefix: Tokens of a text that stand before its first passage.
        suffix: Tokens of a passage.
        tries: How many samples an attacker draws of each passage.
        chance: With which one of them must be the passage, in (0, 1).
        top_k: The next token is drawn from so many likeliest; 1 is greedy decoding.
        temperature: Of the draw.
        continued: How many texts, drawn at random, are continued greedily behind their prefix, to
            see how near that comes; 0 for none.
        statistics: Where token statistics are kept. Default: beside `out`, named after it.

    Returns:
        What comes back of each text, and of all of them.

    Raises:
        ValueError: a setting is out of range.
        VestigeError: something cannot be read, no text is long enough, or texts stand in both
            files.

    Examples:
        vestige memorization fine-tuned --texts mine.jsonl --reference never.jsonl --out memory

        vestige memorization fine-tuned --texts mine.jsonl --prefix 9 --suffix 9 --out memory --show-secrets
    """  # noqa: E501
    from vestige import results
    from vestige.attacks.texts.text_memorization import (
        Extraction,
        TextMemorization,
        drawn_texts,
        memorized,
        with_continued,
    )
    from vestige.models.endpoint_address import is_endpoint
    from vestige.workflows.endpoint_memorization import served_memorization
    from vestige.workflows.provenance import of_corpus
    from vestige.workflows.text_lists import read_lists
    from vestige.workflows.text_models import TextModels

    call = Call.of(memorization, locals())
    _validate.open_fraction(**{"`chance`": chance})
    if out is not None:
        results.require_new(Path(out))
    given = {"texts": texts, **({} if reference is None else {"reference": reference})}
    lists = read_lists(given, format=format, text=text, limit=limit)
    how = Extraction(
        prefix=prefix, suffix=suffix, tries=tries, chance=chance, top_k=top_k,
        temperature=temperature,
    )  # fmt: skip
    folder = statistics or (None if out is None else f"{fspath(out)}.statistics")
    kept = None if folder is None else Path(folder)
    recorded: dict[str, object]
    if is_endpoint(model):
        asked = served_memorization(
            model, lists, how, endpoint,
            continued=continued, seed=seed, folder=kept, monitor=monitor,
        )  # fmt: skip
        found, how, recorded = asked.found, asked.extraction, asked.recorded
    else:
        endpoint.refuse_for_folder()
        models = TextModels.alone(model, device=device)
        how = replace(how, top_k=min(top_k, models.target.vocab_size))
        found, recorded = {}, models.recorded
        for role, ids in models.encoded_lists(lists).items():
            said = models.statistics(
                ids, kept, of=f"the {role}", monitor=monitor, likeliest=max(20, top_k)
            )
            every = memorized(said["target"], how)
            places = drawn_texts(every, continued, seed=seed)
            pairs = _written(models.target, ids, places, how)
            found[role] = with_continued(every, places, pairs)
    measured = TextMemorization(
        texts=found["texts"],
        reference=found.get("reference"),
        extraction=how,
        excerpts=tuple(one[:EXCERPT] for one in lists["texts"]),
    )
    measured = call.record(
        measured,
        configuration={"continued": continued, "seconds": call.seconds},
        seed=seed,
        models=recorded,
        data={role: of_corpus(given[role], corpus) for role, corpus in lists.items()},
    )
    if out is not None:
        results.save(measured, Path(out), run=measured.record)
    return measured


def _written(
    model: "LanguageModel",
    ids: Sequence[Sequence[int]],
    places: "np.ndarray[tuple[int], np.dtype[np.int64]]",
    how: "Extraction",
) -> Iterator[tuple[list[int], list[int]]]:
    """What greedy decoding says behind the first tokens of some texts, and what stands there."""
    import numpy as np

    for some in np.array_split(places, -(-len(places) // ROWS) or 1):
        said = _greedy(model, [ids[place][: how.prefix] for place in some], how.suffix)
        for place, own in zip(some, said.tolist(), strict=True):
            yield own, list(ids[place][how.prefix : how.prefix + how.suffix])


def _greedy(
    model: "LanguageModel", prefixes: Sequence[Sequence[int]], length: int
) -> "np.ndarray[tuple[int, int], np.dtype[np.int64]]":
    """(n, length) what greedy decoding says behind each prefix."""
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
