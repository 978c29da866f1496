"""Texts of a check: guessed columns, chats, two halves without duplicates; base and model."""

import gzip
import json
from copy import deepcopy

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.audits.check.networks import network
from tests.audits.stories import sentences
from tests.cli.conftest import table_model
from vestige.audits.check.inputs import base_of, read_texts, reject_equal, rendered, text_columns
from vestige.claims import near_duplicates
from vestige.data.corpus import Corpus
from vestige.data.subwords import SubwordVocabulary
from vestige.errors import AccessDenied, DataError, ModelError
from vestige.models.checkpoints import load_model, save_model
from vestige.models.lora import add_lora
from vestige.session import Session

TEMPLATE = (
    "{% for m in messages %}{% if m['role'] == 'tool' %}{{ raise_exception('no') }}{% endif %}"
    "<{{ m['role'] }}> {{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
MAIL = [f"{text} and so on." for text in sentences(6, seed=1)]
CHAT = [{"role": "user", "content": "Where?"}, {"role": "assistant", "content": "At home."}]
SHARED = [{"from": "human", "value": "Where?"}, {"from": "gpt", "value": "At home."}]
RENDERED = "<user> Where?\n<assistant> At home.\n"


@pytest.fixture(scope="module")
def chat_model():
    """A GPT-2 whose tokenizer has a chat template."""
    vocabulary = SubwordVocabulary.train_bpe(Corpus.from_texts(MAIL * 9), size=300)
    vocabulary.tokenizer.chat_template = TEMPLATE
    return network("gpt2", vocabulary)


@pytest.fixture
def session():
    return Session("check", {})


@pytest.fixture
def table():
    """A model without a chat template."""
    return table_model(["the", "gate"], 0)


def write(path, rows):
    """Write rows in the format of the file name."""
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
        return path
    if path.suffix == ".csv":
        lines = [[f'"{value}"' for value in row.values()] for row in rows]
        path.write_text("\n".join(map(",".join, [list(rows[0]), *lines])))
    else:
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(path.read_bytes()))
    return path


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.csv", "a.parquet"])
def test_the_text_column_is_guessed_or_named(session, table, tmp_path, name):
    rows = [{"id": f"mail-{n}", "body": mail, "to": "Ann"} for n, mail in enumerate(MAIL)]
    path = write(tmp_path / name, rows)
    texts = read_texts(session, path, None, None, table)
    assert texts.trained == texts.documents == tuple(MAIL)
    guess = "--trained-on is read from column body (guessed; --text names another)."
    assert texts.notes == (guess,)
    assert session.data["trained_on"]["documents"] == len(MAIL)
    named = read_texts(session, path, None, "to", table)
    assert (named.trained, named.notes) == (("Ann",), ())


def test_folders_and_plain_text_are_read(session, table, tmp_path):
    (tmp_path / "mails").mkdir()
    for n, text in enumerate(MAIL[:3]):
        write(tmp_path / "mails" / f"{n}.jsonl", [{"note": text, "n": n}])
    (tmp_path / "never.txt").write_text("\n\n".join(MAIL[3:]))
    texts = read_texts(session, tmp_path / "mails", tmp_path / "never.txt", None, table)
    assert texts.trained == tuple(MAIL[:3])
    assert sorted(texts.never) == sorted(MAIL[3:])


@pytest.mark.parametrize(
    ("row", "columns"),
    [
        ({"text": "a", "body": "longer"}, ("text",)),
        ({"text": None, "body": "longer"}, ("body",)),
        ({"messages": CHAT, "prompt": "x" * 99}, ("messages",)),
        ({"text": "as rendered", "messages": CHAT}, ("text",)),
        ({"conversations": SHARED}, ("conversations",)),
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
def test_text_columns_are_guessed(row, columns):
    assert text_columns([row] if row else []) == columns


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet"])
@pytest.mark.parametrize(("column", "turns"), [("messages", CHAT), ("conversations", SHARED)])
def test_chats_are_rendered_with_the_template(session, chat_model, tmp_path, name, column, turns):
    rows = [{column: turns}, {column: [*turns, *turns]}]
    texts = read_texts(session, write(tmp_path / name, rows), None, None, chat_model)
    assert texts.documents == (RENDERED, RENDERED * 2)
    note = "--trained-on: chats are rendered with the chat template of the model."
    assert texts.notes[-1] == note


def test_without_a_template_turns_are_joined(session, table, tmp_path):
    parts = {"role": "user", "content": [{"type": "text", "text": "Wh"}, {"text": "ere?"}]}
    tool = {"role": "tool", "content": None}
    path = write(tmp_path / "a.jsonl", [{"messages": [parts, CHAT[1], tool]}, {"messages": []}])
    texts = read_texts(session, path, None, None, table)
    assert (texts.documents, texts.trained) == (("Where?\nAt home.\n", ""), ("Where?\nAt home.\n",))
    assert "no chat template" in texts.notes[-1]


def test_unrenderable_chats_are_joined_and_begin_tokens_are_not_doubled(chat_model):
    texts, sentence = rendered([CHAT, [{"role": "tool", "content": "5"}]], chat_model)
    assert texts == [RENDERED, "5"]
    assert sentence.endswith("It refuses 1 of 2, whose turns are joined.")
    model = deepcopy(chat_model)
    tokenizer = model.vocabulary.tokenizer
    tokenizer.bos_token = tokenizer.eos_token
    tokenizer.chat_template = "{{ bos_token }}" + TEMPLATE
    assert rendered([CHAT], model)[0] == [RENDERED]


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.parquet"])
def test_prompts_and_answers_are_joined(session, table, tmp_path, name):
    rows = [{"instruction": "Add.", "input": f"{n}", "output": f"{n + 1}"} for n in range(2)]
    texts = read_texts(session, write(tmp_path / name, rows), None, None, table)
    assert texts.documents == ("Add.\n0\n1", "Add.\n1\n2")
    assert "from columns instruction, input and output" in texts.notes[0]


TURNS = '{"messages": [{"role": "user", "content": "a"}]}'
ANSWER = '{"prompt": "a", "completion": "b"}\n'


@pytest.mark.parametrize(
    ("content", "message"),
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
        (f'{ANSWER * 150}{{"prompt": "a", "completion": 7}}',
         'line 151: "completion" is int, not text'),
    ],
)  # fmt: skip
def test_unreadable_files_are_named(session, table, tmp_path, content, message):
    (tmp_path / "a.jsonl").write_text(content)
    with pytest.raises(DataError, match=message) as error:
        read_texts(session, tmp_path / "a.jsonl", None, None, table)
    assert "SECRET" not in str(error.value)
    assert error.value.remedy


def test_shared_and_similar_texts_leave_the_reference(session, table):
    trained, fresh = sentences(20, seed=1), sentences(60, seed=2)
    same = [f"  {text} ".replace(" ", "\n") for text in trained[:3]]
    similar = [f"{text} today" for text in trained[3:5]]
    documents = [*trained, trained[0]]
    texts = read_texts(session, documents, [*same, *similar, *fresh], None, table)
    assert (texts.trained, texts.documents) == (tuple(trained), tuple(documents))
    assert sorted(texts.never) == sorted(fresh)
    assert texts.notes == (
        "Removed from --never: 3 texts that --trained-on has, too.",
        "Removed from --never: 2 texts very similar to one of --trained-on.",
    )
    with pytest.raises(DataError, match="`never` has no text that differs from those of --train"):
        read_texts(session, MAIL, [MAIL[0], f"{MAIL[1]} Yes."], None, table)


def test_blank_rows_are_ignored(session, table):
    rows = ["", MAIL[0], " ", MAIL[1], MAIL[0]]
    texts = read_texts(session, rows, None, None, table)
    assert (texts.documents, texts.trained) == (tuple(rows), (MAIL[0], MAIL[1]))


def test_halves_are_equal_disjoint_and_determined_by_the_seed(table):
    fresh, controls = sentences(41, seed=2), []
    never = [*fresh, *(f"{text} again" for text in fresh[:10])]
    for seed in (0, 0, 1, 2):
        session = Session("check", {}, seed=seed)
        texts = read_texts(session, sentences(9, seed=1), never, None, table)
        controls.append(texts.control)
        assert sorted(texts.never) == sorted(never)
        assert 0 <= len(texts.reference) - len(texts.control) <= 2
        groups = near_duplicates(texts.never).tolist()
        first, second = groups[: len(texts.reference)], groups[len(texts.reference) :]
        assert not {*first} & {*second}
    assert controls[0] == controls[1] != controls[2]


# The base and the model.


@pytest.fixture(scope="module")
def saved(chat_model, tmp_path_factory):
    """A base, a copy of it, an adapter without effect and a table."""
    root = tmp_path_factory.mktemp("models")
    models = {"base": chat_model, "copy": chat_model, "table": table_model(["a"], 0)}
    for name, model in models.items():
        save_model(model, root / name)
    save_model(add_lora(load_model(root / "base", device="cpu"), rank=2), root / "adapter")
    return root


ADDRESS = "openai:http://localhost:1/v1#smol"


def test_the_base_is_an_option_or_named_by_the_adapter(saved, table):
    assert base_of(saved / "adapter", None) == str(saved / "base")
    assert base_of(saved / "table", "base") == "base"
    with pytest.raises(ModelError, match=r"table is no adapter and names no base.*with --base"):
        base_of(saved / "table", None)
    with pytest.raises(ModelError, match="The model is no adapter"):
        base_of(table, None)
    for model, base in [(ADDRESS, None), ("model", ADDRESS)]:
        with pytest.raises(AccessDenied, match=r"is a server.*need weights.*vestige extract"):
            base_of(model, base)


def test_a_moved_base_must_be_passed(chat_model, tmp_path):
    save_model(chat_model, tmp_path / "base")
    save_model(add_lora(load_model(tmp_path / "base"), rank=2), tmp_path / "adapter")
    (tmp_path / "base").rename(tmp_path / "moved")
    with pytest.raises(ModelError, match=r"is not at .*base\. Pass the model that .* --base"):
        base_of(tmp_path / "adapter", None)
    assert base_of(tmp_path / "adapter", tmp_path / "moved") == tmp_path / "moved"


@pytest.mark.slow
def test_models_equal_to_their_base_are_refused(session, saved):
    pair = session.snapshots(before=saved / "base", after=saved / "copy").models
    with pytest.raises(ModelError, match="MODEL and its base have the same weights"):
        reject_equal(session.models, pair)
    adapted = Session("check", {})
    pair = adapted.snapshots(before=saved / "base", after=saved / "adapter").models
    with pytest.raises(ModelError, match="adds nothing to its base"):
        reject_equal(adapted.models, pair)
    for name, tensor in pair["after"].named_parameters():
        if "lora_B" in name:
            tensor.data.fill_(1e-6)
    reject_equal(adapted.models, pair)
