"""The passes that a benchmark times are those of the search."""

import pytest
from search_cost import Pass, random_models, recorded_search, seconds_of, weight_bytes

from vestige.models.lora import add_lora


@pytest.mark.slow
def test_recorded_passes_read_the_forward_tokens_of_the_search():
    models, read, _ = recorded_search(*random_models(), samples=3)
    assert read == sum(one.forward_tokens for one in models) > 40
    assert sum(one.tokens == 0 for one in models[1].passes) > 5  # heads
    assert all(seconds_of(one.model, one.passes) > 0 for one in models)


def test_replayed_passes_have_the_recorded_shapes(monkeypatch):
    model, _ = random_models()
    seen = []
    forward = model.network.transformer.forward

    def watched(input_ids, past_key_values, **rest):
        seen.append((*input_ids.shape, past_key_values.get_seq_length()))
        return forward(input_ids=input_ids, past_key_values=past_key_values, **rest)

    monkeypatch.setattr(model.network.transformer, "forward", watched)
    seconds_of(model, [Pass(3, 0, 2), Pass(3), Pass(2, 2, 1), Pass(2, 3, 1)])
    assert seen[1:] == [(3, 2, 0), (2, 1, 2), (2, 1, 3)]  # the first one learns the sizes


def test_an_adapter_adds_only_its_own_tensors():
    base, _ = random_models()
    adapted = add_lora(base, rank=2)
    own = sum(p.nbytes for name, p in adapted.named_parameters() if "lora" in name)
    assert weight_bytes(base, adapted) == weight_bytes(base) + own
