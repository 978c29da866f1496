"""Errors about broken files of labelled utterances give file, location and fault."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.data.files import write
from tests.data.formats.test_utterances import PIECES, snips, three_files
from vestige.data.formats.utterances import read_utterances
from vestige.errors import DataError

ROW = '{"tokens": ["a", "b"], "tags": ["O", "B-x"], "intent": "i"}\n'
JSON_LINES = {
    '{"tokens": ["a", "b"], "tags": ["O"], "intent": "i"}': "2 words and 1 tags",
    '{"tokens": ["a"], "tags": ["O"], "intent": " "}': "no intent",
    '{"tokens": ["a"], "tags": ["O"], "intent": 3}': "is int, not text",
    '{"tokens": [4], "tags": ["O"], "intent": "i"}': "has int, not only text",
    '{"tokens": null, "tags": ["O"], "intent": "i"}': "neither text nor a list",
    '{"tokens": ["a"], "tags": {}, "intent": "i"}': '"tags" is dict',
    '{"tokens": ["a"], "intent": "i"}': 'no column "tags"',
    '{"tokens": ["a"': "invalid JSON",
    '["a"]': "list instead of a JSON object",
    '{"tokens": ["\\ud83c"], "tags": ["O"], "intent": "i"}': "invalid JSON",
}
FILES = [
    *(
        ("u.jsonl", f"{ROW}\n{line}\n{ROW}", f"line 3 … {fault}")
        for line, fault in JSON_LINES.items()
    ),
    ("u.jsonl", "", "has no utterances"),
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
    ("none", None, "does not exist"),
]
PARALLEL = [
    ({"words": "play some jazz\nrain in york\n"}, "line 1 of seq.in, seq.out and label"),
    ({"tags": "O B-genre\nO O I-city\n"}, "line 2 of seq.in, seq.out and label: tag 3"),
    ({"labels": "\nWeather\n"}, "line 1 of seq.in, seq.out and label: it has no intent"),
    ({"labels": "Play\n"}, "(seq.in 2, seq.out 2, label 1) … line 2 is missing"),
    ({"words": "", "tags": "", "labels": ""}, "has no utterances"),
    ({"words": b"play jazz\nrain in y\xf6rk\n"}, "seq.in, line 2, byte 10 (0xf6)"),
]
SNIPS = [
    (b'{"Add": [', "invalid JSON"),
    (b"[]", "is not a JSON object"),
    (b"{}", "has no utterances"),
    (b'{"Add": 3}', "an intent has no list"),
    (b'{"Add": [\n{"data": [{"text": "\xe9"}]}]}', "line 2: not UTF-8"),
    (b'{"Add": [{"data": [{"text": "\xed\xa0\xbc"}]}]}', "line 1: not UTF-8"),
    (b'{"Add": [{"text": "a"}]}', 'utterance 1: it has no list "data"'),
    (b'{"Add": [{"data": [{"text": 3}]}]}', "utterance 1: piece 1 has no"),
    (b'{"Add": [{"data": [{"text": "a", "entity": 3}]}]}', "utterance 1: piece 1"),
    (b'{"Add": [{"data": [{"text": " ", "entity": "x"}]}]}', "a slot has no words"),
    (b'{"Add": [{"data": [{"text": "a", "entity": ""}]}]}', "a slot has no name"),
    (b'{"Add": [{"data": [{"text": "a"}]}, {"data": []}]}', "utterance 2: it has no words"),
    (b'{"": [{"data": [{"text": "a"}]}]}', "utterance 1: it has no intent"),
]
HEADER = "answerid;scenario;intent;answer_annotation;answer_from_user\n"
ANNOTATIONS = [
    ("wake me at [time : nine", "a bracket is not closed"),
    ("wake me at time : nine]", "not opened"),
    ("wake me at [nine]", "has no colon"),
    ("wake [time : at [hour : nine]]", "a bracket"),
    ("wake me at [time : ]", "a slot has no words"),
    ("wake me at [ : nine]", "a slot has no name"),
    ("", 'no text in the column "answer_annotation"'),
]
NLU = [
    *(
        (f"{HEADER}1;a;b;fine;x\n2;a;b;{annotation};x\n", f"row 2 below the header … {message}")
        for annotation, message in ANNOTATIONS
    ),
    (f"{HEADER}1; ;b;fine;x\n", 'row 1 below the header: no text in the column "scena'),
    (HEADER, "has no utterances"),
]
CASES = [
    *FILES,
    *(("", files, message) for files, message in PARALLEL),
    *(("Add/train_Add_full.json", content, message) for content, message in SNIPS),
    *(("utterances.csv", content, message) for content, message in NLU),
]


@pytest.mark.parametrize(
    ("name", "content", "message"), CASES, ids=[message for *_, message in CASES]
)
def test_errors_about_broken_files_give_location_and_remedy(name, content, message, tmp_path):
    parallel = isinstance(content, dict)
    if parallel:
        three_files(tmp_path, **content)
    elif content is not None:
        write(tmp_path / name, content)
    path = tmp_path if "Add" in name else tmp_path / name
    with pytest.raises(DataError) as caught:
        read_utterances(path, **({"format": "parallel"} if parallel else {}))
    assert all(part in str(caught.value) for part in message.split(" … "))
    assert str(path) in str(caught.value)
    assert caught.value.remedy.endswith(".")


def test_the_error_about_a_parquet_row_gives_its_number(tmp_path):
    table = pa.table({"tokens": [["a"], ["b"]], "tags": [["O"], ["I-x"]], "intent": ["i", "i"]})
    pq.write_table(table, tmp_path / "u.parquet")
    with pytest.raises(DataError, match=r"u\.parquet, row 2: tag 1 continues a slot"):
        read_utterances(tmp_path / "u.parquet")


def test_a_folder_of_unknown_format_is_refused(tmp_path):
    with pytest.raises(DataError, match="has no utterances in a known format"):
        read_utterances(tmp_path)
    with pytest.raises(DataError, match=r"has no folder X with train_X_full\.json"):
        read_utterances(tmp_path, format="snips-json")
    write(tmp_path / "test.jsonl", ROW)
    for format in ("auto", "nlu-evaluation"):
        with pytest.raises(DataError, match="has no part named train"):
            read_utterances(tmp_path, format=format)
    write(tmp_path / "train.jsonl", ROW)
    write(tmp_path / "train.csv", "tokens,tags,intent\na,O,i\n")
    with pytest.raises(DataError, match=r"has both train\.csv and train\.jsonl"):
        read_utterances(tmp_path)
    for name in ("seq.in", "seq.out", "label"):
        (three_files(tmp_path / name / "train") / name).unlink()
        with pytest.raises(DataError, match=f"{name} does not exist"):
            read_utterances(tmp_path / name)
    snips(tmp_path / "snips", "train_Add_full", PIECES)
    snips(tmp_path / "snips", "train_Rate_full", PIECES)
    snips(tmp_path / "snips", "validate_Add", PIECES)
    with pytest.raises(DataError, match=r"validate_Rate\.json does not exist"):
        read_utterances(tmp_path / "snips")


def test_invalid_arguments_are_refused(tmp_path):
    path = write(tmp_path / "u.jsonl", ROW)
    with pytest.raises(ValueError, match="format must be one of"):
        read_utterances(path, format="conll")
    with pytest.raises(ValueError, match="limit must be positive, got 0"):
        read_utterances(path, limit=0)
    for format in ("parallel", "snips-json"):
        with pytest.raises(DataError, match="is a file, not a folder"):
            read_utterances(path, format=format)
    with pytest.raises(DataError, match=r'line 1 has no column "scenario"'):
        read_utterances(path, format="nlu-evaluation")
    table = write(tmp_path / "t.csv", "answerid;answer_annotation\n1;fine\n")
    with pytest.raises(DataError, match='has no column "scenario"'):
        read_utterances(table, format="nlu-evaluation")
