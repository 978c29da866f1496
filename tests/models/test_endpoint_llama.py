"""Scores from llama-cpp-python's server equal those of the same GGUF file loaded here.

VESTIGE_LLAMA names a Python with llama-cpp-python[server], VESTIGE_GGUF the file of SmolLM2.
"""

import os
import socket
import subprocess
import time

import numpy as np
import pytest
import torch

from tests.models.served import endpoint_statistics
from vestige.models.checkpoints import load_model
from vestige.models.remote.options import EndpointAddress
from vestige.models.remote.probe import probe
from vestige.models.remote.server import Endpoint
from vestige.models.remote.tokens import EndpointWords
from vestige.models.top_k import Context

pytest.importorskip("openai")
PYTHON, FILE = os.environ.get("VESTIGE_LLAMA"), os.environ.get("VESTIGE_GGUF")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (PYTHON and FILE), reason="VESTIGE_LLAMA and VESTIGE_GGUF name no server and no model"
    ),
]

TEXTS = (
    "The committee met on Tuesday and agreed that the report should be published in June.",
    "In the morning she walked along the river to the old mill, where nobody had lived for years.",
)
ROUNDING = 0.35
"""Nats by which 95% of log-probabilities differ at most: the server multiplies in 8 bits."""


@pytest.fixture(scope="module")
def url():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = {"model": FILE, "model_alias": "smollm2", "logits_all": "true", "n_ctx": 512,
               "n_threads": 1, "port": port}  # fmt: skip
    arguments = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    server = subprocess.Popen([str(PYTHON), "-m", "llama_cpp.server", *arguments], **quiet)
    try:
        for _ in range(600):
            assert server.poll() is None
            with socket.socket() as link:
                if link.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.2)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.kill()
        server.wait()


def file_log_probs(model, text):
    """Log-probabilities of the tokens of a text, with no token before it as on the server."""
    ids = torch.tensor([model.vocabulary.encode(text)])
    with torch.no_grad():
        rows = torch.log_softmax(model(ids)[0][0].float(), -1)
    log_probs = rows[:-1].gather(1, ids[0, 1:, None])[:, 0].numpy()
    return np.concatenate([[np.nan], log_probs])


def test_a_real_server_gives_the_scores_of_its_file(url, tmp_path):
    model = load_model(str(FILE), device="cpu")
    with Endpoint(EndpointAddress(url, "smollm2"), tmp_path / "answers.sqlite") as endpoint:
        access = probe(endpoint)
        assert (access.kind, access.shown, access.empty) == ("completion", 20, False)
        assert access.echo == "shifted"
        arguments = endpoint, access, TEXTS, model.vocabulary
        statistics = endpoint_statistics(*arguments)
        calls = endpoint.totals["calls"]
        assert endpoint_statistics(*arguments).ranks.tolist() == statistics.ranks.tolist()
        assert endpoint.totals["calls"] == calls
        words = EndpointWords(endpoint, access, 5, ("published", "made", "neighbour"), str.split)
        (listed,) = words([Context(tuple(TEXTS[0].split()[:12]))])
    true = np.concatenate([file_log_probs(model, text) for text in TEXTS])
    shown = np.isfinite(statistics.log_probs)
    assert shown.sum() > 0.5 * np.sum(np.isfinite(true))
    assert np.quantile(np.abs(statistics.log_probs[shown] - true[shown]), 0.95) < ROUNDING
    assert "published" in (listed or ())
