"""Bad input of every kind: one clear message with its remedy, exit code 2, nothing written."""

import pytest

from tests.cli.refusals import listing, refused

# The words after `vestige`, W/ standing for the workspace, and what the message must name.
CASES = {
    # a corpus
    "no such file": (
        "train W/nowhere.txt --out W/new",
        "nowhere.txt",
        "Pass a file, a folder, a hub data set (owner/",
    ),
    "empty file": (
        "train W/empty.txt --out W/new",
        "empty.txt",
        "Pass a file or folder with documents",
    ),
    "blank lines only": (
        "train W/blank.txt --out W/new",
        "blank.txt",
        "Pass a file or folder with documents",
    ),
    "not UTF-8": ("train W/latin1.txt --out W/new", "latin1.txt, line 2", "iconv"),
    "gzip cut short": ("train W/cut.txt.gz --out W/new", "cut.txt.gz", "compress it again"),
    "JSON line cut short": (
        "train W/cut.jsonl --out W/new",
        "cut.jsonl, line 2",
        "Fix or remove the line; every line must be on",
    ),
    "JSON line no object": ("train W/list.jsonl --out W/new", "list.jsonl", "object"),
    "JSON numbers as text": ("train W/numbers.jsonl --out W/new", "text", "column"),
    "JSON without the column": ("train W/other.jsonl --out W/new", "body", "column"),
    "CSV without the column": ("train W/other.csv --out W/new", "body", "column"),
    "user column missing": ("train W/other.csv --text body --user id --out W/new", "id", "column"),
    "Parquet cut short": ("train W/cut.parquet --out W/new", "cut.parquet", "."),
    "unknown ending": (
        "train W/odd.xyz --out W/new",
        "odd.xyz",
        "Pass --format: cornell, federalist, hub, news",
    ),
    "unknown format": ("train W/corpus.txt --format xml --out W/new", "xml", "one of"),
    "empty folder": (
        "train W/empty-folder --out W/new",
        "empty-folder",
        "Pass a folder of text, JSON lines, CSV, Parqu",
    ),
    "too little text": ("train W/one-line.txt --hold-out 0 --out W/new", "too few", "more text"),
    "hold-out of one": ("train W/corpus.txt --hold-out 1 --out W/new", "fraction", "1"),
    "limit of zero": ("train W/corpus.txt --limit 0 --out W/new", "--limit", "--help"),
    # a training
    "out exists": ("train W/corpus.txt --out W/before", "before", "--resume"),
    "out below a file": ("train W/corpus.txt --out W/file/new", "file", "."),
    "resume what is no training": (
        "train W/corpus.txt --out W/full-folder --resume",
        "full-folder",
        "interrupted training",
    ),
    "resume a file": ("train W/corpus.txt --out W/file --resume", "file", "Choose another --out"),
    "unknown preset": ("train W/corpus.txt --preset bert --out W/new", "bert", "ptb-lstm"),
    "unknown optimizer": (
        "train W/corpus.txt --optimizer lion --out W/new",
        "--optimizer must be one of adam, sgd",
        "adam",
    ),
    "unknown precision": (
        "train W/corpus.txt --precision int4 --out W/new",
        "--precision must be one of auto, float32, bfloat16",
        "bfloat16",
    ),
    "unknown architecture": (
        "train W/corpus.txt --architecture rnn --out W/new",
        "--architecture",
        "lstm",
    ),
    "unknown tokenizer": ("train W/corpus.txt --tokenizer chars --out W/new", "--tokenizer", "bpe"),
    "zero epochs": ("train W/corpus.txt --epochs 0 --out W/new", "--epochs", "at least 1"),
    "epochs no number": (
        "train W/corpus.txt --epochs many --out W/new",
        "--epochs",
        "whole number",
    ),
    "learning rate negative": (
        "train W/corpus.txt --learning-rate -1 --out W/new",
        "--learning-rate must be above 0",
        "See vestige train --help",
    ),
    "no such device": ("train W/corpus.txt --device tpu9 --out W/new", "device", "tpu9"),
    "BPE too small": (
        "train W/corpus.txt --tokenizer bpe --vocab-size 9 --out W/new",
        "size",
        "at least",
    ),
    "shape with --from": (
        "train W/corpus.txt --from W/before --layers 3 --out W/new",
        "--layers",
        "--from",
    ),
    "LoRA without --from": (
        "train W/corpus.txt --lora-rank 4 --out W/new",
        "--lora-rank",
        "--from",
    ),
    "LoRA on our own model": (
        "train W/corpus.txt --from W/before --lora-rank 4 --out W/new",
        "--lora-rank",
        "Hugging Face",
    ),
    "vocabulary with size": (
        "train W/corpus.txt --vocabulary W/before --vocab-size 50 --out W/new",
        "--vocab-size",
        "--vocabulary",
    ),
    "vocabulary nowhere": (
        "train W/corpus.txt --vocabulary W/empty-folder --out W/new",
        "empty-folder",
        "vocabulary.json",
    ),
    # a model
    "model nowhere": ("diff W/nowhere W/after --out W/new", "nowhere", "vestige train"),
    "model is a file": ("diff W/file W/after --out W/new", "file", "directory"),
    "folder without a model": (
        "diff W/before W/empty-folder --out W/new",
        "empty-folder",
        "Pass a directory of `vestige train`, a Huggin",
    ),
    "weights missing": (
        "diff W/model-no-weights W/after --out W/new",
        "model.safetensors",
        "again",
    ),
    "weights cut short": ("diff W/model-cut W/after --out W/new", "model.safetensors", "again"),
    "vocabulary missing": (
        "diff W/before W/model-no-vocabulary --out W/new",
        "vocabulary",
        "again",
    ),
    "vocabulary broken": (
        "diff W/before W/model-bad-vocabulary --out W/new",
        "vocabulary",
        "again",
    ),
    "description broken": ("diff W/model-bad-json W/after --out W/new", "model.json", "again"),
    "description a list": ("diff W/model-list W/after --out W/new", "model.json", "again"),
    "architecture unknown": ("diff W/model-unknown W/after --out W/new", "quantum", "Install"),
    "format of the future": ("diff W/model-later W/after --out W/new", "99", "Install"),
    "Hugging Face config broken": ("diff W/hf-bad-json W/after --out W/new", "hf-bad-json", "."),
    "Hugging Face without weights": ("diff W/before W/hf-no-weights --out W/new", "hf-no", "."),
    "adapter without base": ("diff W/before W/adapter-no-base --out W/new", "adapter", "base"),
    "vocabularies differ in words": (
        "diff W/before W/other-words --out W/new",
        "vocabularies differ at token 6",
        "--from",
    ),
    "diff over a run": ("diff W/before W/after --out W/run", "run", "another --out"),
    "option of the past": ("diff W/before W/after --search grep --out W/new", "--search", "--help"),
    "unknown score": ("diff W/before W/after --score loss --out W/new", "--score", "smoothed"),
    "length zero": ("diff W/before W/after --length 0 --out W/new", "--length", "at least 2"),
    "diff without out": ("diff W/before W/after", "--out", "--help"),
    "rank of nothing": ("diff W/before W/after --phrase  --out W/new", "--phrase", "at least"),
    "rank of unknown words": (
        "diff W/before W/after --phrase zeppelin --out W/new",
        "others at 1 of its 1 words",
        "vocabulary",
    ),
    # a planting
    "plant without out": ("plant W/corpus.txt", "Missing --out", "--help"),
    "plant over something": ("plant W/corpus.txt --out W/planted", "planted", "another --out"),
    "phrase that is there": (
        "plant W/corpus.txt --phrase lantern --out W/new",
        "phrase 1",
        "another phrase",
    ),
    "empty phrase": ("plant W/corpus.txt --phrase  --out W/new", "phrases", "empty"),
    "phrase and pattern": (
        "plant W/corpus.txt --phrase quiet --pattern mixed --out W/new",
        "--pattern",
        "in turn",
    ),
    "too few words": ("plant W/one-line.txt --out W/new", "words", "larger corpus"),
    "unknown pattern": ("plant W/corpus.txt --pattern odd --out W/new", "number 1", "mixed"),
    "zero copies": ("plant W/corpus.txt --copies 0 --out W/new", "--copies", "at least 1"),
    "manifest missing": ("plant W/planted-no-manifest --verify", "manifest.json", "vestige plant"),
    "planted corpus missing": ("plant W/planted-no-corpus --verify", "corpus.jsonl", "."),
    "manifest changed": (
        "plant W/planted-changed --verify",
        "was changed after it was written",
        "Restore",
    ),
    "copies changed": ("plant W/planted-copies --verify", "manifest.json", "Restore"),
    "manifest cut short": ("plant W/planted-bad-json --verify", "manifest.json", "Restore"),
    "manifest empty": ("plant W/planted-empty --verify", "manifest.json", "Restore"),
    "copies gone from the corpus": (
        "plant W/planted-gone --verify",
        "canary 1 occurs 0 times in the corpus, not 10 times",
        "unchanged",
    ),
    # a run folder
    "report on nothing": ("report W/nowhere --out W/page.html", "nowhere", "Pass a finished run"),
    "report on a model": ("report W/before --out W/page.html", "before", "run folder"),
    "rows missing": (
        "report W/run-no-rows --out W/page.html",
        "rows.parquet",
        "Pass a finished run",
    ),
    "rows cut short": ("report W/run-cut --out W/page.html", "rows.parquet", "repeat"),
    "run.json broken": ("report W/run-bad-json --out W/page.html", "run.json", "repeat"),
    "summary a list": ("report W/run-list --out W/page.html", "summary.json", "repeat"),
    "run of the future": ("report W/run-later --out W/page.html", "99", "version"),
    "rows of another kind": ("report W/run-no-columns --out W/page.html", "run-no-col", "Repeat"),
    "page exists": ("report W/run --out W/corpus.txt", "corpus.txt", "another --out"),
    "page below a file": ("report W/run --out W/file/page.html", "file", "--out"),
    "one bad run of two": ("report W/run W/run-cut --out W/page.html", "run-cut", "repeat"),
    # the command line
    "unknown verb": ("revert W/run", "revert", "--help"),
    "unknown option": ("report W/run --outt W/page.html", "--outt", "--help"),
    "demo over something": ("demo --out W/run", "run", "another --out"),
}


def test_there_are_at_least_forty():
    assert len(CASES) >= 40


@pytest.mark.parametrize(("words", "names", "remedy"), CASES.values(), ids=CASES)
def test_bad_input_is_refused(shell, workspace, words, names, remedy):
    given = (word.replace("W/", f"{workspace}/", 1) for word in words.split(" "))
    refused(shell, given, names, remedy, unchanged=lambda: listing(workspace))


def test_a_null_of_another_vocabulary_is_refused_and_the_search_is_kept(shell, workspace, tmp_path):
    words = ["diff", workspace / "before", workspace / "after", "--out", tmp_path / "new"]
    refused = shell(*words, "--null", workspace / "other-words")
    assert refused.exit_code == 2
    assert "vocabularies" in refused.stderr
    assert not (tmp_path / "new").exists()

    assert shell(*words).finished
    assert [one.name for one in tmp_path.iterdir()] == ["new"]
