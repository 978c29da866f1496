"""What a signature cannot say about an option, and the parameters that several workflows share.

Bounds are those of `annotated_types` (`Ge`, `Gt`, `Le`, `Lt`, `Interval`); choices are `Literal`.

Example:
    >>> from typing import Annotated
    >>> from annotated_types import Ge
    >>> Layers = Annotated[int | None, Ge(1), Group("Model")]
"""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

from annotated_types import Ge

from vestige._markers import Flag as Flag
from vestige._markers import Group as Group
from vestige._markers import Help as Help
from vestige._markers import Kinds as Kinds
from vestige._markers import Metavar as Metavar
from vestige._markers import Only as Only
from vestige._markers import PythonOnly as PythonOnly

if TYPE_CHECKING:
    from vestige.data.corpus import Corpus
    from vestige.models.protocols import LanguageModel

    ModelLike: TypeAlias = str | PathLike[str] | LanguageModel
    ModelsLike: TypeAlias = ModelLike | Sequence[ModelLike]
    CorpusLike: TypeAlias = str | PathLike[str] | Corpus
    PathTo: TypeAlias = str | PathLike[str]
else:
    # What a command line or a configuration file can give, found without importing torch.
    ModelLike = str
    ModelsLike = Sequence[str]
    CorpusLike = str
    """What a workflow takes for a corpus."""
    PathTo = Path


DATA = Group("Reading the data")

Seed = Annotated[int, Ge(0), Help("Decides everything that is drawn.")]
Device = Annotated[str, Help("`auto` (a GPU where there is one), `cpu` or `cuda`.")]
DeviceOrSeveral = Annotated[
    str,
    Help("`auto` (a GPU where there is one), `cpu`, `cuda`, or `balanced`: over all GPUs."),
]
"""Of verbs whose models may be spread, layer after layer."""
Directory = Annotated[PathTo, Metavar("DIR")]
DataFormat = Annotated[
    str, DATA, Help("How DATA is to be read; `auto` goes by the name and what stands in it.")
]
TextColumn = Annotated[str, DATA, Help("The column or field with the text.")]
UserColumn = Annotated[str | None, DATA, Help("The column or field with the user.")]
SourceColumn = Annotated[
    str | None, DATA, Help("The column or field with what the text answers or translates.")
]
TokensColumn = Annotated[str, DATA, Help("The column or field with an utterance's words.")]
TagsColumn = Annotated[str, DATA, Help("The column or field with their tags.")]
IntentColumn = Annotated[str, DATA, Help("The column or field with its intent.")]
Limit = Annotated[int | None, Ge(1), DATA, Help("Read only so many documents.")]
