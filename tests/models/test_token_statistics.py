"""Token statistics equal those computed from the table of a model, also on a cluster."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from vestige.audits.membership.membership import membership
from vestige.data.corpus import Corpus
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import RunError
from vestige.models import predictions, reading
from vestige.models import token_statistics as module
from vestige.models.checkpoints import save_model
from vestige.models.recurrent_network import LSTMConfig, LSTMLanguageModel
from vestige.models.shared_ids import SharedIds
from vestige.models.table import TableModel
from vestige.models.token_statistics import (
    CachedOutputs,
    Nodes,
    cached_outputs,
    first_tokens,
    joined,
    token_statistics,
)
from vestige.monitor import SILENT
from vestige.store import KEPT, Store

RNG = np.random.default_rng(0)
TABLE = RNG.integers(1, 5, (10, 10)).astype(float)  # with ties
MODEL = TableModel(
    RNG.dirichlet(np.ones(10)),
    TABLE / TABLE.sum(axis=1, keepdims=True),
    WordVocabulary(("<unk>", "<eos>", *"abcdefgh")),
).eval()
TEXTS = [RNG.integers(2, 10, n).tolist() for n in (5, 1, 9, 3, 9)]


def naive(ids, k):
    """One row per token, from the table."""
    table = MODEL.log_table.double().numpy()
    for before, token in zip([MODEL.first_token, *ids[:-1]], ids, strict=True):
        row = table[before]
        row = row - np.log(np.exp(row).sum())
        order = sorted(range(10), key=lambda other, row=row: (-row[other].round(6), other))
        mean = (np.exp(row) * row).sum()
        spread = np.sqrt((np.exp(row) * (row - mean) ** 2).sum())
        yield row[token], order.index(token) + 1, mean, spread, order[:k], row[order[:k]]


@pytest.mark.parametrize("cells", [1, 2**25])
def test_statistics_equal_those_of_the_table(monkeypatch, cells):
    monkeypatch.setattr(predictions, "PRODUCT_CELLS", cells)
    monkeypatch.setattr(predictions, "CACHE_CELLS", cells)
    statistics = token_statistics(MODEL, TEXTS, likeliest=4)
    rows = [row for ids in TEXTS for row in naive(ids, 4)]
    names = ("log_probs", "ranks", "means", "deviations", "likeliest", "likeliest_log_probs")
    for name, expected in zip(names, map(np.array, zip(*rows, strict=True)), strict=True):
        np.testing.assert_allclose(getattr(statistics, name), expected, atol=1e-5, err_msg=name)
    assert statistics.offsets.tolist() == [0, 5, 6, 15, 18, 27]
    assert statistics.tokens.tolist() == [token for ids in TEXTS for token in ids]


def assert_equal(first, second, atol=1e-5):
    for name in vars(first):
        np.testing.assert_allclose(getattr(first, name), getattr(second, name), atol=atol)


def test_first_tokens_equal_those_of_shorter_texts():
    statistics = token_statistics(MODEL, TEXTS, likeliest=4)
    cut = first_tokens(statistics, [4, 0], 3)
    assert_equal(cut, token_statistics(MODEL, [TEXTS[4][:3], TEXTS[0][:3]], likeliest=4), atol=1e-6)
    each = [first_tokens(statistics, [text], 3) for text in (4, 0)]
    assert_equal(cut, joined(each), atol=0)


class Largest(TorchDispatchMode):
    """Records the size of the largest tensor."""

    size = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else (result,):
            if isinstance(tensor, torch.Tensor):
                self.size = max(self.size, tensor.numel())
        return result


def wide_model(vocab_size, units=4):
    """An LSTM of a few units with many outputs."""
    words = ("<unk>", "<eos>", *(f"w{n}" for n in range(vocab_size - 2)))
    torch.manual_seed(0)
    config = LSTMConfig(layers=1, embedding_size=units, hidden_size=units)
    return LSTMLanguageModel(WordVocabulary(words), config).eval()


@pytest.mark.slow
def test_logits_of_a_long_text_are_computed_in_slices():
    model = wide_model(49_152)
    with Largest() as largest:
        token_statistics(model, [[5] * 1_000, [7] * 3])
    assert largest.size <= predictions.PRODUCT_CELLS


@pytest.mark.parametrize("shared", [False, True])
def test_slices_and_padding_do_not_change_statistics(monkeypatch, shared):
    model = wide_model(300)
    if shared:
        model = SharedIds(model, model.vocabulary, width=300, missing=[7]).eval()
    texts = [RNG.integers(8, 300, n).tolist() for n in (30, 4, 17, 1)]
    expected = token_statistics(model, texts, likeliest=5)
    assert_equal(joined([token_statistics(model, [ids], likeliest=5) for ids in texts]), expected)
    monkeypatch.setattr(predictions, "PRODUCT_CELLS", 1500)
    monkeypatch.setattr(predictions, "CACHE_CELLS", 600)
    monkeypatch.setattr(reading, "RECURRENT_ROWS", 1)
    with Largest() as largest:
        assert_equal(token_statistics(model, texts, likeliest=5), expected)
    assert largest.size <= 1500


def test_half_precision_ranks_break_ties_by_id():
    model = wide_model(300).to(torch.bfloat16)
    texts = [RNG.integers(2, 300, n).tolist() for n in (12, 5)]
    statistics = token_statistics(model, texts, likeliest=5)
    rows = []
    for ids in texts:
        logits = model(torch.tensor([[model.first_token, *ids[:-1]]]))[0][0].detach().double()
        rows += [(row - row.logsumexp(0), token) for row, token in zip(logits, ids, strict=True)]
    ties = [int((row == row[token]).sum()) for row, token in rows]
    assert sum(n > 1 for n in ties) > 3
    ranks = [1 + int((row > row[t]).sum() + (row[:t] == row[t]).sum()) for row, t in rows]
    assert statistics.ranks.tolist() == ranks
    np.testing.assert_allclose(statistics.log_probs, [float(row[t]) for row, t in rows], atol=1e-5)


MEMORY = """
import resource
from tests.models.test_token_statistics import token_statistics, wide_model

model = wide_model(49_152)
token_statistics(model, [[5] * 150])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
token_statistics(model, [[5] * (20 + n) for n in range(60)])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="measures kilobytes of Linux")
def test_many_texts_need_no_more_memory_than_one():
    """Keeping columns of each text fragmented the heap, which grew by gigabytes."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    options = {"cwd": Path(__file__).parents[2], "env": environment}
    assert int(subprocess.check_output([sys.executable, "-c", MEMORY], **options)) < 400 * 1024


def test_a_missing_cache_folder_is_created_and_the_default_is_temporary(tmp_path):
    with cached_outputs(tmp_path / "new", SILENT) as outputs:
        assert outputs.folder == tmp_path / "new"
    with cached_outputs(None, SILENT) as outputs:
        temporary = outputs.folder
        assert temporary.is_dir()
    assert not temporary.exists()


@pytest.mark.parametrize(
    "content", ["0123456789abcdef", "0123456789abcdef.sqlite-wal", ".DS_Store"]
)
def test_a_cache_folder_is_reused(tmp_path, content):
    (tmp_path / content).mkdir()
    with cached_outputs(tmp_path, SILENT) as outputs:
        assert outputs.folder == tmp_path


@pytest.mark.parametrize("content", ["dataset_info.json", "0123456789abcdeg", "data"])
def test_folders_with_other_content_are_refused_as_a_cache(tmp_path, content):
    (tmp_path / content).mkdir()
    message = f"{tmp_path} holds {content}"
    with pytest.raises(RunError, match=message) as caught, cached_outputs(tmp_path, SILENT):
        pass
    assert "`statistics`" in caught.value.remedy
    assert [path.name for path in tmp_path.iterdir()] == [content]


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
@pytest.mark.parametrize("cached", [False, True])
def test_an_interruption_mentions_cached_answers(tmp_path, error, cached):
    def interrupted():
        with (
            cached_outputs(tmp_path, SILENT) as outputs,
            Store(outputs.folder / "0.sqlite", shared=True) as store,
        ):
            store.update({"text": 1} if cached else {})
            raise error

    with pytest.raises(error) as caught:
        interrupted()
    assert getattr(caught.value, "__notes__", []) == ([KEPT] if cached else [])


WORDS = ("quick", "brown", "fox", "over", "lazy", "mat")
NODE_TEXTS = [RNG.integers(2, 60, n).tolist() for n in RNG.integers(3, 20, 40)]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of Ray
def test_statistics_resume_after_a_node_and_the_driver_were_killed(address, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "GROUP_TOKENS", 40)
    model, killed, calls = wide_model(60, 8), str(tmp_path / "killed"), str(tmp_path / "calls")

    def kill_once(module, inputs):  # sent to the node with the model
        with Path(calls).open("a") as file:
            file.write("x")
        if Path(calls).stat().st_size >= 5 and not Path(killed).exists():
            Path(killed).touch()
            os.kill(os.getpid(), signal.SIGKILL)

    model.embedding.register_forward_pre_hook(kill_once)
    groups = module._groups({str(n): ids for n, ids in enumerate(NODE_TEXTS)})
    assert len(groups) > 10
    write, written = module._write, []

    def interrupt(store, texts, log):
        write(store, texts, log)
        written.append(str(texts))
        if len(written) == 8:
            raise KeyboardInterrupt

    def run():
        outputs = CachedOutputs(tmp_path / "cache", SILENT, Nodes(address, "cpu"))
        return outputs.statistics(model, {}, NODE_TEXTS, task="querying")

    monkeypatch.setattr(module, "_write", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run()
    assert Path(killed).exists()
    result = run()
    assert len(set(written)) == len(written) == len(groups)
    assert_equal(result, token_statistics(wide_model(60, 8), NODE_TEXTS))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of Ray
def test_an_audit_on_a_cluster_equals_a_local_audit(address, shared, tmp_path):
    save_model(shared["gpt2 adapter"], tmp_path / "tuned")
    texts, reference = (
        Corpus.from_texts([f"the {word} {second} {third}" for second in WORDS for third in WORDS])
        for word in ("dog", "cat")
    )
    local = membership(tmp_path / "tuned", texts=texts, reference=reference)
    remote = membership(tmp_path / "tuned", texts=texts, reference=reference, cluster=address)
    assert remote.summary == local.summary


def test_a_model_over_several_gpus_is_refused_on_a_cluster():
    with pytest.raises(ValueError, match="`device` balanced must be left out with `cluster`"):
        membership("model", texts="texts", reference="never", cluster="auto", device="balanced")
