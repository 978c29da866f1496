"""Settings of the audits behind the tables of Song and Shmatikov (2019), at one scale."""

from dataclasses import dataclass, replace
from typing import Any, Literal

from reproduction.provenance.audit_trials import AuditSetting
from reproduction.provenance.audited_texts import AuditedText
from reproduction.provenance.null_audits import NullAudits
from reproduction.provenance.private_audits import PrivateTraining
from vestige.defences.methods.private import DPFedAvg
from vestige.training.config import TrainingConfig
from vestige.training.presets import preset, preset_of

PrecisionName = Literal["auto", "float32", "bfloat16"]


@dataclass(frozen=True, kw_only=True)
class NamedSetting:
    """A setting, and what tables call it."""

    name: str
    setting: AuditSetting

    @property
    def dataset(self) -> str:
        """The corpus, as the paper's tables are keyed."""
        return self.setting.text.dataset


@dataclass(frozen=True, kw_only=True)
class ProvenanceScale:
    """What is computed, at one scale.

    Attributes:
        targets: the settings of Table 1; the first one stands for Reddit where the paper takes
            Reddit alone.
        crossed: the same with shadows of another domain.
        others: the same with shadows of other shapes.
        crowds: settings of more and more users.
        shown: output sizes.
        queries: numbers of texts that are asked.
        calls: numbers of single words that are.
        noise: shares of a member's texts that were not learnt.
        obfuscations: of "apertium", "synonyms" and "reversed", which is for tests.
        null: audits of people who were never in, of one corpus each.
        private: DP-FedAvg on the last of the crowds.
        ablated: ways in which hidden units are silenced.
    """

    targets: tuple[NamedSetting, ...]
    crossed: tuple[NamedSetting, ...]
    others: tuple[NamedSetting, ...]
    crowds: tuple[NamedSetting, ...]
    shown: tuple[int, ...]
    queries: tuple[int, ...]
    calls: tuple[int, ...]
    noise: tuple[float, ...]
    obfuscations: tuple[str, ...]
    null: tuple[NullAudits, ...]
    private: PrivateTraining
    ablated: int = 5


def named(
    name: str,
    text: AuditedText,
    epochs: int,
    *,
    shadows: int = 10,
    domain: str | None = None,
    precision: PrecisionName = "auto",
) -> NamedSetting:
    """A setting with the paper's shapes and training (appendix B.1), but for the epochs."""
    chosen: Any = preset("next-word") if text.task == "next-word" else preset_of(text.task)
    training = replace(chosen.training, epochs=epochs, keep="last", precision=precision)
    setting = AuditSetting(
        text=text, model=chosen.model, training=training, shadows=shadows, domain=domain
    )
    return NamedSetting(name=name, setting=setting)


def other_shapes_of(given: NamedSetting, *, shadows: int, epochs: int, rate: float) -> NamedSetting:
    learning = replace(
        given.setting.training,
        epochs=epochs,
        optimizer="sgd",
        learning_rate=rate,
        momentum=0.9,
    )
    return replace(given, setting=replace(given.setting, shadows=shadows, other=learning))


def crowd(
    members: int,
    *,
    others: int,
    reference: int,
    compared: int,
    epochs: int,
    shadows: int,
    precision: PrecisionName = "auto",
) -> NamedSetting:
    """A setting of Figure 2: 20 comments of each of so many members."""
    text = AuditedText(
        dataset="reddit",
        members=members,
        others=others,
        reference=reference,
        compared=compared,
        each=20,
    )
    return named(f"{members} users", text, epochs, shadows=shadows, precision=precision)


def private_training(noise: float, clip: float, *, users: int, rounds: int) -> PrivateTraining:
    """DP-FedAvg with q = 0.04 of so many users."""
    drawn = max(1, round(0.04 * users))
    return PrivateTraining(
        defence=DPFedAvg(
            noise_multiplier=noise,
            max_grad_norm=clip,
            local_learning_rate=6.0,
        ),
        training=TrainingConfig(
            seed=0,
            epochs=max(1, rounds * drawn // users),
            batch_size=drawn,
            sequence_length=64,
            optimizer="sgd",
            learning_rate=1.0,
            max_grad_norm=None,
            batching="poisson-users",
            keep="last",
        ),
    )
