"""Memorization asked of a server, in tokens of its own.

Whether greedy decoding says a passage, and how likely a sample is it where the next token is drawn
from the k likeliest, is told by the k likeliest tokens of each place: a server that shows them and
echoes prompts tells as much as the model's files. Only a text's first token is unknown; it counts
as one that does not come back.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from vestige.monitor import Monitor
from vestige.workflows.endpoint_settings import EndpointSettings
from vestige.workflows.endpoint_texts import STEP, ServedTexts
from vestige.workflows.told_tokens import by_role, only, told_by_all

if TYPE_CHECKING:
    from vestige.attacks.texts.memorized_texts import Extraction, MemorizedTexts
    from vestige.attacks.texts.token_statistics import TokenStatistics
    from vestige.claims import Check
    from vestige.workflows.listed_texts import ListedTexts


@dataclass(frozen=True)
class MeasuredMemorization:
    """What is extracted of texts from a model, and what its checks need.

    Attributes:
        found: by list.
        extraction: what counts as extracted; samples are drawn from no more tokens than are known.
        recorded: what a run records of the model.
        statistics: by list, of the tokens with a known log-probability.
        read: tokens of the audited texts that were scored, and all that they have.
        checks: of the model, besides those that its statistics allow.
    """

    found: "dict[str, MemorizedTexts]"
    extraction: "Extraction"
    recorded: dict[str, object]
    statistics: "dict[str, TokenStatistics]"
    read: tuple[int, int]
    checks: "tuple[Check, ...]" = ()


def served_memorization(
    model: object,
    lists: "ListedTexts",
    how: "Extraction",
    settings: EndpointSettings,
    *,
    continued: int,
    seed: int,
    folder: Path | None,
    monitor: Monitor,
) -> MeasuredMemorization:
    """Query a server about each text, and have it continue some.

    Args:
        model: its address.
        lists: the texts.
        how: what counts as extracted, in tokens of the server.
        settings: limits of the queries.
        continued: texts of each list, drawn at random, that it continues after their prefix.
        seed: of the draw.
        folder: where its answers are cached; None caches nothing.
        monitor: told of cost and progress.

    Raises:
        ModelError: the address is none, or the server gives no answer; its answers are cached.
        DataError: the budget is too small, no prompt is echoed, or no text is long enough.
    """
    from vestige.attacks.texts.memorized_texts import drawn_texts, memorized, with_continued

    served = ServedTexts.open(model, None, settings, device="cpu")
    texts = {role: list(corpus) for role, corpus in lists.compared.items()}
    every = [text for some in texts.values() for text in some]
    served.tell_cost(every, monitor, continued=continued * len(texts), length=how.suffix)
    with ExitStack() as stack:
        place = folder or Path(stack.enter_context(TemporaryDirectory()))
        cuts, known = _said(served, every, place, monitor)
        shown = served.accesses["target"].shown
        if how.top_k > shown:
            monitor.log(f"Samples are drawn from the {shown} likeliest tokens, all that is shown")
            how = replace(how, top_k=shown)
        said = {
            role: own["target"]
            for role, own in by_role(
                {role: len(own) for role, own in texts.items()}, {"target": known}
            ).items()
        }
        found = {role: memorized(own, how, lists.units_of(role)) for role, own in said.items()}
        drawn = {role: drawn_texts(own, continued, seed=seed) for role, own in found.items()}
        before = dict(zip(texts, _begins(texts), strict=True))
        asked = [before[role] + at for role, places in drawn.items() for at in places.tolist()]
        pairs = _written(served, every, cuts, asked, how, place, monitor)
        for role, places in drawn.items():
            found[role] = with_continued(found[role], places, pairs)
    record = served.recorded["target"]
    assert isinstance(record, dict)
    scored = {role: only(own, told_by_all({"target": own})) for role, own in said.items()}
    # A server says nothing of the first token of a text.
    every_token = said["texts"].log_probs.size - len(texts["texts"])
    return MeasuredMemorization(
        found, how, {"target": {**record, **served.spent}}, scored,
        (scored["texts"].log_probs.size, every_token),
    )  # fmt: skip


def _begins(texts: Mapping[str, Sequence[str]]) -> Iterator[int]:
    first = 0
    for own in texts.values():
        yield first
        first += len(own)


def _said(
    served: ServedTexts, texts: Sequence[str], folder: Path, monitor: Monitor
) -> "tuple[list[list[int]], TokenStatistics]":
    """Where the server's tokens end in each text, and what it says of them."""
    import numpy as np

    from vestige.attacks.texts.endpoint_statistics import numbered, shown_statistics
    from vestige.models.endpoint_tokens import places

    shown = served.shown_by("target", texts, folder, monitor)
    cuts = [sorted({*places(text, own)} - {0}) for text, own in zip(texts, shown, strict=True)]
    most = served.accesses["target"].shown
    said = shown_statistics(texts, shown, cuts, ids=numbered(texts, cuts), likeliest=most)
    unknown = np.isnan(said.likeliest_log_probs[:, 0])
    unknown[said.offsets[:-1]] = False
    if unknown.any():
        monitor.log(
            f"Of {unknown.mean():.1%} of the tokens the server shows nothing that spells the text, "
            "such as marks of a chat template: passages with one are left out"
        )
    return cuts, replace(said, ranks=np.where(said.ranks < 0, most, said.ranks))


def _written(
    served: ServedTexts,
    texts: Sequence[str],
    cuts: Sequence[Sequence[int]],
    asked: Sequence[int],
    how: "Extraction",
    folder: Path,
    monitor: Monitor,
) -> Iterator[tuple[list[str], list[str]]]:
    """What the server writes behind the prefix of some texts, and what stands there, in tokens."""
    from vestige.models.endpoint_wire import Question

    if not asked:
        return
    begins = [cuts[place][how.prefix - 1] for place in asked]
    questions = [
        Question(texts[place][:begin], shown=1, length=how.suffix, greedy=True)
        for place, begin in zip(asked, begins, strict=True)
    ]
    replies = []
    with (
        served.session("target", folder, monitor) as (endpoint, _),
        monitor.progress("having the target go on with texts") as step,
    ):
        some = STEP * served.settings.concurrency * endpoint.limits.together
        for first in range(0, len(questions), some):
            told = endpoint.ask(questions[first : first + some])
            replies += [reply for reply in told if reply is not None]
            if len(replies) < min(first + some, len(questions)):
                raise endpoint.failed()
            step(len(replies), len(questions))
    for place, reply in zip(asked, replies, strict=True):
        ends = cuts[place][how.prefix - 1 : how.prefix + how.suffix]
        true = [texts[place][a:b] for a, b in pairwise(ends)]
        yield [token.text for token in reply.tokens], true
