"""Searches fit models that read few tokens."""

from types import SimpleNamespace

import pytest

from vestige.audits.update.prompts import BEGINNING, Prompt
from vestige.audits.update.settings import Sampling, Settings


def fitted(longest, prompt):
    """The settings for a pair that reads so many tokens, after a prompt of so many."""
    prompts = [Prompt(BEGINNING, (0,)), Prompt("prompt 1", (1,) * prompt)]
    return Settings().fitted(SimpleNamespace(longest=longest), prompts)


@pytest.mark.parametrize(("longest", "prompt"), [(20, 1), (64, 9), (128, 79)])
def test_no_text_of_a_search_is_longer_than_a_model_reads(longest, prompt):
    settings = fitted(longest, prompt)
    assert prompt + settings.sampling.length <= longest
    assert prompt + settings.sampling.context + settings.max_tokens <= longest
    wider = fitted(longest + 1, prompt)
    assert (wider.max_tokens > settings.max_tokens) == (settings.max_tokens < Settings.max_tokens)


def test_a_search_that_fits_is_left_as_it_is():
    assert fitted(None, 50) == fitted(1024, 1) == Settings()


def test_room_is_for_the_longest_text_and_a_beginning():
    assert Settings(sampling=Sampling(length=30), max_tokens=48).room == 49
    assert Settings(sampling=Sampling(length=60), max_tokens=48).room == 61
