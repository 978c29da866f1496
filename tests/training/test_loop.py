"""The loop against a naive one, what it tells while it goes, what it keeps and what it refuses."""

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

from tests.training import worlds
from tests.training.worlds import CONFIG, language_model, listener, stream, weights
from vestige.errors import TrainingError
from vestige.models.checkpoints import load_model
from vestige.training.evaluate import evaluate
from vestige.training.history import StopAtPerplexity
from vestige.training.loop import learn, train
from vestige.training.steps import plain_step
from vestige.training.tasks import PairTask
from vestige.training.utterances import UtteranceTask


def altered(change):
    """The plain step, after which `change(number of the step, model, loss)` gives the loss."""
    plain, steps = plain_step(max_grad_norm=5.0), []

    def step(model, batch, state):
        loss, state = plain(model, batch, state)
        steps.append((loss.item(), batch.tokens))
        changed = change(len(steps), model, loss)
        return (loss if changed is None else changed), state

    step.steps = steps
    return step


# Against naive definitions


@pytest.mark.parametrize(("optimizer", "momentum"), [("adam", 0), ("sgd", 0), ("sgd", 0.9)])
def test_it_is_the_plain_loop_bit_for_bit(optimizer, momentum):
    text, ours, plain = stream(121), language_model(), language_model().train()
    config = replace(CONFIG, optimizer=optimizer, momentum=momentum, max_grad_norm=0.1)
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


def test_a_step_on_utterances_is_that_of_the_mean_joint_loss():
    model, plain = listener(), listener().train()
    config = replace(CONFIG, learning_rate=2e-2, max_grad_norm=0.3)
    task = UtteranceTask(model.encode(worlds.utterances(40)), None)
    learn(model, task, config=config)
    mover = torch.optim.Adam(plain.parameters(), lr=config.learning_rate, fused=True)
    for epoch in range(2):
        for batch in task.batches(plain, config).epoch(config.seed, epoch):
            result = plain(batch.inputs, batch.intents, batch.tags)
            mover.zero_grad()
            (result.intent + result.tags).mean().backward()
            torch.nn.utils.clip_grad_norm_(plain.parameters(), 0.3)
            mover.step()
    torch.testing.assert_close(weights(model), weights(plain), rtol=1e-4, atol=1e-5)


def one_batch(pairs, model):
    (batch,) = PairTask(pairs, None).batches(model, replace(CONFIG, sequence_length=9)).epoch(0, 0)
    return batch


def test_padding_changes_no_loss_and_no_gradient():
    """Each target alone, in place of a batch of targets of many lengths."""
    texts = [("un deux", "one"), ("deux un", "two one four two three"), ("un un", "three three")]
    pairs, model = worlds.of_texts(texts), worlds.translator(dropout_out=0.0).train()
    batch = one_batch(pairs, model)
    assert batch.padding == 7
    loss, carried = plain_step()(model, batch, None)
    assert carried is None
    together = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    losses = []
    for position in range(3):
        source, target = (
            torch.from_numpy(part.document(position).astype(np.int64))
            for part in (pairs.sources, pairs.targets)
        )
        inputs = torch.cat([torch.tensor([model.first_token]), target[:-1]])
        own = cross_entropy(model(source[None], inputs[None])[0], target, reduction="sum")
        losses.append(own.item())
        (own / batch.tokens).backward()
    assert loss.item() == pytest.approx(sum(losses) / batch.tokens, rel=1e-5)
    for parameter, gradient in zip(model.parameters(), together, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-6)


def test_a_norm_cuts_the_gradient():
    model = worlds.translator().train()
    batch = one_batch(worlds.of_texts([("un", "one two")]), model)
    plain_step(max_grad_norm=1e-3)(model, batch, None)
    total = torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])
    assert total.item() == pytest.approx(1e-3, rel=1e-3)


# What decides


@pytest.mark.parametrize("architecture", ["lstm", "transformer"])
def test_a_seed_decides_every_bit_and_the_callers_random_numbers_are_left_alone(architecture):
    trained = []
    for seed in (3, 3, 4):
        torch.rand(1)  # the caller's own chance must not matter
        model, before = language_model(architecture), torch.get_rng_state()
        train(model, stream(), config=replace(CONFIG, seed=seed))
        assert torch.get_rng_state().equal(before)
        trained.append(weights(model))
    assert trained[0].equal(trained[1])
    assert not trained[0].equal(trained[2])


def test_a_step_decides_the_gradient():
    def still(_, model, __):
        for parameter in model.parameters():
            parameter.grad.zero_()

    model = language_model()
    train(model, stream(), config=CONFIG, step=altered(still))
    assert weights(model).equal(weights(language_model()))


def test_frozen_parameters_stay_and_are_not_checkpointed(tmp_path):
    model = language_model()
    model.embedding.requires_grad_(False)
    before = model.embedding.weight.clone()
    train(model, stream(), config=CONFIG, directory=tmp_path)
    assert model.embedding.weight.equal(before)
    assert b"model.embedding" not in (tmp_path / "checkpoint.safetensors").read_bytes()
    model.requires_grad_(False)
    with pytest.raises(TrainingError, match="No parameter"):
        train(model, stream(), config=CONFIG)


# What it keeps, and when it ends


@pytest.mark.parametrize("keep", ["best", "last"])
def test_the_weights_of_the_best_epoch_on_validation_or_of_the_last_are_kept(keep, tmp_path):
    def climb(number, model, _):
        for parameter in model.parameters():
            parameter.grad.mul_(1 if number <= 12 else -1)  # from the third epoch on

    model, shown = language_model(), []
    config = replace(CONFIG, epochs=4, optimizer="sgd", learning_rate=0.1, keep=keep)
    history = train(
        model,
        stream(),
        validation=stream(),
        config=config,
        step=altered(climb),
        directory=tmp_path,
        observe=lambda seen, _: shown.append(weights(seen)),
    )
    perplexities = [record.validation_perplexity for record in history.epochs]
    assert 1 + perplexities.index(min(perplexities)) == 2
    assert history.best_epoch == (2 if keep == "best" else 4)
    assert weights(model).equal(shown[history.best_epoch - 1])
    again = evaluate(model, stream(), batch_size=4, sequence_length=5)
    assert again.perplexity == perplexities[history.best_epoch - 1]
    assert weights(load_model(tmp_path, device="cpu")).equal(weights(model))
    assert json.loads((tmp_path / "history.json").read_text()) == history.rows()


def test_without_validation_the_last_epoch_is_kept():
    history = train(language_model(), stream(), config=CONFIG)
    assert history.best_epoch == 2
    assert not history.stopped
    assert [record.validation_perplexity for record in history.epochs] == [None, None]


def test_a_stop_ends_the_training_and_sees_every_epoch():
    seen = []

    def stop(epochs):
        seen.append([record.epoch for record in epochs])
        return len(epochs) == 2

    history = train(language_model(), stream(), config=replace(CONFIG, epochs=5), stop=stop)
    assert seen == [[1], [1, 2]]
    assert history.stopped
    assert len(history.epochs) == 2


def test_a_training_can_stop_within_an_epoch_and_stays_stopped(tmp_path):
    step, model, again = altered(lambda *_: None), language_model(), language_model()
    config = replace(CONFIG, evaluate_every=4)
    how = {"validation": stream(50, seed=1), "config": config, "directory": tmp_path, "step": step}
    history = train(model, stream(), stop=StopAtPerplexity(1000.0), **how)
    assert history.stopped
    assert (len(step.steps), history.epochs[-1].step) == (4, 4)
    assert history.cost()["seconds_per_epoch"] == pytest.approx(history.epochs[0].seconds / (4 / 6))
    same = train(again, stream(), stop=StopAtPerplexity(1000.0), resume=True, **how)
    assert same == history
    assert len(step.steps) == 4
    assert weights(again).equal(weights(model))
    with pytest.raises(TrainingError, match=r"stop\.perplexity was 1000\.0 and is 900\.0"):
        train(again, stream(), stop=StopAtPerplexity(900.0), resume=True, **how)


# What it tells


def test_progress_counts_to_the_end(tmp_path):
    said = []
    train(
        language_model(),
        stream(),
        config=replace(CONFIG, sequence_length=1),  # 30 steps an epoch
        directory=tmp_path,
        progress=lambda *line: said.append(line),
    )
    assert [(step, total) for step, total, *_ in said] == [(s, 60) for s in range(10, 61, 10)]
    assert all(math.isfinite(loss) and speed > 0 for *_, loss, speed in said)
    log = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [(line["step"], line["loss"]) for line in log] == [(s, loss) for s, _, loss, _ in said]


@pytest.mark.parametrize("every", [None, 4])
def test_it_is_evaluated_as_often_as_asked_each_part_by_its_own_tokens(every):
    shown, step = [], altered(lambda *_: None)
    model, held = language_model(), stream(50, seed=1)
    history = train(
        model,
        stream(),
        validation=held,
        config=replace(CONFIG, evaluate_every=every),  # an epoch has six steps
        step=step,
        observe=lambda seen, record: shown.append((record.step, seen.training)),
    )
    ends = [4, 6, 8, 12] if every else [6, 12]
    assert [record.step for record in history.epochs] == ends
    assert [record.epoch for record in history.epochs] == pytest.approx([end / 6 for end in ends])
    assert shown == [(end, False) for end in ends]
    for begin, record in zip([0, *ends], history.epochs, strict=False):
        losses = step.steps[begin : record.step]
        assert record.tokens == sum(tokens for _, tokens in losses) == 20 * (record.step - begin)
        mean = sum(loss * tokens for loss, tokens in losses) / record.tokens
        assert record.perplexity == pytest.approx(math.exp(mean))
        assert record.validation_perplexity > 1
    again = evaluate(model, held, batch_size=4, sequence_length=5).perplexity
    kept = history.epochs[history.best_epoch - 1]
    assert again == kept.validation_perplexity == history.summary()["validation_perplexity"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("architecture", "batching"), [("lstm", "stream"), ("transformer", "documents")]
)
def test_looking_at_a_model_does_not_change_it(architecture, batching):
    text = replace(stream(), offsets=np.arange(0, 122, 11))
    ends, tokens = [], []
    for every in (None, 1, 4):
        model = language_model(architecture)
        config = replace(CONFIG, evaluate_every=every, batching=batching, batch_size=2)
        look = lambda seen, _: evaluate(seen, text, sequence_length=5)  # noqa: E731
        history = train(model, text, config=config, observe=look if every else None)
        ends.append(weights(model))
        tokens.append(history.cost()["tokens"])
    assert ends[0].equal(ends[1])
    assert ends[0].equal(ends[2])
    assert len(set(tokens)) == 1


# What it refuses


def test_a_text_too_short_for_the_batch_is_refused_before_a_directory_is_made(tmp_path):
    with pytest.raises(TrainingError, match="4 tokens are too few"):
        train(language_model(), stream(4), config=CONFIG, directory=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("directory", [True, False])
@pytest.mark.parametrize("rate", [1e30, 1e300])
def test_a_diverging_training_stops_with_the_remedy(tmp_path, directory, rate):
    """Of 1e30 the kernels of some processors make NaN, of others a loss of 1e29 nats."""
    config = replace(CONFIG, optimizer="sgd", learning_rate=rate, max_grad_norm=None)
    match = r"diverged at step \d+.*" + re.escape(f"learning_rate below {rate:g}")
    with pytest.raises(TrainingError, match=match):
        train(language_model(), stream(), config=config, directory=tmp_path if directory else None)
    assert not (tmp_path / "model").exists()


CAUSES = {
    "a loss that is no number": (math.nan, 1.0),
    "an infinite loss": (math.inf, 1.0),
    "a loss that is finite and says nothing": (2.0**25, 1.0),
    "an infinite gradient": (2.0, math.inf),
    "a gradient that is no number": (2.0, math.nan),
}


@pytest.mark.parametrize(("loss", "gradient"), CAUSES.values(), ids=CAUSES)
def test_each_cause_alone_ends_a_training_before_it_reaches_a_checkpoint(tmp_path, loss, gradient):
    def spoil(number, model, _):
        if number < 6:
            return None
        next(model.parameters()).grad[0] = gradient
        return torch.tensor(loss)

    step = altered(spoil)
    with pytest.raises(TrainingError, match=r"diverged at step.*last good checkpoint"):
        train(language_model(), stream(), config=CONFIG, step=step, directory=tmp_path)
    assert 6 <= len(step.steps) <= 8  # the next checkpoint looks
    kept = load_file(tmp_path / "checkpoint.safetensors")
    assert all(one.isfinite().all() for one in kept.values() if one.is_floating_point())
    model = language_model()
    sound = altered(lambda *_: None)
    train(model, stream(), config=CONFIG, step=sound, directory=tmp_path, resume=True)
    assert weights(model).isfinite().all()


def test_a_step_that_meets_what_is_not_finite_says_so():
    def meet(*_):
        raise FloatingPointError

    with pytest.raises(TrainingError, match="diverged at step 1"):
        train(language_model(), stream(), config=CONFIG, step=altered(meet))
