"""A program that uses every public name, for mypy (`make lint`). It is checked and never run."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, assert_type

import vestige as vg


def text(path: str) -> None:
    corpus = assert_type(vg.read_corpus(path), vg.Corpus)
    assert_type(vg.WordVocabulary.build(corpus), vg.WordVocabulary)
    assert_type(vg.SubwordVocabulary.train_bpe(corpus, size=300), vg.SubwordVocabulary)
    utterances = assert_type(vg.read_utterances(path).train, vg.Utterances)
    assert_type(list(utterances), list[vg.Utterance])


def canaries(manifest: vg.Manifest, secrets: vg.SecretManifest) -> None:
    assert_type(manifest.canaries, tuple[vg.Canary, ...])
    assert_type(secrets.patterns, tuple[vg.SecretPattern, ...])


def models(path: str) -> None:
    model = assert_type(vg.load_model(path), vg.LanguageModel)
    next_token: vg.NextToken = model
    white_box: vg.WhiteBox = vg.load_intent_slot(path)
    services: Sequence[vg.TopK] = [vg.ServiceModel(lambda texts: [None], k=5)]
    table: vg.LanguageModel = vg.TableModel([0.5, 0.5], [[0.5, 0.5], [1.0, 0.0]])
    assert isinstance(model, vg.HuggingFaceLanguageModel)
    assert all((next_token, table, white_box, *services))


def verbs(monitor: vg.Monitor) -> None:
    assert_type(vg.diff("before", "after", phrase="the gate", monitor=monitor), vg.Result)
    result: vg.Result = vg.check("adapter", trained_on="mail.jsonl", never="public.jsonl")
    assert result.record


def training(corpus: vg.Corpus) -> None:
    assert_type(vg.plant(corpus, coin_flip=20), vg.Planting)
    assert_type(vg.plant(corpus, coin_flip=20, canary_kind="repeated-token"), vg.Planting)
    trained = vg.train(
        corpus, out="out", model=vg.ModelOptions(layers=1), nlu=vg.NluOptions(),
        training=vg.TrainingOptions(epochs=2), defence=vg.DPSGD(epsilon=8),
    )  # fmt: skip
    assert_type(trained, vg.Trained | vg.RepeatedTraining)


def measuring(model: vg.LanguageModel, manifest: vg.Manifest, corpus: vg.Corpus) -> None:
    assert_type(vg.exposure(model, manifest), vg.Result)
    assert_type(vg.exposure(model, ["the code is 4917"], before=model), vg.Result)
    assert_type(vg.extract(model, manifest, beam=4), vg.Result)
    assert_type(vg.extract(model, ["the code is 4917"]), vg.Result)
    assert_type(vg.extract(model, corpus, reference=corpus, prefix=8), vg.Result)
    assert_type(vg.extract("nlu", pattern="pin:4"), vg.Result)
    assert_type(vg.anatomy(model, corpus, corpus), vg.Result)
    assert_type(vg.compare({"plain": ["plain"]}, manifest=manifest), vg.Result)


def auditing(model: vg.LanguageModel, corpus: vg.Corpus) -> None:
    options = vg.NullOptions(tokens=1000)
    result = assert_type(vg.diff(model, Path("after"), clean=corpus, training=options), vg.Result)
    vg.report(result.save("run"), out="page.html")
    vg.report("run", out="card.md", since=["last-release"])
    assert_type(vg.report("run", fail_above=["found=0"], junit="runs.xml").exit_code, int)
    audit = vg.membership(
        model, texts=corpus, reference=corpus, unit="user", queries=vg.QueryOptions(top_k=5),
        remote=vg.RemoteOptions(budget=100), shadows=vg.ShadowOptions(shadows=0),
    )  # fmt: skip
    assert_type(audit, vg.Result)
    assert_type(vg.membership(model, texts=corpus, reference=corpus, base=model), vg.Result)
    assert_type(vg.unlearning(model, model, deleted=corpus, reference=corpus), vg.Result)


def defences() -> None:
    assert_type(vg.DPSGD(epsilon=8).epsilon, float | None)
    assert_type(vg.DPSGD(epsilon=8).max_grad_norm, float)
    assert_type(vg.DPFedAvg(epsilon=8).epsilon, float | None)
    assert_type(vg.Goldfish().k, int)
    assert_type(vg.Adversarial(), vg.Adversarial)
    assert_type(vg.Triplet(), vg.Triplet)


def returned(run: vg.Run, result: vg.Result) -> None:
    assert_type(run.result, str)
    result.save(run.directory)
    assert_type(result.verdict, str)
    assert_type(list(result.rows), list[Mapping[str, Any]])


def errors(path: str) -> str:
    try:
        vg.load_model(path)
    except (vg.DataError, vg.ManifestError, vg.ModelError, vg.IncompatibleModels) as error:
        return error.problem
    except (vg.AccessDenied, vg.TrainingError, vg.ClusterError, vg.RunError) as error:
        return assert_type(error.remedy, str)
    except vg.VestigeError as error:
        return error.remedy
    return vg.__version__
