"""`read_utterances`: what it recognises, which parts it finds, tables, parallel files, writing."""

import gzip
import json

import pyarrow as pa
import pyarrow.parquet
import pytest

from vestige.data.formats.utterances import read_utterances, write_utterances
from vestige.data.utterances import Utterance, Utterances
from vestige.errors import DataError

SAID = [
    Utterance(("play", "some", "jazz"), ("O", "O", "B-genre"), "PlayMusic"),
    Utterance(("rain", "in", "new", "york", "é"), ("O", "O", "B-city", "I-city", "O"), "Weather"),
]


def jsonl(rows):
    return "".join(json.dumps(row._asdict()) + "\n" for row in rows)


def csv(rows):
    lines = [f"{' '.join(row.tokens)},{' '.join(row.tags)},{row.intent}\n" for row in rows]
    return "tokens,tags,intent\n" + "".join(lines)


def parallel(folder, rows):
    folder.mkdir(parents=True, exist_ok=True)
    columns = {
        "seq.in": [" ".join(row.tokens) for row in rows],
        "seq.out": [" ".join(row.tags) for row in rows],
        "label": [row.intent for row in rows],
    }
    for name, column in columns.items():
        (folder / name).write_text("\n".join(column) + "\n", encoding="utf-8")
    return folder


def written(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def found(splits):
    return {name: list(part) for name, part in splits.parts().items()}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("u.jsonl", jsonl(SAID)),
        ("u.json", "\n" + jsonl(SAID).replace("\n", "\n\n")),
        ("u.ndjson", jsonl(SAID)),
        ("u.jsonl.gz", gzip.compress(jsonl(SAID).encode(), mtime=0)),
        ("u.csv", csv(SAID)),
        ("bom.csv", b"\xef\xbb\xbf" + csv(SAID).encode()),
        ("u.csv.gz", gzip.compress(csv(SAID).encode(), mtime=0)),
        ("u.tsv", csv(SAID).replace(",", "\t")),
    ],
)
def test_every_table_gives_the_same_utterances(name, content, tmp_path):
    assert found(read_utterances(written(tmp_path / name, content))) == {"train": SAID}


def test_parquet_gives_them_from_lists_and_from_text(tmp_path):
    lists = {"tokens": [r.tokens for r in SAID], "tags": [r.tags for r in SAID]}
    texts = {name: [" ".join(row) for row in column] for name, column in lists.items()}
    for columns in (lists, texts):
        table = pa.table({**columns, "intent": [row.intent for row in SAID]})
        pa.parquet.write_table(table, tmp_path / "u.parquet")
        assert found(read_utterances(tmp_path / "u.parquet")) == {"train": SAID}


def test_columns_are_found_by_name(tmp_path):
    row = {"words": "play jazz", "slots": "O B-genre", "label": "Play", "tokens": 5}
    path = written(tmp_path / "u.jsonl", json.dumps(row))
    splits = read_utterances(
        path, tokens_column="words", tags_column="slots", intent_column="label"
    )
    assert list(splits.train) == [Utterance(("play", "jazz"), ("O", "B-genre"), "Play")]


@pytest.mark.parametrize("held", ["validation", "valid", "dev"])
@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".jsonl.gz"])
def test_a_folder_of_tables_gives_all_its_parts(held, suffix, tmp_path):
    parts = {"train": SAID, held: SAID[:1], "test": SAID[1:]}
    for name, rows in parts.items():
        content = (csv if suffix == ".csv" else jsonl)(rows).encode()
        packed = gzip.compress(content) if suffix.endswith(".gz") else content
        written(tmp_path / f"{name}{suffix}", packed)
    written(tmp_path / "manifest.json", "{}")
    written(tmp_path / "README.md", "how this came about")
    splits = found(read_utterances(tmp_path))
    assert splits == {"train": SAID, "validation": SAID[:1], "test": SAID[1:]}


@pytest.mark.parametrize("held", ["validation", "valid", "dev"])
def test_a_folder_of_parallel_folders_gives_all_its_parts(held, tmp_path):
    for name, rows in {"train": SAID, held: SAID[:1], "test": SAID[1:]}.items():
        parallel(tmp_path / name, rows)
    splits = found(read_utterances(tmp_path))
    assert splits == {"train": SAID, "validation": SAID[:1], "test": SAID[1:]}


def test_one_part_alone_is_the_training_part(tmp_path):
    assert found(read_utterances(parallel(tmp_path / "a", SAID))) == {"train": SAID}
    written(tmp_path / "b" / "mine.jsonl", jsonl(SAID))
    assert found(read_utterances(tmp_path / "b")) == {"train": SAID}
    written(tmp_path / "c" / "train.jsonl", jsonl(SAID))
    splits = read_utterances(tmp_path / "c")
    assert (splits.validation, splits.test) == (None, None)


def test_a_limit_holds_for_every_part(tmp_path):
    for name in ("train", "valid"):
        parallel(tmp_path / name, SAID)
    splits = found(read_utterances(tmp_path, limit=1))
    assert splits == {"train": SAID[:1], "validation": SAID[:1]}
    assert len(read_utterances(tmp_path, limit=9).train) == 2


def test_what_is_written_reads_back_to_the_same_fingerprint(tmp_path):
    utterances = Utterances.of([*SAID, Utterance(('"\\,🍕',), ("B-a-b",), "x")])
    path = tmp_path / "new" / "train.jsonl"
    write_utterances(utterances, path)
    assert read_utterances(path).train.fingerprint() == utterances.fingerprint()
    assert [entry.name for entry in path.parent.iterdir()] == ["train.jsonl"]
    write_utterances(utterances.take([0]), path)
    assert list(read_utterances(path).train) == SAID[:1]
    assert json.loads(path.read_text()) == {
        "tokens": ["play", "some", "jazz"],
        "tags": ["O", "O", "B-genre"],
        "intent": "PlayMusic",
    }


def test_nothing_is_written_where_nothing_could_be_read(tmp_path):
    with pytest.raises(ValueError, match="utterances must be positive"):
        write_utterances(Utterances.of([]), tmp_path / "u.jsonl")
    with pytest.raises(ValueError, match=r"must end in \.jsonl, got 'u\.csv'"):
        write_utterances(Utterances.of(SAID), tmp_path / "u.csv")
    assert not list(tmp_path.iterdir())


ROW = '{"tokens": ["a", "b"], "tags": ["O", "B-x"], "intent": "i"}\n'
FAULTS = {
    "too few tags": ('{"tokens": ["a", "b"], "tags": ["O"], "intent": "i"}', "2 words and 1 tags"),
    "I without B": ('{"tokens": ["a"], "tags": ["I-x"], "intent": "i"}', "continues a slot"),
    "unknown tag": ('{"tokens": ["a"], "tags": ["E-x"], "intent": "i"}', "not O, B-name"),
    "no words": ('{"tokens": [], "tags": [], "intent": "i"}', "no words"),
    "blank in a word": ('{"tokens": ["a b"], "tags": ["O"], "intent": "i"}', "contains a blank"),
    "blank intent": ('{"tokens": ["a"], "tags": ["O"], "intent": " "}', "no intent"),
    "intent a number": ('{"tokens": ["a"], "tags": ["O"], "intent": 3}', "is int, not text"),
    "intent null": ('{"tokens": ["a"], "tags": ["O"], "intent": null}', "is NoneType, not text"),
    "tokens numbers": ('{"tokens": [4], "tags": ["O"], "intent": "i"}', "has int, not only text"),
    "tokens null": ('{"tokens": null, "tags": ["O"], "intent": "i"}', "neither text nor a list"),
    "tags an object": ('{"tokens": ["a"], "tags": {}, "intent": "i"}', '"tags" is dict'),
    "no tags": ('{"tokens": ["a"], "intent": "i"}', 'no column "tags"'),
    "broken JSON": ('{"tokens": ["a"', "invalid JSON"),
    "no object": ('["a"]', "list instead of a JSON object"),
    "half a character": ('{"tokens": ["\\ud83c"], "tags": ["O"], "intent": "i"}', "invalid JSON"),
}


@pytest.mark.parametrize("case", FAULTS)
def test_a_faulty_json_line_is_named(case, tmp_path):
    line, says = FAULTS[case]
    path = written(tmp_path / "u.jsonl", ROW + "\n" + line + "\n" + ROW)
    with pytest.raises(DataError) as caught:
        read_utterances(path)
    assert f"{path}, line 3" in str(caught.value)
    assert says in caught.value.problem
    assert caught.value.remedy.endswith(".")


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("u.jsonl", "", "has no utterances"),
        ("u.jsonl", "\n \n", "has no utterances"),
        ("u.jsonl", b'{"tokens": ["\xe9"]}\n', "line 1, byte 14"),
        ("u.csv", "", "has no header line"),
        ("u.csv", "tokens,tags,intent\n", "has no utterances"),
        ("u.csv", "tokens,tags\na,O\n", 'has no column "intent"'),
        ("u.csv", "tokens,tags,intent\na,O,i\na b,O,i\n", "row 2 below the header: it has 2 words"),
        ("u.csv", "tokens,tags,intent\na,O,\n", "row 1 below the header: it has no intent"),
        ("u.csv", "tokens,tags,intent\na,O\n", "invalid CSV"),
        ("u.jsonl.gz", b"\x1f\x8b\x08", "incomplete or not a gzip"),
        ("u.parquet", b"PAR1", "invalid Parquet"),
        ("u.xml", "<a/>", "ends in no known format"),
        ("seq.in", "a b\n", "pass the folder of parallel files"),
    ],
)
def test_a_faulty_file_is_named(name, content, says, tmp_path):
    path = written(tmp_path / name, content)
    with pytest.raises(DataError) as caught:
        read_utterances(path)
    assert str(path) in str(caught.value)
    assert says in str(caught.value)


def test_a_faulty_parquet_row_is_named(tmp_path):
    table = pa.table({"tokens": [["a"], ["b"]], "tags": [["O"], ["I-x"]], "intent": ["i", "i"]})
    pa.parquet.write_table(table, tmp_path / "u.parquet")
    with pytest.raises(DataError, match=r"u\.parquet, row 2: tag 1 continues a slot"):
        read_utterances(tmp_path / "u.parquet")


def test_a_folder_that_is_none_of_the_known_ones_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"none does not exist"):
        read_utterances(tmp_path / "none")
    with pytest.raises(DataError, match="has no utterances in a known format"):
        read_utterances(tmp_path)
    written(tmp_path / "test.jsonl", ROW)
    with pytest.raises(DataError, match="has no part named train"):
        read_utterances(tmp_path)
    written(tmp_path / "train.jsonl", ROW)
    written(tmp_path / "train.csv", "tokens,tags,intent\na,O,i\n")
    with pytest.raises(DataError, match=r"has both train\.csv and train\.jsonl"):
        read_utterances(tmp_path)


def test_arguments_are_checked(tmp_path):
    path = written(tmp_path / "u.jsonl", ROW)
    with pytest.raises(ValueError, match="format must be one of"):
        read_utterances(path, format="conll")
    with pytest.raises(ValueError, match="limit must be positive, got 0"):
        read_utterances(path, limit=0)
    for format in ("parallel", "snips-json"):
        with pytest.raises(DataError, match="is a file, not a folder"):
            read_utterances(path, format=format)
    with pytest.raises(DataError, match=r'line 1 has no column "scenario"'):
        read_utterances(path, format="nlu-evaluation")
    written(tmp_path / "v.jsonl", ROW)
    with pytest.raises(DataError, match="has no part named train"):
        read_utterances(tmp_path, format="nlu-evaluation")


# Parallel files.

WORDS = "play  jazz \nrain in york\n"
TAGS = "O B-genre \nO O B-city\n"
LABELS = "Play\nWeather \n"


def three_files(tmp_path, words=WORDS, tags=TAGS, labels=LABELS):
    for name, content in (("seq.in", words), ("seq.out", tags), ("label", labels)):
        (tmp_path / name).write_text(content, encoding="utf-8", newline="")
    return tmp_path


def part(folder):
    return read_utterances(folder, format="parallel").train


def test_lines_of_three_files_make_an_utterance(tmp_path):
    assert list(part(three_files(tmp_path))) == [
        Utterance(("play", "jazz"), ("O", "B-genre"), "Play"),
        Utterance(("rain", "in", "york"), ("O", "O", "B-city"), "Weather"),
    ]


def test_line_ends_and_blank_lines_at_the_end_are_of_no_account(tmp_path):
    plain = part(three_files(tmp_path)).fingerprint()
    for words in (WORDS.replace("\n", "\r\n"), WORDS + "\n\n", WORDS.rstrip("\n")):
        assert part(three_files(tmp_path, words)).fingerprint() == plain


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"words": "play some jazz\nrain in york\n"}, "line 1 of seq.in, seq.out and label"),
        ({"tags": "O B-genre\nO O I-city\n"}, "line 2 of seq.in, seq.out and label: tag 3"),
        ({"tags": "O genre\nO O B-city\n"}, "tag 2 is not O"),
        ({"labels": "\nWeather\n"}, "line 1 of seq.in, seq.out and label: it has no intent"),
        ({"words": "\nrain in york\n", "tags": "\nO O B-city\n"}, "no words"),
        ({"labels": "Play\n"}, "(seq.in 2, seq.out 2, label 1)"),
        ({"labels": "Play\n"}, "line 2 is missing"),
        ({"words": "", "tags": "", "labels": ""}, "has no utterances"),
    ],
)
def test_a_fault_names_folder_and_line(changed, says, tmp_path):
    with pytest.raises(DataError) as caught:
        part(three_files(tmp_path, **changed))
    assert str(tmp_path) in str(caught.value)
    assert says in str(caught.value)


@pytest.mark.parametrize("name", ["seq.in", "seq.out", "label"])
def test_a_missing_file_is_named_through_the_door_too(name, tmp_path):
    folder = tmp_path / "train"
    folder.mkdir()
    (three_files(folder) / name).unlink()
    with pytest.raises(DataError, match=f"{name} does not exist"):
        read_utterances(tmp_path)


def test_bytes_that_are_not_utf8_are_placed(tmp_path):
    (three_files(tmp_path) / "seq.in").write_bytes(b"play jazz\nrain in y\xf6rk\n")
    with pytest.raises(DataError, match=r"seq\.in, line 2, byte 10 \(0xf6\)"):
        part(tmp_path)


@pytest.mark.data
@pytest.mark.parametrize(
    ("source", "sizes", "intents", "tags"),
    [
        ("snips/slotgated", [13_084, 700, 700], 7, 72),
        ("atis", [4_478, 500, 893], 26, 127),
        ("nlu_eval", [11_036], 64, 105),
        ("nlu_eval/utterances.csv", [11_036], 64, 105),
        ("snips/nlu-benchmark/2017-06-custom-intent-engines", [13_784, 700], 7, 72),
    ],
)
def test_the_real_corpora_have_the_sizes_that_are_known_of_them(source, sizes, intents, tags, real):
    parts = read_utterances(real / source).parts()
    assert [len(part) for part in parts.values()] == sizes
    assert len({intent for part in parts.values() for intent in part.intents}) == intents
    assert len({tag for part in parts.values() for said in part for tag in said.tags}) == tags


# The original Snips files.

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


def put(tmp_path, intent, file, content):
    folder = tmp_path / intent
    folder.mkdir(exist_ok=True)
    text = content if isinstance(content, bytes) else json.dumps(content).encode()
    (folder / f"{file}.json").write_bytes(text)
    return tmp_path


def intents(intent, *utterances):
    return {intent: [{"data": pieces} for pieces in utterances]}


def test_words_end_where_a_slot_ends(tmp_path):
    put(tmp_path, "Add", "train_Add_full", intents("Add", PIECES))
    splits = read_utterances(tmp_path)
    assert list(splits.train) == [ADDED]
    assert splits.validation is splits.test is None


def test_neighbouring_slots_of_one_name_stay_two(tmp_path):
    pieces = [{"text": "one two", "entity": "n"}, {"text": "three", "entity": "n"}]
    put(tmp_path, "Add", "train_Add_full", intents("Add", pieces))
    assert next(iter(read_utterances(tmp_path).train)).tags == ("B-n", "I-n", "B-n")


def test_the_full_file_is_preferred_and_intents_follow_by_name(tmp_path):
    put(tmp_path, "Rate", "train_Rate", intents("Rate", [{"text": "rate"}]))
    put(tmp_path, "Add", "train_Add", intents("Add", [{"text": "short"}]))
    put(tmp_path, "Add", "train_Add_full", intents("Add", [{"text": "full"}], PIECES))
    put(tmp_path, "Rate", "validate_Rate", intents("Rate", [{"text": "held"}]))
    put(tmp_path, "Add", "validate_Add", intents("Add", [{"text": "held"}]))
    splits = read_utterances(tmp_path)
    assert [said.tokens[0] for said in splits.train] == ["full", "Add", "rate"]
    assert splits.validation is not None
    assert splits.validation.intents == ["Add", "Rate"]


def test_halves_of_a_character_are_joined(tmp_path):
    halves = b'{"Add": [{"data": [{"text": "pop \xed\xa0\xbc\xed\xbd\x95"}]}]}'
    put(tmp_path, "Add", "train_Add_full", halves)
    assert next(iter(read_utterances(tmp_path).train)).tokens == ("pop", "🍕")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b'{"Add": [', "invalid JSON"),
        (b"", "invalid JSON"),
        (b"[]", "is not a JSON object"),
        (b"{}", "has no utterances"),
        (b'{"Add": 3}', "an intent has no list"),
        (b'{"Add": [\n{"data": [{"text": "\xe9"}]}]}', "line 2: not UTF-8"),
        (b'{"Add": [{"data": [{"text": "\xed\xa0\xbc"}]}]}', "line 1: not UTF-8"),
        (b'{"Add": [{"text": "a"}]}', 'utterance 1: it has no list "data"'),
        (b'{"Add": [{"data": [{"text": 3}]}]}', "utterance 1: piece 1 has no"),
        (b'{"Add": [{"data": ["a"]}]}', "utterance 1: piece 1 has no"),
        (b'{"Add": [{"data": [{"text": "a", "entity": 3}]}]}', "utterance 1: piece 1"),
        (b'{"Add": [{"data": [{"text": " ", "entity": "x"}]}]}', "a slot has no words"),
        (b'{"Add": [{"data": [{"text": "a", "entity": ""}]}]}', "a slot has no name"),
        (b'{"Add": [{"data": [{"text": "a"}]}, {"data": []}]}', "utterance 2: it has no words"),
        (b'{"": [{"data": [{"text": "a"}]}]}', "utterance 1: it has no intent"),
    ],
)
def test_a_fault_names_the_file_and_the_utterance(content, says, tmp_path):
    put(tmp_path, "Add", "train_Add_full", content)
    with pytest.raises(DataError) as caught:
        read_utterances(tmp_path)
    assert says in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_a_missing_file_or_folder_is_named(tmp_path):
    with pytest.raises(DataError, match=r"has no folder X with train_X_full\.json"):
        read_utterances(tmp_path, format="snips-json")
    put(tmp_path, "Add", "train_Add_full", intents("Add", PIECES))
    put(tmp_path, "Rate", "train_Rate_full", intents("Rate", PIECES))
    put(tmp_path, "Add", "validate_Add", intents("Add", PIECES))
    with pytest.raises(DataError, match=r"validate_Rate\.json does not exist"):
        read_utterances(tmp_path)


# NLU-Evaluation-Data.

HEADER = "answerid;scenario;intent;answer_annotation;answer_from_user\n"


def table(tmp_path, *rows, header=HEADER):
    path = tmp_path / "utterances.csv"
    path.write_text(header + "".join(f"{row}\n" for row in rows), encoding="utf-8")
    return path


def test_slots_inside_the_text_become_tags(tmp_path):
    path = table(
        tmp_path,
        '1;email;send;"mail [person : ann lee], is [time:nine am] ok?";Mail!',
        "2;audio;volume_up;[device : radio] [device : tv];x",
    )
    expected = [
        Utterance(
            ("mail", "ann", "lee", ",", "is", "nine", "am", "ok?"),
            ("O", "B-person", "I-person", "O", "O", "B-time", "I-time", "O"),
            "email_send",
        ),
        Utterance(("radio", "tv"), ("B-device", "B-device"), "audio_volume_up"),
    ]
    for source in (path, tmp_path):
        splits = read_utterances(source)
        assert list(splits.train) == expected
        assert splits.validation is splits.test is None


@pytest.mark.parametrize(
    ("annotation", "says"),
    [
        ("wake me at [time : nine", "a bracket is not closed"),
        ("wake me at time : nine]", "not opened"),
        ("wake me at [nine]", "has no colon"),
        ("wake [time : at [hour : nine]]", "a bracket"),
        ("wake me at [time : ]", "a slot has no words"),
        ("wake me at [ : nine]", "a slot has no name"),
        ("", 'no text in the column "answer_annotation"'),
    ],
)
def test_a_faulty_row_is_named(annotation, says, tmp_path):
    path = table(tmp_path, "1;a;b;fine;x", f"2;a;b;{annotation};x")
    with pytest.raises(DataError) as caught:
        read_utterances(path)
    assert f"{path}, row 2 below the header" in str(caught.value)
    assert says in str(caught.value)


def test_a_missing_scenario_or_column_is_named(tmp_path):
    with pytest.raises(DataError, match='row 1 below the header: no text in the column "scena'):
        read_utterances(table(tmp_path, "1; ;b;fine;x"))
    path = table(tmp_path, "1;fine", header="answerid;answer_annotation\n")
    with pytest.raises(DataError, match='has no column "scenario"'):
        read_utterances(path, format="nlu-evaluation")
    with pytest.raises(DataError, match="has no utterances"):
        read_utterances(table(tmp_path))
