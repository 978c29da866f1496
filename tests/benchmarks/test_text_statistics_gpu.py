"""The benchmark for a GPU runs small on a processor, and refuses to run large there."""

import pytest
import text_statistics_gpu
import torch

from vestige.audits.membership.text_scores import SCORES


def test_a_small_model_goes_through_all_of_it(capsys):
    found = text_statistics_gpu.main(["--tiny", "--seconds", "0"])
    assert set(found["tiny"]) == {"forward", "one by one", "statistics", "ten scores"}
    assert all(rate > 0 for rate in found["tiny"].values())
    assert len([line for line in capsys.readouterr().out.splitlines() if line[0] == "|"]) == 3


def test_what_is_measured_one_by_one_is_a_score(capsys):
    model = text_statistics_gpu.random_model(text_statistics_gpu.TINY["tiny"], "cpu")
    texts = [[5, 9, 3], [7] * 6]
    told = text_statistics_gpu.token_statistics(model, texts)
    assert text_statistics_gpu.one_by_one(model, texts) == pytest.approx(
        SCORES["loss"](target=told).tolist(), rel=0.02
    )


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_what_to_give(capsys):
    with pytest.raises(SystemExit):
        text_statistics_gpu.main([])
    assert "give --tiny" in capsys.readouterr().err
