"""A server that offers a model by OpenAI's protocol, and a proxy that makes it fail."""

import json
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch

from vestige.models.hugging_face import HuggingFaceLanguageModel
from vestige.models.remote.options import EndpointAddress, RemoteOptions
from vestige.models.remote.server import Endpoint
from vestige.models.remote.tokens import echo_tokens, token_ends
from vestige.models.shown_statistics import shown_statistics

KEY = "sk-never-to-be-written-0123456789"
OTHER = "other-model"


def network(vocabulary, *, seed=0):
    """A small random GPT-2 that reads up to 256 tokens."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(seed)
    sizes = {"n_positions": 256, "n_embd": 16, "n_layer": 2, "n_head": 2}
    config = GPT2Config(vocab_size=len(vocabulary), initializer_range=0.3, **sizes)
    return HuggingFaceLanguageModel(GPT2LMHeadModel(config), vocabulary).eval()


def endpoint_statistics(endpoint, access, texts, vocabulary, *, likeliest=20):
    """Statistics from a server for every token of some texts."""
    ends, ids = [token_ends(text, vocabulary) for text in texts], vocabulary.encode_batch(texts)
    shown = echo_tokens(endpoint, access, texts)
    return shown_statistics(texts, shown, ends, ids=ids, vocabulary=vocabulary, likeliest=likeliest)


class EndpointOpener:
    """Opens endpoints that cache in one folder; pauses are recorded in `pauses`, not made."""

    def __init__(self, folder):
        self.folder, self.pauses, self.stack = folder, [], ExitStack()

    def __call__(self, url, *, model="small", file="answers.sqlite", together=1, **options):
        options = RemoteOptions(**{"attempts": 8, "timeout": 1.0, "concurrency": 2, **options})
        address = EndpointAddress(url, model)
        endpoint = Endpoint(address, self.folder / file, options, sleep=self.pauses.append)
        endpoint.together = together
        return self.stack.enter_context(endpoint)


class JsonHandler(BaseHTTPRequestHandler):
    """A handler that answers in JSON and logs nothing."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def read_body(self):
        return self.rfile.read(int(self.headers.get("content-length", 0)))

    def answer(self, status, content, **headers):
        if isinstance(content, dict):
            content = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(content)


class Served:
    """A server of completions and chats with a language model.

    `lacks` switches features off: `completions`, `chat`, `echo`, `several` prompts in one call,
    the `empty` prompt. At most `most` log-probabilities are shown.
    """

    def __init__(self, model, **lacks):
        self.model, self.asked, self.keys = model, [], set()
        parts = ("completions", "chat", "echo", "several", "empty", "log_probs")
        self.has = {**dict.fromkeys(parts, True), "most": 20, **lacks}
        self.lock = threading.Lock()

    def answer(self, path, body):
        """Status and content."""
        with self.lock:
            self.asked.append(body)
        chat = path.endswith("/chat/completions")
        if not self.has["chat" if chat else "completions"]:
            return 404, {"error": {"message": "no such path"}}
        shown = body.get("top_logprobs" if chat else "logprobs") or 0
        prompts = [body["messages"][-1]["content"]] if chat else body["prompt"]
        prompts = [prompts] if isinstance(prompts, str) else prompts
        refused = (
            shown > self.has["most"]
            or (body.get("echo") and not self.has["echo"])
            or (len(prompts) > 1 and not self.has["several"])
            or ("" in prompts and not self.has["empty"])
        )
        if refused:
            return 400, {"error": {"message": "not so: " + repr(prompts)}}
        with self.lock:
            choices = [self.choice(n, text, body, shown, chat) for n, text in enumerate(prompts)]
        tokens = sum(len(self.model.vocabulary.encode(prompt)) + 1 for prompt in prompts)
        usage = {"prompt_tokens": tokens, "completion_tokens": 0, "total_tokens": tokens}
        return 200, {"id": "1", "model": body["model"], "choices": choices, "usage": usage}

    def choice(self, number, prompt, body, shown, chat):
        prompt_ids = self.model.vocabulary.encode(prompt)
        ids = list(prompt_ids)
        for _ in range(body["max_tokens"]):
            ids.append(int(self.log_probs(ids)[-1].argmax()))
        written = ids[len(prompt_ids) :]
        text = self.model.vocabulary.decode(written)
        first = 0 if body.get("echo") else len(prompt_ids)
        positions = [self.position(ids, n, shown) for n in range(first, len(ids))]
        if not shown or not self.has["log_probs"]:
            log_probs = None
        elif chat:
            log_probs = {"content": [
                {"token": text, "logprob": value,
                 "top_logprobs": [{"token": t, "logprob": v} for t, v in top.items()]}
                for text, value, top in positions
            ]}  # fmt: skip
        else:
            log_probs = {
                "tokens": [text for text, _, _ in positions],
                "token_logprobs": [value for _, value, _ in positions],
                "top_logprobs": [top for _, _, top in positions],
            }
            if body.get("echo"):
                log_probs["token_logprobs"][0] = log_probs["top_logprobs"][0] = None
        if chat:
            message = {"message": {"role": "assistant", "content": text}}
        else:
            message = {"text": (prompt if body.get("echo") else "") + text}
        return {"index": number, "finish_reason": "length", "logprobs": log_probs, **message}

    @torch.no_grad()
    def log_probs(self, ids):
        """(t + 1, v) log-probabilities: of each token and of the next one."""
        read = torch.tensor([[self.model.first_token, *ids]])
        logits = self.model(read)[0][0].float()
        return torch.log_softmax(logits, -1)[:, : len(self.model.vocabulary)]

    def piece(self, token):
        text = self.model.vocabulary.piece(token)
        return f"bytes:{token}" if "\ufffd" in text else text

    def position(self, ids, n, shown):
        row, piece = self.log_probs(ids[:n])[-1], self.piece
        values, tokens = row.topk(min(max(shown, 1), len(row)))
        top = {piece(t): v for t, v in zip(tokens.tolist(), values.tolist(), strict=True)}
        return piece(ids[n]), float(row[ids[n]]), top


class Shifted(Served):
    """Shows with each token of a prompt the scores of the next one, as llama.cpp does."""

    def answer(self, path, body):
        status, content = super().answer(path, body)
        if body.get("echo") and status == 200:
            for choice in content["choices"]:
                log_probs = choice["logprobs"]
                for name in ("token_logprobs", "top_logprobs"):
                    log_probs[name] = [*log_probs[name][1:], None]
                for each in log_probs.values():
                    each.pop()
        return status, content


@contextmanager
def listening(handler):
    """The address of a server with this handler."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def serving(served):
    """The address of a `Served`."""

    class Handler(JsonHandler):
        def do_POST(self):
            served.keys.add(self.headers.get("authorization"))
            self.answer(*served.answer(self.path, json.loads(self.read_body())))

    with listening(Handler) as url:
        yield url


def changed(**new):
    """A fault: the answer with other fields."""
    return lambda body: {**body, **new}


def reordered(body):
    """The same answer with its choices and likeliest tokens in another order."""
    choices = []
    for choice in reversed(body["choices"]):
        log_probs = choice["logprobs"]
        if log_probs and "top_logprobs" in log_probs:
            tops = [top and dict(reversed(top.items())) for top in log_probs["top_logprobs"]]
            choice = {**choice, "logprobs": {**log_probs, "top_logprobs": tops}}
        choices.append(choice)
    return {**body, "choices": choices}


def without_log_probs(body):
    """The answer without log-probabilities."""
    return {**body, "choices": [{**choice, "logprobs": None} for choice in body["choices"]]}


FAULTS = {
    "rate limit": (429, b"{}", {"retry_after": "0.01"}),
    "server error": (500, b'{"error": {"message": "your key %s"}}' % KEY.encode(), {}),
    "bad gateway": (502, b"<html>", {}),
    "timeout": "silence",
    "connection reset": "reset",
    "slow drip": "drip",
    "truncated JSON": lambda content: content[: len(content) // 2],
    "changed order": reordered,
    "another model's name": changed(model=OTHER),
    "no choices": changed(choices=[]),
    "no log-probabilities": without_log_probs,
    "no text": b"null",
    "an echoed key": changed(note=KEY),
}
"""Faults: an answer, a function that changes one, or the name of what the connection does."""


@contextmanager
def failing(upstream, fault, *, every=3):
    """A proxy whose every n-th call fails: its address and the list of failed calls."""
    host, faults, lock = upstream.split("/")[2], [], threading.Lock()
    calls = [0]

    class Handler(JsonHandler):
        def do_POST(self):
            request = self.read_body()
            with lock:
                calls[0] += 1
                broken = calls[0] % every == 2
                faults.extend([self.path] if broken else [])
            if broken and isinstance(fault, tuple):
                return self.answer(fault[0], fault[1], **fault[2])
            if broken and isinstance(fault, bytes):
                return self.answer(200, fault)
            if broken and isinstance(fault, str):
                return self.misbehave(fault)
            link = HTTPConnection(host)
            link.request("POST", self.path, request, dict(self.headers))
            reply = link.getresponse()
            content = reply.read()
            link.close()
            if broken and reply.status == 200:
                is_text = fault is FAULTS["truncated JSON"]
                content = fault(content if is_text else json.loads(content))
                content = content if is_text else json.dumps(content).encode()
            self.answer(reply.status, content)

        def misbehave(self, fault):
            self.close_connection = True
            if fault == "silence":
                time.sleep(3)
            elif fault == "drip":
                self.send_response(200)
                self.send_header("content-length", "1000")
                self.end_headers()
                for _ in range(60):
                    self.wfile.write(b" ")
                    self.wfile.flush()
                    time.sleep(0.05)
            self.connection.close()

        def handle(self):
            with suppress(OSError):  # the client closed the connection
                super().handle()

    with listening(Handler) as url:
        yield url, faults
