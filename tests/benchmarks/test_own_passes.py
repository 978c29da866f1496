"""The passes that a benchmark times are those of the search."""

from own_passes import Pass, Recorder, seconds_of, weight_bytes
from update_diff import subword_snapshots

from vestige.audits.update.pair import Pair
from vestige.audits.update.scores import TokenScore
from vestige.audits.update.search import search
from vestige.audits.update.settings import Sampling, Settings
from vestige.models.lora import add_lora


def test_recorded_passes_read_the_forward_tokens_of_the_search():
    models = [Recorder(one) for one in subword_snapshots(None)]
    few = Settings(sampling=Sampling(samples=3, length=5, alternatives=4), openings=2, pairs=0)
    pair = Pair.of(*models, TokenScore("smoothed"))
    search(pair, few)
    assert sum(pair.tokens_read) == sum(one.forward_tokens for one in models) > 40
    assert sum(one.tokens == 0 for one in models[1].passes) > 5  # heads
    assert all(seconds_of(one.model, one.passes) > 0 for one in models)


def test_replayed_passes_have_the_recorded_shapes(monkeypatch):
    model, _ = subword_snapshots(None)
    seen = []
    forward = model.network.transformer.forward

    def watched(input_ids, past_key_values, **rest):
        seen.append((*input_ids.shape, past_key_values.get_seq_length()))
        return forward(input_ids=input_ids, past_key_values=past_key_values, **rest)

    monkeypatch.setattr(model.network.transformer, "forward", watched)
    seconds_of(model, [Pass(3, 0, 2), Pass(3), Pass(2, 2, 1), Pass(2, 3, 1)])
    assert seen[1:] == [(3, 2, 0), (2, 1, 2), (2, 1, 3)]  # the first one learns the sizes


def test_an_adapter_adds_only_its_own_tensors():
    base, _ = subword_snapshots(None)
    adapted = add_lora(base, rank=2)
    own = sum(p.nbytes for name, p in adapted.named_parameters() if "lora" in name)
    assert weight_bytes(base, adapted) == weight_bytes(base) + own
