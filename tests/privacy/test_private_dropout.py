"""With dropout, adding one unit changes the noiseless sum by at most the clipping norm."""

import pytest
import torch

import vestige
from vestige.data.vocabulary import WordVocabulary
from vestige.defences.methods.private import DPFedAvg
from vestige.models.checkpoints import load_model, save_model
from vestige.models.recurrent_network import GRUConfig, LSTMConfig
from vestige.models.transformer import TransformerConfig
from vestige.preparation.options import TrainingOptions
from vestige.training.new_models import new_model

CLIP, RATE, LENGTH = 0.05, 20.0, 24
WORDS = WordVocabulary(("<unk>", "<eos>", *(f"w{index}" for index in range(40))))
DROPOUT = {"dropout_in": 0.1, "dropout_out": 0.1, "embedding_size": 12, "hidden_size": 12}
SHAPES = {
    "lstm": LSTMConfig(layers=2, initial_range=0.5, **DROPOUT),
    "gru": GRUConfig(layers=1, initial_range=0.5, **DROPOUT),
    "transformer": TransformerConfig(
        layers=2, heads=2, hidden_size=12, feed_forward=24, max_length=LENGTH, dropout=0.1
    ),
}
SEEDED = {"noise_multiplier": 0.0, "noise_seed_without_guarantee": 3, "max_grad_norm": CLIP}


def weight_change(directory, shape: str, defence, rows: int) -> torch.Tensor:
    """Change of the weights in one step on the first `rows` texts, times `rows`."""
    start = directory / "start"
    if not start.exists():
        save_model(new_model(WORDS, SHAPES[shape], seed=0), start)
    texts = [" ".join(f"w{(7 * n + k) % 40}" for k in range(3 + n % 5)) for n in range(rows)]
    data = directory / f"{rows}.csv"
    data.write_text("text,user\n" + "".join(f"{text},u{n:02}\n" for n, text in enumerate(texts)))
    out = directory / f"out {rows}"
    vestige.train(
        data, out=out, from_=start, hold_out=0, defence=defence, user="user",
        training=TrainingOptions(
            batch_size=rows, sequence_length=LENGTH, epochs=1, optimizer="sgd", learning_rate=RATE
        ),
    )  # fmt: skip
    before, after = (
        torch.cat([p.detach().flatten() for p in load_model(model).parameters()])
        for model in (start, out)
    )
    return (before - after).double() * rows / RATE


@pytest.mark.slow
@pytest.mark.parametrize("rows", [9, 33, 65])
@pytest.mark.parametrize(
    ("shape", "defence"),
    [
        ("lstm", vestige.DPSGD(**SEEDED)),
        ("lstm", vestige.DPSGD(unit="user", **SEEDED)),
        ("gru", vestige.DPSGD(unit="user", **SEEDED)),
        ("transformer", vestige.DPSGD(**SEEDED)),
        ("transformer", vestige.DPSGD(physical_batch_size=4, **SEEDED)),
        ("transformer", vestige.DPSGD(unit="user", **SEEDED)),
        ("lstm", DPFedAvg(**SEEDED)),
        ("transformer", DPFedAvg(**SEEDED)),
    ],
)
def test_adding_a_unit_changes_the_sum_by_at_most_the_clipping_norm(tmp_path, shape, defence, rows):
    with_unit, without_unit = (weight_change(tmp_path, shape, defence, n) for n in (rows, rows - 1))
    change = with_unit - without_unit
    assert change.norm().item() <= CLIP * 1.0005
    assert change.norm().item() > 0.5 * CLIP
