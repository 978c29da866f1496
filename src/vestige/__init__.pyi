"""The public names of Vestige: verbs, what they take, what they return, errors.

This file is the list. Type checkers and editors read it, and `__init__.py` loads from it: each name
comes from the module that stands here, when it is first used.
"""

# Verbs: each is a command of the same name.
from .audits.check.check import check as check
from .audits.exposure.exposure import exposure as exposure
from .audits.extraction.extract import extract as extract
from .audits.membership.membership import membership as membership
from .audits.release.release import report as report
from .audits.anatomy.anatomy import anatomy as anatomy
from .audits.comparison.compare import compare as compare
from .audits.unlearning.unlearning import unlearning as unlearning
from .audits.update.diff import NullOptions as NullOptions
from .audits.update.diff import diff as diff
from .preparation.plant import plant as plant
from .preparation.train import train as train

# What verbs take: settings that travel together.
from .audits.membership.membership import QueryOptions as QueryOptions
from .audits.membership.membership import ShadowOptions as ShadowOptions
from .models.remote.options import RemoteOptions as RemoteOptions
from .preparation.options import ModelOptions as ModelOptions
from .preparation.options import NluOptions as NluOptions
from .preparation.options import TrainingOptions as TrainingOptions

# What verbs take: text, with its canaries.
from .data.canaries.texts import Canary as Canary
from .data.corpus import Corpus as Corpus
from .data.formats.reading import read_corpus as read_corpus
from .data.formats.utterances import read_utterances as read_utterances
from .data.canaries.texts import Manifest as Manifest
from .data.canaries.utterances import SecretManifest as SecretManifest
from .data.canaries.patterns import SecretPattern as SecretPattern
from .data.subwords import SubwordVocabulary as SubwordVocabulary
from .data.utterances import Utterance as Utterance
from .data.utterances import Utterances as Utterances
from .data.vocabulary import WordVocabulary as WordVocabulary

# What verbs take: models, by what they let one see.
from .models.checkpoints import load_intent_slot as load_intent_slot
from .models.checkpoints import load_model as load_model
from .models.hugging_face import HuggingFaceLanguageModel as HuggingFaceLanguageModel
from .models.protocols import LanguageModel as LanguageModel
from .models.protocols import NextToken as NextToken
from .models.remote.functions import ServiceModel as ServiceModel
from .models.table import TableModel as TableModel
from .models.top_k import TopK as TopK
from .models.white_box import WhiteBox as WhiteBox

# What verbs take: defences, and a reader of progress.
from .defences.methods.regularizers import Adversarial as Adversarial
from .defences.methods.private import DPFedAvg as DPFedAvg
from .defences.methods.private import DPSGD as DPSGD
from .defences.methods.regularizers import Goldfish as Goldfish
from .defences.methods.regularizers import Triplet as Triplet
from .monitor import Monitor as Monitor

# What verbs return.
from .results import Result as Result
from .results import Run as Run
from .preparation.planting import Planting as Planting
from .preparation.trained import RepeatedTraining as RepeatedTraining
from .preparation.trained import Trained as Trained

# What goes wrong.
from .errors import AccessDenied as AccessDenied
from .errors import ClusterError as ClusterError
from .errors import DataError as DataError
from .errors import IncompatibleModels as IncompatibleModels
from .errors import ManifestError as ManifestError
from .errors import ModelError as ModelError
from .errors import RunError as RunError
from .errors import TrainingError as TrainingError
from .errors import VestigeError as VestigeError

__version__: str
__all__: list[str]
