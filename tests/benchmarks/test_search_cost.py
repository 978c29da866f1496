"""`benchmarks/search_cost.py` records the passes of the search and replays them."""

import pytest
from harness import seconds
from search_cost import Pass, random_models, recorded_search, replay


@pytest.mark.slow
def test_recorded_passes_read_the_forward_tokens_of_the_search():
    recorders, read, _ = recorded_search(*random_models(), samples=3)
    assert read == sum(recorder.forward_tokens for recorder in recorders) > 40
    assert sum(each.tokens == 0 for each in recorders[1].passes) > 5  # heads alone
    for recorder in recorders:
        assert seconds(replay(recorder.model, recorder.passes)) > 0


def test_replayed_passes_have_the_recorded_shapes(monkeypatch):
    model, _ = random_models()
    shapes = []
    forward = model.network.transformer.forward

    def watched(input_ids, past_key_values, **rest):
        shapes.append((*input_ids.shape, past_key_values.get_seq_length()))
        return forward(input_ids=input_ids, past_key_values=past_key_values, **rest)

    monkeypatch.setattr(model.network.transformer, "forward", watched)
    replay(model, [Pass(3, 0, 2), Pass(3), Pass(2, 2, 1), Pass(2, 3, 1)])()
    assert shapes[1:] == [(3, 2, 0), (2, 1, 2), (2, 1, 3)]  # the first pass is a warm-up
