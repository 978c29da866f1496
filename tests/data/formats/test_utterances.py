"""`read_utterances` reads all formats, folders of parts, and write files."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.data.files import packed, write, write_all
from vestige.data.formats.utterances import read_utterances
from vestige.data.utterances import Utterance, Utterances, write_utterances
from vestige.errors import DataError

UTTERANCES = [
    Utterance(("play", "some", "jazz"), ("O", "O", "B-genre"), "PlayMusic"),
    Utterance(("rain", "in", "new", "york", "é"), ("O", "O", "B-city", "I-city", "O"), "Weather"),
]


def jsonl(rows):
    return "".join(json.dumps(row._asdict()) + "\n" for row in rows)


def csv(rows):
    lines = [f"{' '.join(row.tokens)},{' '.join(row.tags)},{row.intent}\n" for row in rows]
    return "tokens,tags,intent\n" + "".join(lines)


def parallel(folder, rows):
    rows = [(" ".join(row.tokens), " ".join(row.tags), row.intent) for row in rows]
    return three_files(folder, *("\n".join(column) + "\n" for column in zip(*rows, strict=True)))


def read_parts(source, **options):
    return {name: list(part) for name, part in read_utterances(source, **options).parts().items()}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("u.jsonl", jsonl(UTTERANCES)),
        ("u.json", "\n" + jsonl(UTTERANCES).replace("\n", "\n\n")),
        ("u.jsonl.gz", packed(jsonl(UTTERANCES))),
        ("u.csv", csv(UTTERANCES)),
        ("bom.csv", b"\xef\xbb\xbf" + csv(UTTERANCES).encode()),
        ("u.csv.gz", packed(csv(UTTERANCES))),
        ("u.tsv", csv(UTTERANCES).replace(",", "\t")),
    ],
)
def test_all_table_formats_give_the_same_utterances(name, content, tmp_path):
    assert read_parts(write(tmp_path / name, content)) == {"train": UTTERANCES}


def test_parquet_columns_may_be_lists_or_text(tmp_path):
    lists = {"tokens": [row.tokens for row in UTTERANCES], "tags": [row.tags for row in UTTERANCES]}
    texts = {name: [" ".join(row) for row in column] for name, column in lists.items()}
    for columns in (lists, texts):
        table = pa.table({**columns, "intent": [row.intent for row in UTTERANCES]})
        pq.write_table(table, tmp_path / "u.parquet")
        assert read_parts(tmp_path / "u.parquet") == {"train": UTTERANCES}


def test_columns_are_read_by_name(tmp_path):
    row = {"words": "play jazz", "slots": "O B-genre", "label": "Play", "tokens": 5}
    path = write(tmp_path / "u.jsonl", json.dumps(row))
    named = {"tokens_column": "words", "tags_column": "slots", "intent_column": "label"}
    assert read_parts(path, **named) == {
        "train": [Utterance(("play", "jazz"), ("O", "B-genre"), "Play")]
    }


@pytest.mark.parametrize("held_out", ["validation", "valid", "dev"])
@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".jsonl.gz", "/"])
def test_a_folder_has_several_parts(held_out, suffix, tmp_path):
    parts = {"train": UTTERANCES, held_out: UTTERANCES[:1], "test": UTTERANCES[1:]}
    for name, rows in parts.items():
        content = (csv if suffix == ".csv" else jsonl)(rows)
        if suffix == "/":
            parallel(tmp_path / name, rows)
        else:
            content = packed(content) if suffix.endswith(".gz") else content
            write(tmp_path / f"{name}{suffix}", content)
    write(tmp_path / "manifest.json", "{}")
    write(tmp_path / "README.md", "about this folder")
    assert read_parts(tmp_path) == {
        "train": UTTERANCES,
        "validation": UTTERANCES[:1],
        "test": UTTERANCES[1:],
    }
    assert read_parts(tmp_path, limit=1)["train"] == UTTERANCES[:1]
    assert read_parts(tmp_path, limit=9)["train"] == UTTERANCES


def test_a_single_part_is_the_training_part(tmp_path):
    assert read_parts(parallel(tmp_path / "a", UTTERANCES)) == {"train": UTTERANCES}
    write(tmp_path / "b" / "mine.jsonl", jsonl(UTTERANCES))
    assert read_parts(tmp_path / "b") == {"train": UTTERANCES}
    write(tmp_path / "c" / "train.jsonl", jsonl(UTTERANCES))
    splits = read_utterances(tmp_path / "c")
    assert (splits.validation, splits.test) == (None, None)


def test_writing_and_reading_keeps_the_fingerprint(tmp_path):
    utterances = Utterances.of([*UTTERANCES, Utterance(('"\\,🍕',), ("B-a-b",), "x")])
    path = tmp_path / "new" / "train.jsonl"
    write_utterances(utterances, path)
    assert read_utterances(path).train.fingerprint() == utterances.fingerprint()
    assert [entry.name for entry in path.parent.iterdir()] == ["train.jsonl"]
    write_utterances(utterances.take([0]), path)
    assert json.loads(path.read_text()) == {
        "tokens": ["play", "some", "jazz"],
        "tags": ["O", "O", "B-genre"],
        "intent": "PlayMusic",
    }
    with pytest.raises(ValueError, match="utterances must be positive"):
        write_utterances(Utterances.of([]), tmp_path / "u.jsonl")
    with pytest.raises(ValueError, match=r"must end in \.jsonl, got 'u\.csv'"):
        write_utterances(Utterances.of(UTTERANCES), tmp_path / "u.csv")
    assert [entry.name for entry in tmp_path.iterdir()] == ["new"]


WORDS, TAGS = "play  jazz \nrain in york\n", "O B-genre \nO O B-city\n"


def three_files(folder, words=WORDS, tags=TAGS, labels="Play\nWeather \n"):
    return write_all(folder, {"seq.in": words, "seq.out": tags, "label": labels})


def test_an_utterance_is_one_line_of_each_parallel_file(tmp_path):
    expected = {
        "train": [
            Utterance(("play", "jazz"), ("O", "B-genre"), "Play"),
            Utterance(("rain", "in", "york"), ("O", "O", "B-city"), "Weather"),
        ]
    }
    for words in (WORDS, WORDS.replace("\n", "\r\n"), WORDS + "\n\n", WORDS.rstrip("\n")):
        assert read_parts(three_files(tmp_path, words), format="parallel") == expected


PIECES = [
    {"text": "Add "},
    {"text": "Live at Leeds", "entity": "album"},
    {"text": "'s songs to "},
    {"text": "my", "entity": "owner"},
    {"text": " list."},
]
ADDED = Utterance(
    ("Add", "Live", "at", "Leeds", "'s", "songs", "to", "my", "list."),
    ("O", "B-album", "I-album", "I-album", "O", "O", "O", "B-owner", "O"),
    "Add",
)


def snips(folder, file, *utterances):
    """One of the original Snips files, named by its intent."""
    intent = file.split("_")[1]
    content = {intent: [{"data": pieces} for pieces in utterances]}
    return write(folder / intent / f"{file}.json", json.dumps(content))


def test_snips_words_end_at_slot_boundaries(tmp_path):
    neighbours = [{"text": "one two", "entity": "n"}, {"text": "three", "entity": "n"}]
    snips(tmp_path, "train_Add_full", PIECES, neighbours)
    split = Utterance(("one", "two", "three"), ("B-n", "I-n", "B-n"), "Add")
    assert read_parts(tmp_path) == {"train": [ADDED, split]}
    # The two halves of a surrogate pair are joined.
    halves = b'{"Add": [{"data": [{"text": "pop \xed\xa0\xbc\xed\xbd\x95"}]}]}'
    write(tmp_path / "Add" / "train_Add_full.json", halves)
    assert read_parts(tmp_path)["train"][0].tokens == ("pop", "🍕")


def test_full_snips_files_are_preferred_and_intents_are_sorted(tmp_path):
    snips(tmp_path, "train_Rate", [{"text": "rate"}])
    snips(tmp_path, "train_Add", [{"text": "short"}])
    snips(tmp_path, "train_Add_full", [{"text": "full"}], PIECES)
    snips(tmp_path, "validate_Rate", [{"text": "held"}])
    with pytest.raises(DataError, match=r"validate_Add\.json does not exist"):
        read_utterances(tmp_path)
    snips(tmp_path, "validate_Add", [{"text": "held"}])
    parts = read_parts(tmp_path)
    assert [utterance.tokens[0] for utterance in parts["train"]] == ["full", "Add", "rate"]
    assert [utterance.intent for utterance in parts["validation"]] == ["Add", "Rate"]


def test_inline_slots_of_nlu_evaluation_become_tags(tmp_path):
    rows = (
        "answerid;scenario;intent;answer_annotation;answer_from_user\n"
        '1;email;send;"mail [person : ann lee], is [time:nine am] ok?";Mail!\n'
        "2;audio;volume_up;[device : radio] [device : tv];x\n"
    )
    path = write(tmp_path / "utterances.csv", rows)
    expected = [
        Utterance(
            ("mail", "ann", "lee", ",", "is", "nine", "am", "ok?"),
            ("O", "B-person", "I-person", "O", "O", "B-time", "I-time", "O"),
            "email_send",
        ),
        Utterance(("radio", "tv"), ("B-device", "B-device"), "audio_volume_up"),
    ]
    for source in (path, tmp_path):
        assert read_parts(source) == {"train": expected}
