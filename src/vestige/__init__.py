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
    "CanaryAudit",
    "CanaryBits",
    "CanaryExposure",
    "CausalTransformer",
    "Completion",
    "Corpus",
    "DataError",
    "DefenceComparison",
    "DifferentialRank",
    "EncodedCorpus",
    "EpsilonBound",
    "Evaluation",
    "ExactRank",
    "Guarantee",
    "HuggingFaceLanguageModel",
    "IncompatibleModels",
    "LSTMConfig",
    "LSTMLanguageModel",
    "LanguageModel",
    "Manifest",
    "ManifestError",
    "MeasuredTraining",
    "ModelError",
    "NextToken",
    "PrivacySpent",
    "Run",
    "RunError",
    "Separation",
    "StepFn",
    "StopFn",
    "SubgroupGap",
    "SubwordVocabulary",
    "TableModel",
    "TrainingConfig",
    "TrainingCost",
    "TrainingError",
    "TrainingHistory",
    "TransformerConfig",
    "UpdateDiff",
    "VestigeError",
    "Vocabulary",
    "WordVocabulary",
    "add_lora",
    "audit_canaries",
    "canary_exposure",
    "check_compatible",
    "compare_defences",
    "complete",
    "continued",
    "differential_rank",
    "encode",
    "epsilon_spent",
    "evaluate",
    "exact_rank",
    "frequency_canaries",
    "given_canaries",
    "group_epsilon",
    "load_model",
    "load_vocabulary",
    "new_model",
    "noise_for",
    "one_run_epsilon",
    "plain_step",
    "plant",
    "preset",
    "privacy_spent",
    "random_canaries",
    "read_corpus",
    "real_canaries",
    "retrain",
    "save_model",
    "separation",
    "subgroup_gap",
    "threshold_epsilon",
    "train",
    "two_stage",
    "update_diff",
    "write_corpus",
    "write_page",
]

_HOMES = {
    "vestige.attacks.canary_audit": ("CanaryAudit", "audit_canaries"),
    "vestige.attacks.canary_exposure": ("canary_exposure",),
    "vestige.attacks.completion": ("Completion", "complete"),
    "vestige.attacks.differential_rank": ("DifferentialRank", "differential_rank"),
    "vestige.attacks.exact_rank": ("ExactRank", "exact_rank"),
    "vestige.attacks.exposure_result": ("CanaryExposure",),
    "vestige.attacks.real_canaries": ("real_canaries",),
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
    "vestige.defences.accounting": ("PrivacySpent", "epsilon_spent", "noise_for", "privacy_spent"),
    "vestige.defences.comparison": ("DefenceComparison", "compare_defences"),
    "vestige.defences.group_privacy": ("group_epsilon",),
    "vestige.defences.measured": ("CanaryBits", "Guarantee", "MeasuredTraining", "TrainingCost"),
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
    "vestige.metrics.epsilon": ("EpsilonBound", "one_run_epsilon"),
    "vestige.metrics.separation": ("Separation", "separation"),
    "vestige.metrics.subgroup": ("SubgroupGap", "subgroup_gap"),
    "vestige.metrics.threshold_epsilon": ("threshold_epsilon",),
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
