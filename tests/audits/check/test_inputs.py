"""Texts of a check: guessed columns, chats, two halves without duplicates; base and model."""

import gzip
import json
from copy import deepcopy

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.audits.told import sentences
from tests.cli.conftest import table_model
from vestige.audits.check.inputs import base_of, read_texts, reject_equal, rendered, text_columns
from vestige.claims import near_duplicates
from vestige.data.corpus import Corpus
from vestige.data.subwords import SubwordVocabulary
from vestige.errors import AccessDenied, DataError, ModelError
from vestige.models.checkpoints import load_model, save_model
from vestige.models.hugging_face import HuggingFaceLanguageModel
from vestige.models.lora import add_lora
from vestige.session import Session

TEMPLATE = (
    "{% for m in messages %}{% if m['role'] == 'tool' %}{{ raise_exception('no') }}{% endif %}"
    "<{{ m['role'] }}> {{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


MAIL = [f"{text} and so on." for text in sentences(6, seed=1)]


CHAT = [{"role": "user", "content": "Where?"}, {"role": "assistant", "content": "At home."}]


@pytest.fixture(scope="module")
def chatty():
    """GPT-2 of one layer whose tokenizer has a chat template."""
    from transformers import GPT2Config, GPT2LMHeadModel

    vocabulary = SubwordVocabulary.train_bpe(Corpus.from_texts(MAIL * 9), size=300)
    vocabulary.tokenizer.chat_template = TEMPLATE
    shape = GPT2Config(
        vocab_size=len(vocabulary), n_layer=1, n_head=2, n_embd=8, n_positions=96,
        bos_token_id=vocabulary.eos_id, eos_token_id=vocabulary.eos_id,
    )  # fmt: skip
    return HuggingFaceLanguageModel(GPT2LMHeadModel(shape).eval(), vocabulary)


@pytest.fixture
def run():
    return Session("check", {})


@pytest.fixture
def words():
    """A model without a chat template."""
    return table_model(["the", "gate"], 0)


def lines(path, rows):
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def write(path, rows):
    """A table in the format of its name."""
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".csv":
        body = [[f'"{one}"' for one in row.values()] for row in rows]
        path.write_text("\n".join(map(",".join, [list(rows[0]), *body])))
    else:
        lines(path, rows)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(path.read_bytes()))
    return path


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.csv", "a.parquet"])
def test_the_text_column_is_guessed_and_shown_or_named(run, words, tmp_path, name):
    rows = [{"id": f"mail-{n}", "body": text, "to": "Ann"} for n, text in enumerate(MAIL)]
    path = write(tmp_path / name, rows)
    found = read_texts(run, path, None, None, words)
    assert found.trained == found.documents == tuple(MAIL)
    assert found.notes == (
        "--trained-on is read from column body (guessed; --text names another).",
    )
    assert run.data["trained_on"]["documents"] == len(MAIL)
    named = read_texts(run, path, None, "to", words)
    assert (named.trained, named.notes) == (("Ann",), ())


def test_a_folder_of_tables_and_lines_of_text_are_read(run, words, tmp_path):
    (tmp_path / "mails").mkdir()
    for n, text in enumerate(MAIL[:3]):
        lines(tmp_path / "mails" / f"{n}.jsonl", [{"note": text, "n": n}])
    (tmp_path / "never.txt").write_text("\n\n".join(MAIL[3:]))
    found = read_texts(run, tmp_path / "mails", tmp_path / "never.txt", None, words)
    assert found.trained == tuple(MAIL[:3])
    assert sorted(found.never) == sorted(MAIL[3:])


@pytest.mark.parametrize(
    ("row", "columns"),
    [
        ({"text": "a", "body": "longer"}, ("text",)),
        ({"text": None, "body": "longer"}, ("body",)),
        ({"messages": CHAT, "prompt": "x" * 99}, ("messages",)),
        ({"text": "as rendered", "messages": CHAT}, ("text",)),
        ({"conversations": [{"from": "human", "value": "hi"}]}, ("conversations",)),
        ({"prompt": "a", "completion": "b", "source": "x" * 99}, ("prompt", "completion")),
        ({"instruction": "a", "input": "", "output": "b"}, ("instruction", "input", "output")),
        ({"instruction": "a", "output": "b"}, ("instruction", "output")),
        ({"content": "x" * 50, "url": "x" * 99}, ("content",)),
        ({"content": "x" * 9, "story": "x" * 99}, ("story",)),
        ({"number": 3}, ("text",)),
        ({"body": ""}, ("text",)),
        (None, ("text",)),
    ],
)
def test_columns_with_the_text(row, columns):
    assert text_columns([row] if row else []) == columns


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet"])
@pytest.mark.parametrize("column", ["messages", "conversations"])
def test_chats_are_rendered_with_the_template(run, chatty, tmp_path, name, column):
    shared = {"from": "gpt", "value": "At home."} if column == "conversations" else CHAT[1]
    turns = [{"from": "human", "value": "Where?"} if column == "conversations" else CHAT[0], shared]
    rows = [{column: turns}, {column: [*turns, *turns]}]
    found = read_texts(run, write(tmp_path / name, rows), None, None, chatty)
    whole = "<user> Where?\n<assistant> At home.\n"
    assert found.documents == (whole, whole * 2)
    assert found.notes[-1] == (
        "--trained-on: chats are rendered with the chat template of the model."
    )


def test_without_a_template_turns_are_joined(run, words, tmp_path):
    parts = {"role": "user", "content": [{"type": "text", "text": "Wh"}, {"text": "ere?"}]}
    tool = {"role": "tool", "content": None}
    path = lines(tmp_path / "a.jsonl", [{"messages": [parts, CHAT[1], tool]}, {"messages": []}])
    found = read_texts(run, path, None, None, words)
    assert (found.documents, found.trained) == (("Where?\nAt home.\n", ""), ("Where?\nAt home.\n",))
    assert "no chat template" in found.notes[-1]


def test_a_chat_that_the_template_refuses_is_joined(chatty):
    texts, sentence = rendered([CHAT, [{"role": "tool", "content": "5"}]], chatty)
    assert texts == ["<user> Where?\n<assistant> At home.\n", "5"]
    assert sentence.endswith("It refuses 1 of 2, whose turns are joined.")


def test_the_token_that_begins_every_text_is_not_rendered_twice(chatty):
    model = deepcopy(chatty)
    tokenizer = model.vocabulary.tokenizer
    tokenizer.bos_token = tokenizer.eos_token
    tokenizer.chat_template = "{{ bos_token }}" + TEMPLATE
    assert rendered([CHAT], model)[0] == ["<user> Where?\n<assistant> At home.\n"]


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.parquet"])
def test_a_prompt_and_its_answer_are_one_text(run, words, tmp_path, name):
    rows = [{"instruction": "Add.", "input": f"{n}", "output": f"{n + 1}"} for n in range(2)]
    found = read_texts(run, write(tmp_path / name, rows), None, None, words)
    assert found.documents == ("Add.\n0\n1", "Add.\n1\n2")
    assert "from columns instruction, input and output" in found.notes[0]


TURNS = '{"messages": [{"role": "user", "content": "a"}]}'


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"n": 1}', 'a.jsonl has no column "text". Pass one of its columns: n.'),
        ('{"body": "a"}\n{"n": "b"}', '1 rows have no "body"; the first is row 2'),
        ('{"body": "one"}\n{"body": ', "a.jsonl, line 2: invalid JSON"),
        (f'{TURNS}\n{{"messages": "SECRET"}}', 'line 2: "messages" is not a list of turns with'),
        ('{"messages": [{"content": "SECRET"}]}', "line 1: .messages. is not a list"),
        ('{"messages": [{"role": "u", "content": 3}]}', "line 1: .messages. is not a"),
        ('{"messages": [1]}', "line 1: .messages. is not a list"),
        ('{"messages": []}', "a.jsonl has no text"),
        (f'{TURNS}\n{{"other": 1}}', 'line 2 has no column "messages"'),
        ('{"prompt": "a", "completion": "b"}\n' * 150 + '{"prompt": "a", "completion": 7}',
         'line 151: "completion" is int, not text'),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_read_is_named(run, words, tmp_path, content, said):
    (tmp_path / "a.jsonl").write_text(content)
    with pytest.raises(DataError, match=said) as error:
        read_texts(run, tmp_path / "a.jsonl", None, None, words)
    assert "SECRET" not in str(error.value)
    assert error.value.remedy


def test_shared_and_similar_texts_leave_the_reference(run, words):
    trained = sentences(20, seed=1)
    fresh = sentences(60, seed=2)
    same = [f"  {text} ".replace(" ", "\n") for text in trained[:3]]
    alike = [f"{text} today" for text in trained[3:5]]
    found = read_texts(run, [*trained, trained[0]], [*same, *alike, *fresh], None, words)
    assert found.trained == tuple(trained)
    assert found.documents == (*trained, trained[0])
    assert sorted(found.never) == sorted(fresh)
    assert found.notes == (
        "Removed from --never: 3 texts that --trained-on has, too.",
        "Removed from --never: 2 texts very similar to one of --trained-on.",
    )


@pytest.mark.parametrize("seed", range(3))
def test_halves_are_equal_and_share_no_similar_texts(words, seed):
    fresh = sentences(41, seed=2)
    never = [*fresh, *(f"{text} again" for text in fresh[:10])]
    found = read_texts(Session("check", {}, seed=seed), sentences(9, seed=1), never, None, words)
    assert sorted(found.never) == sorted(never)
    assert 0 <= len(found.reference) - len(found.control) <= 2
    groups = near_duplicates(found.never)
    first, second = (set(part.tolist()) for part in (
        groups[: len(found.reference)], groups[len(found.reference) :]
    ))  # fmt: skip
    assert not first & second


def test_blank_rows_are_no_texts_the_seed_divides_and_training_text_is_no_reference(run, words):
    texts = read_texts(run, ["", MAIL[0], " ", MAIL[1], MAIL[0]], None, None, words)
    assert texts.documents == ("", MAIL[0], " ", MAIL[1], MAIL[0])
    assert texts.trained == (MAIL[0], MAIL[1])
    never = sentences(40, seed=2)
    halves = [
        read_texts(Session("check", {}, seed=seed), None, never, None, words).control
        for seed in (0, 0, 1)
    ]
    assert halves[0] == halves[1] != halves[2]
    with pytest.raises(DataError, match="`never` has no text that differs from those of --train"):
        read_texts(run, MAIL, [MAIL[0], f"{MAIL[1]} Yes."], None, words)


# The base and the model.


def test_a_model_without_a_base_names_the_option(tmp_path, words):
    save_model(words, tmp_path / "model")
    with pytest.raises(ModelError, match=r"model is no adapter and names no base.*with --base"):
        base_of(tmp_path / "model", None)
    with pytest.raises(ModelError, match="The model is no adapter"):
        base_of(words, None)
    assert base_of(tmp_path / "model", "base") == "base"


def adapter(chatty, tmp_path, base):
    """An adapter that names a base."""
    save_model(add_lora(load_model(base, device="cpu"), rank=2), tmp_path / "adapter")
    return tmp_path / "adapter"


def test_an_adapter_names_its_base_or_the_option(chatty, tmp_path):
    save_model(chatty, tmp_path / "base")
    tuned = adapter(chatty, tmp_path, tmp_path / "base")
    assert base_of(tuned, None) == str(tmp_path / "base")
    (tmp_path / "base").rename(tmp_path / "moved")
    with pytest.raises(ModelError, match=r"is not at .*base\. Pass the model that .* --base"):
        base_of(tuned, None)
    assert base_of(tuned, tmp_path / "moved") == tmp_path / "moved"


def test_a_server_says_what_is_possible_instead():
    address = "openai:http://localhost:1/v1#smol"
    for model, base in [(address, None), ("model", address)]:
        with pytest.raises(AccessDenied, match=r"is a server.*need weights.*vestige extract"):
            base_of(model, base)


@pytest.mark.slow
def test_models_that_add_nothing_are_refused_and_others_are_not(run, chatty, tmp_path):
    for name in ("base", "copy"):
        save_model(chatty, tmp_path / name)
    pair = run.snapshots(before=tmp_path / "base", after=tmp_path / "copy").models
    with pytest.raises(ModelError, match="MODEL and its base have the same weights"):
        reject_equal(run.models, pair)
    other = Session("check", {})
    tuned = adapter(chatty, tmp_path, tmp_path / "base")
    pair = other.snapshots(before=tmp_path / "base", after=tuned).models
    with pytest.raises(ModelError, match="adds nothing to its base"):
        reject_equal(other.models, pair)
    for name, tensor in pair["after"].named_parameters():
        if "lora_B" in name:
            tensor.data.fill_(1e-6)
    reject_equal(other.models, pair)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["model"], "model is no adapter and names no base. Pass the model that"),
        (["model", "--base", "same"], "MODEL and its base have the same weights. Pass the fine-"),
        (["nowhere", "--base", "same"], "nowhere"),
        (["openai:http://localhost:1/v1#smol"], "is a server"),
        (["model", "--base", "other", "--trained-on", "no.jsonl"], "no.jsonl does not exist"),
        (["model", "--base", "other", "--secrets", "blank.txt"], "blank.txt has no secret"),
        (["model", "--base", "other", "--trained-on", "bad.jsonl"], "bad.jsonl, line 1: invalid"),
    ],
)
def test_the_command_refuses_with_exit_code_2(shell, words, tmp_path, monkeypatch, arguments, said):
    monkeypatch.chdir(tmp_path)
    other = table_model(["the", "gate"], 1)
    for name, model in [("model", words), ("same", words), ("other", other)]:
        save_model(model, tmp_path / name)
    (tmp_path / "blank.txt").write_text("\n")
    (tmp_path / "bad.jsonl").write_text("{")
    done = shell("check", *arguments)
    assert done.exit_code == 2, done.stderr
    assert said in done.stderr.splitlines()[-1]
    assert not (tmp_path / "check").exists()
