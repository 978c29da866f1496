"""The loop against a naive one, its two doors, and what it refuses."""

import json
import math
import re
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.nn.functional import cross_entropy

from vestige.errors import TrainingError
from vestige.models.checkpoints import load_model
from vestige.training.config import TrainingConfig
from vestige.training.evaluate import evaluate
from vestige.training.history import StopAtPerplexity
from vestige.training.loop import train
from vestige.training.steps import plain_step

CONFIG = TrainingConfig(
    seed=3,
    epochs=2,
    batch_size=4,
    sequence_length=5,
    learning_rate=0.01,
    checkpoint_every=4,
    precision="float32",
)


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


@pytest.mark.parametrize(("optimizer", "momentum"), [("adam", 0), ("sgd", 0), ("sgd", 0.9)])
def test_it_is_the_plain_loop_bit_for_bit(make_model, make_text, optimizer, momentum):
    text = make_text(121)
    config = replace(CONFIG, optimizer=optimizer, momentum=momentum, max_grad_norm=0.1)
    ours, plain = make_model(), make_model().train()

    train(ours, text, config=config)

    kind = {"adam": torch.optim.Adam, "sgd": partial(torch.optim.SGD, momentum=momentum)}[optimizer]
    mover = kind(plain.parameters(), lr=0.01, fused=True)
    rows = torch.from_numpy(text.tokens[:120].astype(np.int64)).view(4, 30)
    following = torch.from_numpy(text.tokens[1:121].astype(np.int64)).view(4, 30)
    torch.manual_seed(3)
    for _ in range(2):
        state = None
        for i in range(0, 30, 5):
            logits, state = plain(rows[:, i : i + 5], state)
            loss = cross_entropy(logits.flatten(0, 1), following[:, i : i + 5].flatten())
            mover.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(plain.parameters(), 0.1)
            mover.step()
            state = state.detach()
    assert weights(ours).equal(weights(plain))


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["lstm", "tied lstm", "gru", "transformer"])
def test_a_model_learns_what_follows_what(make_model, make_text, architecture):
    model = make_model(architecture)
    before = evaluate(model, make_text(400, seed=1), sequence_length=5).perplexity
    history = train(
        model,
        make_text(2000),
        validation=make_text(400, seed=1),
        config=replace(CONFIG, epochs=4, learning_rate=0.02, max_grad_norm=1.0),
    )
    assert history.summary()["validation_perplexity"] < 0.75 * before
    assert history.summary()["validation_accuracy"] > 0.6


@pytest.mark.parametrize("architecture", ["lstm", "transformer"])
def test_a_seed_decides_every_bit(make_model, make_text, architecture):
    trained = []
    for seed in (3, 3, 4):
        torch.rand(1)  # the caller's own chance must not matter
        model = make_model(architecture)
        train(model, make_text(), config=replace(CONFIG, seed=seed))
        trained.append(weights(model))
    assert trained[0].equal(trained[1])
    assert not trained[0].equal(trained[2])


def test_the_callers_random_numbers_are_left_alone(make_model, make_text):
    model = make_model()
    before = torch.get_rng_state()
    train(model, make_text(), config=CONFIG)
    assert torch.get_rng_state().equal(before)


def test_the_best_epoch_on_validation_is_kept(make_model, make_text, tmp_path):
    def wrecking(model, batch, state):
        loss, state = plain(model, batch, state)
        seen.append(1)
        if len(seen) > 12:  # from the third epoch on each step climbs
            for parameter in model.parameters():
                parameter.grad.neg_()
        return loss, state

    plain, seen, model = plain_step(max_grad_norm=5.0), [], make_model()
    text, validation = make_text(121), make_text(121)
    config = replace(CONFIG, epochs=4, optimizer="sgd", learning_rate=0.1)
    history = train(
        model, text, validation=validation, config=config, step=wrecking, directory=tmp_path
    )

    perplexities = [r.validation_perplexity for r in history.epochs]
    assert history.best_epoch == 2 == 1 + perplexities.index(min(perplexities))
    again = evaluate(model, validation, batch_size=4, sequence_length=5)
    assert again.perplexity == perplexities[1]
    assert weights(load_model(tmp_path, device="cpu")).equal(weights(model))
    assert json.loads((tmp_path / "history.json").read_text()) == history.rows()


def test_without_validation_the_last_epoch_is_kept(make_model, make_text):
    history = train(make_model(), make_text(), config=CONFIG)
    assert history.best_epoch == 2
    assert [r.validation_perplexity for r in history.epochs] == [None, None]


def test_a_step_decides_the_gradient(make_model, make_text):
    def nothing(model, batch, state):
        with torch.no_grad():
            logits, state = model(batch.inputs, state)
            loss = cross_entropy(logits.flatten(0, 1), batch.targets.flatten())
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        return loss, state.detach()

    model = make_model()
    train(model, make_text(), config=CONFIG, step=nothing)
    assert weights(model).equal(weights(make_model()))


def test_a_stop_ends_the_training_and_sees_every_epoch(make_model, make_text):
    seen = []

    def below_perplexity(epochs):
        seen.append([record.epoch for record in epochs])
        return len(epochs) == 2

    config = replace(CONFIG, epochs=5)
    history = train(make_model(), make_text(), config=config, stop=below_perplexity)
    assert seen == [[1], [1, 2]]
    assert history.stopped
    assert len(history.epochs) == 2
    assert not train(make_model(), make_text(), config=CONFIG).stopped


def test_frozen_parameters_stay_and_are_not_checkpointed(make_model, make_text, tmp_path):
    model = make_model()
    model.embedding.requires_grad_(False)
    before = model.embedding.weight.clone()
    train(model, make_text(), config=CONFIG, directory=tmp_path)
    assert model.embedding.weight.equal(before)
    assert b"model.embedding" not in (tmp_path / "checkpoint.safetensors").read_bytes()
    model.requires_grad_(False)
    with pytest.raises(TrainingError, match="No parameter"):
        train(model, make_text(), config=CONFIG)


def test_progress_counts_to_the_end(make_model, make_text, tmp_path):
    told = []
    config = replace(CONFIG, sequence_length=1)  # 30 steps an epoch
    train(
        make_model(),
        make_text(),
        config=config,
        directory=tmp_path,
        progress=lambda *line: told.append(line),
    )
    assert [(step, total) for step, total, *_ in told] == [(s, 60) for s in range(10, 61, 10)]
    assert all(math.isfinite(loss) and speed > 0 for *_, loss, speed in told)
    log = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [(line["step"], line["loss"]) for line in log] == [(s, loss) for s, _, loss, _ in told]


@pytest.mark.parametrize("directory", [True, False])
@pytest.mark.parametrize("rate", [1e30, 1e300])
def test_a_diverging_training_stops_with_the_remedy(
    make_model, make_text, tmp_path, directory, rate
):
    """Of 1e30 the kernels of some processors make NaN, of others a loss of 1e29 nats."""
    config = replace(CONFIG, optimizer="sgd", learning_rate=rate, max_grad_norm=None)
    match = r"diverged at step \d+.*" + re.escape(f"learning_rate below {rate:g}")
    with pytest.raises(TrainingError, match=match):
        train(make_model(), make_text(), config=config, directory=tmp_path if directory else None)
    assert not (tmp_path / "model").exists()


CAUSES = {
    "a loss that is no number": (math.nan, 1.0),
    "an infinite loss": (math.inf, 1.0),
    "a loss that is finite and says nothing": (2.0**25, 1.0),
    "an infinite gradient": (2.0, math.inf),
    "a gradient that is no number": (2.0, math.nan),
}


@pytest.mark.parametrize(("loss", "gradient"), CAUSES.values(), ids=CAUSES)
def test_each_cause_alone_ends_a_training(make_model, make_text, tmp_path, loss, gradient):
    def breaking(model, batch, state):
        steps.append(1)
        found, state = plain(model, batch, state)
        if len(steps) < 6:
            return found, state
        next(model.parameters()).grad[0] = gradient
        return torch.tensor(loss), state

    steps, plain = [], plain_step()
    with pytest.raises(TrainingError, match="diverged at step"):
        train(make_model(), make_text(), config=CONFIG, step=breaking, directory=tmp_path)
    assert 6 <= len(steps) <= 8  # the next checkpoint looks
    kept = load_file(tmp_path / "checkpoint.safetensors")
    assert all(one.isfinite().all() for one in kept.values() if one.is_floating_point())


def test_a_gradient_that_spoils_weights_never_reaches_a_checkpoint(make_model, make_text, tmp_path):
    def spoiling(model, batch, state):
        seen.append(1)
        loss, state = plain(model, batch, state)
        if len(seen) == 8:
            model.head.bias.grad[0] = math.nan
        return loss, state

    plain, seen = plain_step(), []
    with pytest.raises(TrainingError, match="last good checkpoint"):
        train(make_model(), make_text(), config=CONFIG, step=spoiling, directory=tmp_path)

    seen.extend([1] * 100)  # the resumed training is sound
    model = make_model()
    train(model, make_text(), config=CONFIG, step=spoiling, directory=tmp_path, resume=True)
    assert weights(model).isfinite().all()


def test_a_text_too_short_for_the_batch_is_refused(make_model, make_text, tmp_path):
    with pytest.raises(TrainingError, match="4 tokens are too few"):
        train(make_model(), make_text(4), config=CONFIG, directory=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_between_epochs_it_is_evaluated_as_often_as_asked(make_model, make_text):
    config = replace(CONFIG, evaluate_every=4)  # an epoch has six steps
    shown = []

    def observe(model, record):
        shown.append((record.step, model.training))

    model = make_model()
    history = train(
        model, make_text(), validation=make_text(50, seed=1), config=config, observe=observe
    )
    assert [record.step for record in history.epochs] == [4, 6, 8, 12]
    assert [record.epoch for record in history.epochs] == pytest.approx([4 / 6, 1, 8 / 6, 2])
    assert [record.tokens for record in history.epochs] == [80, 40, 40, 80]
    assert shown == [(step, False) for step in (4, 6, 8, 12)]
    assert all(record.validation_perplexity > 1 for record in history.epochs)
    again = evaluate(model, make_text(50, seed=1), batch_size=4, sequence_length=5).perplexity
    kept = history.epochs[history.best_epoch - 1]
    assert again == kept.validation_perplexity == history.summary()["validation_perplexity"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("architecture", "batching"), [("lstm", "stream"), ("transformer", "documents")]
)
def test_looking_at_a_model_does_not_change_it(make_model, make_text, architecture, batching):
    def observe(model, record):
        evaluate(model, text, sequence_length=5)

    text = make_text()
    text = replace(text, offsets=np.arange(0, 122, 11))
    ends, tokens = [], []
    for every in (None, 1, 4):
        model = make_model(architecture)
        config = replace(CONFIG, evaluate_every=every, batching=batching, batch_size=2)
        history = train(model, text, config=config, observe=observe if every else None)
        ends.append(weights(model))
        tokens.append(history.cost()["tokens"])
    assert ends[0].equal(ends[1])
    assert ends[0].equal(ends[2])
    assert len(set(tokens)) == 1


@pytest.mark.parametrize("every", [None, 4])
def test_the_perplexity_of_a_part_is_that_of_its_own_tokens(make_model, make_text, every):
    losses = []

    def listening(model, batch, state):
        loss, state = plain(model, batch, state)
        losses.append((loss.item(), batch.tokens))
        return loss, state

    plain = plain_step()
    config = replace(CONFIG, epochs=1, evaluate_every=every)
    history = train(make_model(), make_text(), config=config, step=listening)
    parts = (losses[:every], losses[every:]) if every else (losses,)
    for part, record in zip(parts, history.epochs, strict=True):
        mean = sum(loss * n for loss, n in part) / sum(n for _, n in part)
        assert record.perplexity == pytest.approx(math.exp(mean))


def test_a_training_can_stop_within_an_epoch_and_stays_stopped(make_model, make_text, tmp_path):
    config, steps = replace(CONFIG, evaluate_every=4), []

    def counting(model, batch, state):
        steps.append(1)
        return plain(model, batch, state)

    plain, model = plain_step(), make_model()
    settings = {"validation": make_text(50, seed=1), "config": config, "directory": tmp_path}
    history = train(model, make_text(), step=counting, stop=StopAtPerplexity(1000.0), **settings)
    assert history.stopped
    assert (len(steps), history.epochs[-1].step) == (4, 4)
    assert history.cost()["seconds_per_epoch"] == pytest.approx(history.epochs[0].seconds / (4 / 6))
    again = make_model()
    same = train(
        again, make_text(), step=counting, stop=StopAtPerplexity(1000.0), resume=True, **settings
    )
    assert same == history
    assert len(steps) == 4
    assert weights(again).equal(weights(model))


def test_another_perplexity_to_stop_at_is_another_training(make_model, make_text, tmp_path):
    settings = {"validation": make_text(50, seed=1), "config": CONFIG, "directory": tmp_path}
    train(make_model(), make_text(), stop=StopAtPerplexity(1000.0), **settings)
    with pytest.raises(TrainingError, match=r"stop\.perplexity was 1000\.0 and is 900\.0"):
        train(make_model(), make_text(), stop=StopAtPerplexity(900.0), resume=True, **settings)
