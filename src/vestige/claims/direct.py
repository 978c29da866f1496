"""Direct evidence: a listed secret that the later model generates verbatim.

If the secret was never read, the later model generates it only by coincidence, and the probability
of that is bounded: by one over the number of texts of its format, or by its probability under the
earlier model.
"""

from collections.abc import Sequence
from math import exp

from vestige.claims.claim import Direct
from vestige.claims.duplicates import normalized


def generated(
    secret: str,
    after: Sequence[str],
    before: Sequence[str],
    *,
    number: int,
    listed: int = 1,
    alternatives: float | None = None,
    same_format: int = 1,
    log_prob_before: float | None = None,
) -> Direct | None:
    """Evidence that a secret leaked, from texts that both models generated in the same way.

    With `alternatives`, the bound holds for a secret drawn uniformly from the texts of its format:
    the later model generated `same_format` of them, so it names the right one with probability at
    most same_format / alternatives. Without a format, each of the generated texts holds the secret
    with at most its probability under the earlier model (union bound). This supposes that a later
    model that never read the secret gives it no more probability than the earlier one.

    Args:
        secret: as listed.
        after: texts that the later model generated.
        before: texts that the earlier model generated, as many.
        number: of the secret in its list, for the sentence.
        listed: secrets that were looked for; the bound is multiplied by it.
        alternatives: texts of the secret's format, if it has one.
        same_format: distinct texts of that format among `after`.
        log_prob_before: natural log-probability of the secret under the earlier model.

    Returns:
        None where the later model did not generate it, the earlier model did as well, or
        coincidence cannot be bounded.
    """
    if not normalized(secret) or not _holds(after, secret) or _holds(before, secret):
        return None
    if alternatives is not None:
        bound = same_format * listed / alternatives
        how = f"{same_format:,} of {alternatives:,.0f} texts of its format were generated"
    elif log_prob_before is not None:
        bound = len(after) * listed * exp(min(0.0, log_prob_before))
        how = f"the earlier model gives it probability {exp(min(0.0, log_prob_before)):.1g}"
    else:
        return None
    bound = min(1.0, bound)
    return Direct(
        f"The later model generates secret {number} verbatim, the earlier one does not ({how}; "
        f"probability of coincidence at most {bound:.1g}).",
        bound,
    )


def _holds(texts: Sequence[str], secret: str) -> bool:
    wanted = f" {' '.join(normalized(secret))} "
    return any(wanted in f" {' '.join(normalized(text))} " for text in texts)
