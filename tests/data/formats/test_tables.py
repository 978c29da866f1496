"""JSON lines, CSV, Parquet and data sets of the hub."""

import gzip
import json

import datasets
import pyarrow as pa
import pyarrow.parquet
import pytest
from datasets import Dataset, DatasetDict

from vestige.data.formats import tables
from vestige.data.formats.reading import ReadOptions, read_corpus
from vestige.data.formats.tables import read_hub, read_table
from vestige.errors import DataError

ROWS = [
    {"id": 1, "text": "one, two", "who": "ann"},
    {"id": 2, "text": "  ", "who": "bob"},
    {"id": 3, "text": "line\nbreak é", "who": "bob"},
]
JSONL = "".join(json.dumps(row) + "\n" for row in ROWS)
CSV = 'id,text,who\n1,"one, two",ann\n2,  ,bob\n3,"line\nbreak é",bob\n'


def written(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.jsonl", JSONL.encode()),
        ("t.json", JSONL.encode()),
        ("t.ndjson", b"\n" + JSONL.encode().replace(b"\n", b"\n\n")),
        ("t.jsonl.gz", gzip.compress(JSONL.encode(), mtime=0)),
        ("t.csv", CSV.encode()),
        ("t.csv.gz", gzip.compress(CSV.encode(), mtime=0)),
        ("bom.csv", b"\xef\xbb\xbf" + CSV.encode()),
        (
            "t.tsv",
            CSV.replace("id,text,who", "id\ttext\twho")
            .replace(",ann", "\tann")
            .replace(",bob", "\tbob")
            .replace("1,", "1\t")
            .replace("2,  ", "2\t  ")
            .replace("3,", "3\t")
            .encode(),
        ),
        ("semicolon.csv", CSV.replace(",", ";").replace("one;", "one,").encode()),
    ],
)
def test_every_text_format_gives_the_same_corpus(name, content, tmp_path):
    corpus = read_table(written(tmp_path, name, content), user_column="who")
    assert list(corpus) == ["one, two", "line\nbreak é"]
    assert corpus.users == ["ann", "bob"]


def test_parquet_gives_the_same_corpus_from_any_string_type(tmp_path):
    for text_type in (pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())):
        columns = {"text": pa.array([r["text"] for r in ROWS]).cast(text_type)}
        columns["who"] = pa.array([r["who"] for r in ROWS])
        pa.parquet.write_table(pa.table(columns), tmp_path / "t.parquet")
        corpus = read_table(tmp_path / "t.parquet", user_column="who")
        assert list(corpus) == ["one, two", "line\nbreak é"]
        assert corpus.users == ["ann", "bob"]


def test_other_columns_are_found_by_name(tmp_path):
    path = written(tmp_path, "t.jsonl", '{"body": "x", "sub": "s"}\n')
    corpus = read_table(path, text_column="body", label_column="sub")
    assert (list(corpus), corpus.labels, corpus.users) == (["x"], ["s"], None)


PAIRS = [("Hi.", "Hello."), ("", "Alone."), ("Bye.", " "), ("So?", "Yes.")]


@pytest.mark.parametrize("name", ["t.jsonl", "t.csv", "t.parquet", "hub"])
def test_sources_are_read_and_half_pairs_left_out(name, tmp_path):
    asked, said = [a for a, _ in PAIRS], [s for _, s in PAIRS]
    path = tmp_path / name
    if name == "hub":
        Dataset.from_dict({"asked": asked, "said": said}).save_to_disk(path)
    elif name == "t.parquet":
        pa.parquet.write_table(pa.table({"asked": asked, "said": said}), path)
    else:
        rows = [json.dumps({"asked": a, "said": s}) for a, s in PAIRS]
        rows = rows if name == "t.jsonl" else ["asked,said", *(f'"{a}","{s}"' for a, s in PAIRS)]
        path.write_text("\n".join(rows) + "\n")
    corpus = read_corpus(path, text_column="said", source_column="asked")
    assert (list(corpus), corpus.sources) == (["Hello.", "Yes."], ["Hi.", "So?"])


def test_a_source_column_that_is_not_there_is_named(tmp_path):
    with pytest.raises(DataError, match='has no column "asked"'):
        read_table(written(tmp_path, "t.jsonl", JSONL), source_column="asked")


def test_a_row_without_user_belongs_to_nobody(tmp_path):
    content = '{"text": "a", "who": "ann"}\n{"text": "b"}\n{"text": "c", "who": null}\n'
    assert read_table(written(tmp_path, "t.jsonl", content), user_column="who").users == [
        "ann",
        "",
        "",
    ]


def test_text_that_looks_like_dates_or_numbers_stays_text(tmp_path):
    content = '{"text": "2020-01-01"}\n{"text": "17"}\n'
    assert list(read_table(written(tmp_path, "t.jsonl", content))) == ["2020-01-01", "17"]
    assert list(read_table(written(tmp_path, "t.csv", "text\n017\nnull\nNaN\n"))) == [
        "017",
        "null",
        "NaN",
    ]


def test_an_object_larger_than_a_block_is_read_slowly_but_read(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "BLOCK", 1000)
    content = "".join(json.dumps({"text": "x" * n}) + "\n" for n in (5, 3000, 7))
    assert [len(text) for text in read_table(written(tmp_path, "t.jsonl", content))] == [5, 3000, 7]


@pytest.mark.parametrize(
    ("name", "content", "fault"),
    [
        *(
            ("t.jsonl", content, fault)
            for content, fault in [
                ('{"text": "a"}\n{"text": "b"\n', "line 2: invalid JSON"),
                ('{"text": "a"}\n\nnot json\n', "line 3: invalid JSON"),
                ('{"text": "a"}\n[1]\n', "line 2: list instead of a JSON object"),
                ('[{"text": "a"}]', "line 1: list instead of a JSON object"),
                ('{"text": "a"}\n{"text": 3}\n', r'line 2: "text" is int, not text'),
                ('{"text": ["a"]}\n', r'line 1: "text" is list, not text'),
                ('{"text": "a"}\n{"text": {"b": 1}}\n', r'line 2: "text" is dict, not text'),
                ('{"text": "\\ud800"}\n', "line 1: invalid JSON"),
                ('{"text": "a"}\n' + "[" * 100_000, "line 2: invalid JSON"),
                ('{"body": "a", "id": 1}\n', r'no column "text". Pass one of .* body, id'),
                ('{"text": "a"}\n{"id": 1}\n', '1 rows have no "text"; the first is row 2'),
                ('{"text": null}\n', '1 rows have no "text"; the first is row 1'),
                ("", "has no text"),
                ('{"text": ""}\n{"text": " \\t"}\n', "has no text"),
                (b'{"text": "a"}\n{"text": "\xe9"}\n', r"line 2, byte 11 \(0xe9\): not UTF-8"),
            ]
        ),
        ("t.jsonl.gz", gzip.compress(JSONL.encode() * 99)[:-20], r"t\.jsonl\.gz is incomplete"),
        ("t.csv", b"", "no header line"),
        ("t.csv", b"\n\n", "no header line"),
        ("t.csv", b"id,body\n1,a\n", r'no column "text". Pass one of .*id, body'),
        ("t.csv", b"id,text\n", "has no text"),
        ("t.csv", b"id,text\n1,a\n2\n", "invalid CSV: row 3 has 1 fields; line 1 has 2"),
        ("t.csv", b"id,text\n1,a\n2,\xff\n", r"line 3, byte 3 \(0xff\): not UTF-8"),
        ("t.csv.gz", gzip.compress(CSV.encode() * 999)[:-20], r"t\.csv\.gz is incomplete"),
        ("t.xyz", "a", "ends in no known table format"),
    ],
)
def test_a_faulty_table_is_named(name, content, fault, tmp_path):
    path = written(tmp_path, name, content)
    with pytest.raises(DataError, match=fault) as caught:
        read_table(path)
    assert str(path) in str(caught.value)


def test_faulty_parquet_is_named(tmp_path):
    path = tmp_path / "t.parquet"
    pa.parquet.write_table(pa.table({"text": ["a"] * 1000, "n": [1] * 1000}), path)
    with pytest.raises(DataError, match='column "n" has type int64, not text'):
        read_table(path, text_column="n")
    with pytest.raises(DataError, match=r'no column "body"\. Pass one of .*text, n'):
        read_table(path, text_column="body")
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(DataError, match="invalid Parquet"):
        read_table(path)
    path.write_bytes(b"")
    with pytest.raises(DataError, match="invalid Parquet"):
        read_table(path)


def test_a_saved_data_set_is_read_from_disk(tmp_path):
    data = Dataset.from_dict({"text": ["a", "b", "c"], "who": ["x", "y", "z"]})
    data.select([2, 0]).save_to_disk(tmp_path / "one")
    DatasetDict({"train": data}).save_to_disk(tmp_path / "many")
    assert list(read_hub(str(tmp_path / "one"), ReadOptions(user_column="who"))) == ["c", "a"]
    assert list(read_hub(str(tmp_path / "many"), ReadOptions(limit=2))) == ["a", "b"]
    with pytest.raises(DataError, match=r'no column "body".*text, who'):
        read_hub(str(tmp_path / "one"), ReadOptions(text_column="body"))


def test_a_hub_name_may_hold_configuration_and_split(monkeypatch):
    asked = []

    def load_dataset(path, name, *, split):
        asked.append((path, name, split))
        return Dataset.from_dict({"text": ["a"]})

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    for source, limit in (("o/n", None), ("o/n@c:test", None), ("n:valid", 5)):
        read_hub(source, ReadOptions(limit=limit))
    assert asked == [("o/n", None, "train"), ("o/n", "c", "test"), ("n", None, "valid[:5]")]


@pytest.mark.parametrize("name", ["owner/nothing", "owner/set@part:train", "no such name"])
def test_a_data_set_out_of_reach_is_named(name, monkeypatch):
    def load_dataset(*args, **kwargs):
        raise ConnectionError("the hub does not answer\nand more")

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    with pytest.raises(DataError, match="no data set that can be fetched") as caught:
        read_hub(name, ReadOptions())
    assert name in str(caught.value)


@pytest.mark.parametrize("content", ["null\n" + JSONL, "\n \n null\n", JSONL + "null\n"])
def test_a_row_that_is_null_is_named(content, tmp_path):
    # Arrow ends the whole process where a block begins with one.
    with pytest.raises(DataError, match=r"line \d: NoneType instead of a JSON object"):
        read_table(written(tmp_path, "t.jsonl", content))


def test_a_row_that_is_null_is_named_wherever_a_block_begins(monkeypatch, tmp_path):
    monkeypatch.setattr(tables, "BLOCK", 64)
    rows = ['{"text": "a"}'] * 30
    for place in range(30):
        content = "\n".join([*rows[:place], "null", *rows[place:]])
        with pytest.raises(DataError, match=f"line {place + 1}: NoneType"):
            read_table(written(tmp_path, "t.jsonl", content))
