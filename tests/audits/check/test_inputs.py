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
def chatty():
    """A GPT-2 whose tokenizer has a chat template."""
    vocabulary = SubwordVocabulary.train_bpe(Corpus.from_texts(MAIL * 9), size=300)
    vocabulary.tokenizer.chat_template = TEMPLATE
    return network("gpt2", vocabulary)


@pytest.fixture
def run():
    return Session("check", {})


@pytest.fixture
def words():
    """A model without a chat template."""
    return table_model(["the", "gate"], 0)


def write(path, rows):
    """A table in the format of its name."""
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
        return path
    if path.suffix == ".csv":
        body = [[f'"{one}"' for one in row.values()] for row in rows]
        path.write_text("\n".join(map(",".join, [list(rows[0]), *body])))
    else:
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(path.read_bytes()))
    return path


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.csv", "a.parquet"])
def test_the_text_column_is_guessed_and_shown_or_named(run, words, tmp_path, name):
    rows = [{"id": f"mail-{n}", "body": text, "to": "Ann"} for n, text in enumerate(MAIL)]
    path = write(tmp_path / name, rows)
    found = read_texts(run, path, None, None, words)
    assert found.trained == found.documents == tuple(MAIL)
    guess = "--trained-on is read from column body (guessed; --text names another)."
    assert found.notes == (guess,)
    assert run.data["trained_on"]["documents"] == len(MAIL)
    named = read_texts(run, path, None, "to", words)
    assert (named.trained, named.notes) == (("Ann",), ())


def test_a_folder_of_tables_and_lines_of_text_are_read(run, words, tmp_path):
    (tmp_path / "mails").mkdir()
    for n, text in enumerate(MAIL[:3]):
        write(tmp_path / "mails" / f"{n}.jsonl", [{"note": text, "n": n}])
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
def test_columns_with_the_text(row, columns):
    assert text_columns([row] if row else []) == columns


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet"])
@pytest.mark.parametrize(("column", "turns"), [("messages", CHAT), ("conversations", SHARED)])
def test_chats_are_rendered_with_the_template(run, chatty, tmp_path, name, column, turns):
    rows = [{column: turns}, {column: [*turns, *turns]}]
    found = read_texts(run, write(tmp_path / name, rows), None, None, chatty)
    assert found.documents == (RENDERED, RENDERED * 2)
    how = "--trained-on: chats are rendered with the chat template of the model."
    assert found.notes[-1] == how


def test_without_a_template_turns_are_joined(run, words, tmp_path):
    parts = {"role": "user", "content": [{"type": "text", "text": "Wh"}, {"text": "ere?"}]}
    tool = {"role": "tool", "content": None}
    path = write(tmp_path / "a.jsonl", [{"messages": [parts, CHAT[1], tool]}, {"messages": []}])
    found = read_texts(run, path, None, None, words)
    assert (found.documents, found.trained) == (("Where?\nAt home.\n", ""), ("Where?\nAt home.\n",))
    assert "no chat template" in found.notes[-1]


def test_a_refused_chat_is_joined_and_no_text_begins_twice(chatty):
    texts, sentence = rendered([CHAT, [{"role": "tool", "content": "5"}]], chatty)
    assert texts == [RENDERED, "5"]
    assert sentence.endswith("It refuses 1 of 2, whose turns are joined.")
    model = deepcopy(chatty)
    tokenizer = model.vocabulary.tokenizer
    tokenizer.bos_token = tokenizer.eos_token
    tokenizer.chat_template = "{{ bos_token }}" + TEMPLATE
    assert rendered([CHAT], model)[0] == [RENDERED]


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.parquet"])
def test_a_prompt_and_its_answer_are_one_text(run, words, tmp_path, name):
    rows = [{"instruction": "Add.", "input": f"{n}", "output": f"{n + 1}"} for n in range(2)]
    found = read_texts(run, write(tmp_path / name, rows), None, None, words)
    assert found.documents == ("Add.\n0\n1", "Add.\n1\n2")
    assert "from columns instruction, input and output" in found.notes[0]


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
def test_a_file_that_cannot_be_read_is_named(run, words, tmp_path, content, message):
    (tmp_path / "a.jsonl").write_text(content)
    with pytest.raises(DataError, match=message) as error:
        read_texts(run, tmp_path / "a.jsonl", None, None, words)
    assert "SECRET" not in str(error.value)
    assert error.value.remedy


def test_shared_and_similar_texts_leave_the_reference(run, words):
    trained, fresh = sentences(20, seed=1), sentences(60, seed=2)
    same = [f"  {text} ".replace(" ", "\n") for text in trained[:3]]
    alike = [f"{text} today" for text in trained[3:5]]
    given = [*trained, trained[0]]
    found = read_texts(run, given, [*same, *alike, *fresh], None, words)
    assert (found.trained, found.documents) == (tuple(trained), tuple(given))
    assert sorted(found.never) == sorted(fresh)
    assert found.notes == (
        "Removed from --never: 3 texts that --trained-on has, too.",
        "Removed from --never: 2 texts very similar to one of --trained-on.",
    )
    with pytest.raises(DataError, match="`never` has no text that differs from those of --train"):
        read_texts(run, MAIL, [MAIL[0], f"{MAIL[1]} Yes."], None, words)


def test_blank_rows_are_no_texts(run, words):
    given = ["", MAIL[0], " ", MAIL[1], MAIL[0]]
    texts = read_texts(run, given, None, None, words)
    assert (texts.documents, texts.trained) == (tuple(given), (MAIL[0], MAIL[1]))


def test_halves_are_equal_share_no_similar_texts_and_are_drawn_by_the_seed(words):
    fresh, controls = sentences(41, seed=2), []
    never = [*fresh, *(f"{text} again" for text in fresh[:10])]
    for seed in (0, 0, 1, 2):
        run = Session("check", {}, seed=seed)
        found = read_texts(run, sentences(9, seed=1), never, None, words)
        controls.append(found.control)
        assert sorted(found.never) == sorted(never)
        assert 0 <= len(found.reference) - len(found.control) <= 2
        groups = near_duplicates(found.never).tolist()
        first, second = groups[: len(found.reference)], groups[len(found.reference) :]
        assert not {*first} & {*second}
    assert controls[0] == controls[1] != controls[2]


# The base and the model.


@pytest.fixture(scope="module")
def saved(chatty, tmp_path_factory):
    """A base and a copy of it; an adapter that adds nothing, and a table."""
    root = tmp_path_factory.mktemp("models")
    for name, model in (("base", chatty), ("copy", chatty), ("table", table_model(["a"], 0))):
        save_model(model, root / name)
    save_model(add_lora(load_model(root / "base", device="cpu"), rank=2), root / "adapter")
    return root


ADDRESS = "openai:http://localhost:1/v1#smol"


def test_a_base_is_given_or_named_by_an_adapter(saved, words):
    assert base_of(saved / "adapter", None) == str(saved / "base")
    assert base_of(saved / "table", "base") == "base"
    with pytest.raises(ModelError, match=r"table is no adapter and names no base.*with --base"):
        base_of(saved / "table", None)
    with pytest.raises(ModelError, match="The model is no adapter"):
        base_of(words, None)
    for model, base in [(ADDRESS, None), ("model", ADDRESS)]:
        with pytest.raises(AccessDenied, match=r"is a server.*need weights.*vestige extract"):
            base_of(model, base)


def test_a_base_that_moved_is_asked_for(chatty, tmp_path):
    save_model(chatty, tmp_path / "base")
    save_model(add_lora(load_model(tmp_path / "base"), rank=2), tmp_path / "adapter")
    (tmp_path / "base").rename(tmp_path / "moved")
    with pytest.raises(ModelError, match=r"is not at .*base\. Pass the model that .* --base"):
        base_of(tmp_path / "adapter", None)
    assert base_of(tmp_path / "adapter", tmp_path / "moved") == tmp_path / "moved"


@pytest.mark.slow
def test_models_that_add_nothing_are_refused_and_others_are_not(run, saved):
    pair = run.snapshots(before=saved / "base", after=saved / "copy").models
    with pytest.raises(ModelError, match="MODEL and its base have the same weights"):
        reject_equal(run.models, pair)
    other = Session("check", {})
    pair = other.snapshots(before=saved / "base", after=saved / "adapter").models
    with pytest.raises(ModelError, match="adds nothing to its base"):
        reject_equal(other.models, pair)
    for name, tensor in pair["after"].named_parameters():
        if "lora_B" in name:
            tensor.data.fill_(1e-6)
    reject_equal(other.models, pair)
