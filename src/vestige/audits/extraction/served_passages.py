"""Passages extracted from a server that echoes prompts.

The most probable tokens of each position, which the server shows, decide whether greedy decoding
generates a passage, and how probable a sample of it is. Only the first token of a text is unknown;
it counts as not generated.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from vestige.attacks.texts.readings import by_list, known_by_all, only
from vestige.attacks.texts.served_texts import STEP, ServedTexts
from vestige.audits.extraction.passages import Measured
from vestige.models.remote_options import RemoteOptions
from vestige.session import Session

if TYPE_CHECKING:
    from vestige.attacks.texts.cached_outputs import CachedOutputs
    from vestige.attacks.texts.lists import ListedTexts
    from vestige.attacks.texts.memorized_texts import Extraction
    from vestige.attacks.texts.token_statistics import TokenStatistics


def served_passages(
    run: Session,
    model: object,
    lists: "ListedTexts",
    how: "Extraction",
    *,
    continued: int,
    outputs: "CachedOutputs",
    remote: RemoteOptions,
) -> Measured:
    """What is extracted from a server, in its own tokens.

    Args:
        model: its address.
        lists: the texts.
        how: what counts as extracted.
        continued: random texts of each list that the server continues after their prefix.
        outputs: with its cached answers.
        remote: limits of the queries.

    Raises:
        ModelError: the address is invalid, or the server does not answer; its answers are cached.
        DataError: the budget is too small, no prompt is echoed, or no text is long enough.
    """
    from vestige.attacks.texts.memorized_texts import drawn_texts, memorized, with_continued

    served = ServedTexts.open(model, None, remote, device="cpu")
    texts = {role: list(corpus) for role, corpus in lists.compared.items()}
    every = [text for some in texts.values() for text in some]
    served.log_cost(every, run.monitor, continued=continued * len(texts), length=how.suffix)
    cuts, known = _statistics(run, served, every, outputs)
    shown = served.accesses["target"].shown
    if how.top_k > shown:
        run.log(f"Samples use the {shown} most probable tokens, all that the server shows")
        how = replace(how, top_k=shown)
    counts = {role: len(own) for role, own in texts.items()}
    read = {role: own["target"] for role, own in by_list(counts, {"target": known}).items()}
    found = {role: memorized(own, how, lists.units_of(role)) for role, own in read.items()}
    drawn = {role: drawn_texts(own, continued, seed=run.seed) for role, own in found.items()}
    first = dict(zip(counts, accumulate(counts.values(), initial=0), strict=False))
    asked = [first[role] + at for role, places in drawn.items() for at in places.tolist()]
    pairs = _continued(run, served, every, cuts, asked, how, outputs)
    for role, places in drawn.items():
        found[role] = with_continued(found[role], places, pairs)
    record = served.recorded["target"]
    assert isinstance(record, dict)
    run.models["target"] = {**record, **served.spent}
    scored = {role: only(own, known_by_all({"target": own})) for role, own in read.items()}
    # A server shows nothing of the first token of a text.
    every_token = read["texts"].log_probs.size - len(texts["texts"])
    return Measured(found, how, scored, (scored["texts"].log_probs.size, every_token))


def _statistics(
    run: Session, served: ServedTexts, texts: Sequence[str], outputs: "CachedOutputs"
) -> "tuple[list[list[int]], TokenStatistics]":
    """Where the server's tokens end in each text, and their statistics."""
    import numpy as np

    from vestige.attacks.texts.endpoint_statistics import numbered, shown_statistics
    from vestige.models.endpoint_tokens import places

    shown = served.shown_by("target", texts, outputs)
    cuts = [sorted({*places(text, own)} - {0}) for text, own in zip(texts, shown, strict=True)]
    most = served.accesses["target"].shown
    found = shown_statistics(texts, shown, cuts, ids=numbered(texts, cuts), likeliest=most)
    unknown = np.isnan(found.likeliest_log_probs[:, 0])
    unknown[found.offsets[:-1]] = False
    if unknown.any():
        run.log(
            f"{unknown.mean():.1%} of the tokens do not spell the text, such as marks of a chat "
            "template: passages with one are left out"
        )
    return cuts, replace(found, ranks=np.where(found.ranks < 0, most, found.ranks))


def _continued(
    run: Session,
    served: ServedTexts,
    texts: Sequence[str],
    cuts: Sequence[Sequence[int]],
    asked: Sequence[int],
    how: "Extraction",
    outputs: "CachedOutputs",
) -> Iterator[tuple[list[str], list[str]]]:
    """The server's continuation of some texts after their prefix, and the true one, in tokens."""
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
        served.session("target", outputs) as (endpoint, _),
        run.progress("continuing texts") as step,
    ):
        some = STEP * served.remote.concurrency * endpoint.limits.together
        for first in range(0, len(questions), some):
            answers = endpoint.ask(questions[first : first + some])
            replies += [reply for reply in answers if reply is not None]
            if len(replies) < min(first + some, len(questions)):
                raise endpoint.failed()
            step(len(replies), len(questions))
    for place, reply in zip(asked, replies, strict=True):
        ends = cuts[place][how.prefix - 1 : how.prefix + how.suffix]
        yield [token.text for token in reply.tokens], [texts[place][a:b] for a, b in pairwise(ends)]
