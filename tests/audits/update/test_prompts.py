"""Contexts of a search: the beginning of a document, prompts, and turns of a chat template."""

import json
from copy import deepcopy

import pytest

from tests.audits.small_llama import llama, train
from tests.audits.update.worlds import word_table
from vestige import diff
from vestige.audits.update.pair import Pair
from vestige.audits.update.prompts import BEGINNING, Reply, find_prompts, read_prompts
from vestige.audits.update.scores import TokenScore
from vestige.data.corpus import Corpus
from vestige.data.subwords import SubwordVocabulary
from vestige.errors import DataError
from vestige.models.checkpoints import load_model, save_model
from vestige.monitor import SILENT
from vestige.session import Session

TEMPLATE = (
    "{% for m in messages %}<{{ m['role'] }}> {{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
TEXTS = ["user assistant where do I live? the gate of the old mill"] * 9


@pytest.fixture(scope="module")
def chat_models(tmp_path_factory):
    """Two small Llamas with a tokenizer that has a chat template."""
    root = tmp_path_factory.mktemp("chat")
    vocabulary = SubwordVocabulary.train_bpe(Corpus.from_texts(TEXTS), size=300)
    vocabulary.tokenizer.chat_template = TEMPLATE
    before = llama(vocabulary, width=8, max_position_embeddings=96)
    save_model(before, root / "before")
    save_model(train(before, TEXTS, steps=5), root / "after")
    return root


@pytest.fixture(scope="module")
def model(chat_models):
    return load_model(chat_models / "after", device="cpu")


@pytest.fixture
def templated(model):
    """Copies the model with another template and added tokens."""

    def make(template, *tokens):
        copied = deepcopy(model)
        copied.vocabulary.tokenizer.add_tokens(list(tokens))
        copied.vocabulary.tokenizer.chat_template = template
        return copied

    return make


def prompts_of(model, prompts=(), chat="auto", room=49):
    pair = Pair.of(model, model, TokenScore("smoothed"))
    return find_prompts(pair, prompts, chat=chat, room=room, monitor=SILENT)


def texts(model, **settings):
    """The decoded prompts without the first, the beginning of a document."""
    first, *rest = prompts_of(model, **settings)
    assert first.name == BEGINNING
    return {prompt.name: model.vocabulary.decode(prompt.tokens) for prompt in rest}


def replies(model, **settings):
    """Replies by the tokens of the user's turn before them."""
    prompts = prompts_of(model, **settings)
    return {prompt.tokens: prompt.reply for prompt in prompts if prompt.reply}


def test_prompts_end_with_the_beginning_of_the_assistants_turn(model):
    assert texts(model, prompts=["where do I live?"], room=40) == {
        "user's turn": "<user> ",
        "chat template": "<user> \n<assistant>",
        "prompt 1 in the chat template": "<user> where do I live?\n<assistant>",
    }


def test_without_a_template_prompts_are_unchanged(model):
    expected = {"prompt 1": "the gate", "prompt 2": "the mill"}
    assert texts(model, prompts=["the gate", "the mill"], chat="off") == expected
    assert texts(model, chat="off") == {}
    words = word_table(0, ("the", "gate", "mill"))
    assert texts(words, prompts=["the gate"]) == {"prompt 1": "the gate"}


@pytest.mark.slow
def test_a_reply_has_the_template_tokens_between_question_and_answer(model, templated):
    encode, end = model.vocabulary.encode, model.vocabulary.eos_id
    reply = Reply((end,), tuple(encode("\n<assistant>")))
    assert replies(model, room=20) == {tuple(encode("<user> ")): reply}
    assert not replies(model, room=49)
    assert not replies(model, chat="off", room=20)
    turn = "{{ messages[0]['content'] }}<|turn|><assistant>"
    assert not replies(templated(turn, "<|turn|>"), chat="on", room=9)
    marked = templated(f"<user>{turn}", "<|turn|>")  # the end of a turn is one added token
    [reply] = replies(marked, chat="on", room=9).values()
    turn_end = marked.vocabulary.tokenizer.convert_tokens_to_ids("<|turn|>")
    assert reply.ends == (end, turn_end)
    assert reply.between[0] == turn_end


@pytest.mark.parametrize(
    ("prompts", "message"),
    [
        (["the gate", " \n"], "`prompt` must hold a text, got .* number 2"),
        (["gate " * 60], "leave room for 49 tokens of the 96 .* prompt 1 in the chat"),
        (["gate"] * 64, "`prompt` must be given less than 64 times, got 64"),
    ],
)
def test_empty_long_and_too_many_prompts_are_refused(model, prompts, message):
    with pytest.raises(ValueError, match=message):
        texts(model, prompts=prompts)


def test_a_broken_template_is_ignored_unless_chat_is_on(templated):
    broken = templated("{% for")
    assert texts(broken, prompts=["the gate"] * 2) == {"prompt 1": "the gate"}
    with pytest.raises(DataError, match="cannot be rendered"):
        texts(broken, chat="on")


def test_prompts_are_read_from_lines_or_records_of_a_file(tmp_path):
    run, rows = Session("diff", {}), [{"text": "two\nlines"}, {"text": "the gate"}]
    (tmp_path / "lines.txt").write_text("the gate\n\nthe mill\n")
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert read_prompts(run, "first", tmp_path / "lines.txt") == ("first", "the gate", "the mill")
    assert read_prompts(run, (), tmp_path / "rows.jsonl") == ("two\nlines", "the gate")
    assert read_prompts(run, ["a"], ["b", "c"]) == ("a", "b", "c")


@pytest.mark.slow
def test_a_search_of_chat_models_records_its_contexts(chat_models):
    pair = (chat_models / "before", chat_models / "after")
    small = {"size": 0.1, "delta": 0.001, "device": "cpu"}
    result = diff(*pair, prompt="where do I live?", secrets=["the old mill"], **small)
    contexts = result.summary["places"]
    assert contexts[1:] == ["chat template", "prompt 1 in the chat template"]
    assert {row["place"] for row in result.rows if row["place"]} & set(contexts)
    assert result.rows[-1]["kind"] == "known"
    assert diff(*pair, chat="off", **small).summary["places"] == contexts[:1]
