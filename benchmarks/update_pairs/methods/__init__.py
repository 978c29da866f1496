"""A method a file, all under one protocol."""

from update_pairs.methods import (
    beams,
    contrastive_diffing,
    diff_mining,
    hybrid,
    pairs_and_openings,
    plain_samples,
    reversed_guidance,
)
from update_pairs.protocol import Search

METHODS: dict[str, Search] = {
    "hybrid": hybrid.search,
    "pairs and openings": pairs_and_openings.search,
    "beams": beams.search,
    "CDD": contrastive_diffing.search,
    "reversed guidance": reversed_guidance.search,
    "Diff Mining": diff_mining.search,
    "plain samples": plain_samples.search,
}
"""By name, in the order of the tables."""
