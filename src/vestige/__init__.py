"""Vestige measures what a text model gives away about the text it was trained on.

Every public name is here, and is imported from its own module when it is first used, so that
`import vestige` stays instant. `vestige.results` reads and writes run directories.

Example:
    >>> import vestige
    >>> corpus = vestige.Corpus.from_texts(["to be or not to be"])
    >>> vestige.WordVocabulary.build(corpus).decode([3, 2])
    'to be'
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

__all__ = [
    "AccessDenied",
    "Canary",
    "CausalTransformer",
    "Corpus",
    "DataError",
    "DifferentialRank",
    "EncodedCorpus",
    "Evaluation",
    "HuggingFaceLanguageModel",
    "IncompatibleModels",
    "LSTMConfig",
    "LSTMLanguageModel",
    "LanguageModel",
    "Manifest",
    "ManifestError",
    "ModelError",
    "NextToken",
    "Run",
    "RunError",
    "StepFn",
    "StopFn",
    "SubwordVocabulary",
    "TableModel",
    "TrainingConfig",
    "TrainingError",
    "TrainingHistory",
    "TransformerConfig",
    "UpdateDiff",
    "VestigeError",
    "Vocabulary",
    "WordVocabulary",
    "add_lora",
    "check_compatible",
    "continued",
    "differential_rank",
    "encode",
    "evaluate",
    "frequency_canaries",
    "given_canaries",
    "load_model",
    "load_vocabulary",
    "new_model",
    "plain_step",
    "plant",
    "preset",
    "random_canaries",
    "read_corpus",
    "retrain",
    "save_model",
    "train",
    "two_stage",
    "update_diff",
    "write_corpus",
    "write_page",
]

_HOMES = {
    "vestige.attacks.differential_rank": ("DifferentialRank", "differential_rank"),
    "vestige.attacks.update_diff": ("UpdateDiff", "update_diff"),
    "vestige.data.canaries": ("frequency_canaries", "given_canaries", "random_canaries"),
    "vestige.data.canary": ("Canary",),
    "vestige.data.corpus": ("Corpus",),
    "vestige.data.corpus_file": ("write_corpus",),
    "vestige.data.encoded": ("EncodedCorpus", "encode"),
    "vestige.data.loaders": ("read_corpus",),
    "vestige.data.manifest": ("Manifest", "plant"),
    "vestige.data.subwords": ("SubwordVocabulary",),
    "vestige.data.vocabulary": ("Vocabulary", "WordVocabulary", "load_vocabulary"),
    "vestige.errors": (
        "AccessDenied",
        "DataError",
        "IncompatibleModels",
        "ManifestError",
        "ModelError",
        "RunError",
        "TrainingError",
        "VestigeError",
    ),
    "vestige.models.checkpoints": ("check_compatible", "load_model", "save_model"),
    "vestige.models.hugging_face": ("HuggingFaceLanguageModel",),
    "vestige.models.lora": ("add_lora",),
    "vestige.models.lstm": ("LSTMConfig", "LSTMLanguageModel"),
    "vestige.models.protocols": ("LanguageModel", "NextToken"),
    "vestige.models.table": ("TableModel",),
    "vestige.models.transformer": ("CausalTransformer", "TransformerConfig"),
    "vestige.reports.page": ("write_page",),
    "vestige.results": ("Run",),
    "vestige.training.config": ("TrainingConfig",),
    "vestige.training.evaluate": ("Evaluation", "evaluate"),
    "vestige.training.history": ("StopFn", "TrainingHistory"),
    "vestige.training.loop": ("train",),
    "vestige.training.presets": ("new_model", "preset"),
    "vestige.training.steps": ("StepFn", "plain_step"),
    "vestige.training.updates": ("continued", "retrain", "two_stage"),
}


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            value = getattr(import_module(module), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
