"""Searches fit models that read few tokens."""

from types import SimpleNamespace

import pytest
from vestige.attacks.update.proposals.samples import Samples
from vestige.attacks.update.seed_and_extend import SeedAndExtend

from vestige.audits.update.search import fitted, room


@pytest.mark.parametrize(("longest", "context"), [(20, 1), (64, 9), (128, 79)])
def test_no_text_of_a_search_is_longer_than_a_model_reads(longest, context):
    models = (SimpleNamespace(longest=longest), SimpleNamespace(longest=1000))
    search = fitted(SeedAndExtend(), models, context=context)
    [samples] = [one for one in search.proposals if isinstance(one, Samples)]
    assert context + samples.length <= longest
    assert context + samples.context + search.max_tokens <= longest
    longer = SimpleNamespace(longest=longest + 1)
    wider = fitted(SeedAndExtend(), (longer,), context=context)
    assert (wider.max_tokens > search.max_tokens) == (search.max_tokens < SeedAndExtend.max_tokens)


def test_a_search_that_fits_is_left_as_it_is():
    for models in ((), (SimpleNamespace(), SimpleNamespace(longest=None))):
        assert fitted(SeedAndExtend(), models, context=50) == SeedAndExtend()
    assert fitted(SeedAndExtend(), (SimpleNamespace(longest=1024),), context=1) == SeedAndExtend()


def test_room_is_for_the_longest_text_and_a_beginning():
    assert room(SeedAndExtend(proposals=(Samples(length=30),), max_tokens=48)) == 49
    assert room(SeedAndExtend(proposals=(Samples(length=60),), max_tokens=48)) == 61
