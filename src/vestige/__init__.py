"""Vestige measures what a text model gives away about the text it was trained on.

The public names are in `__init__.pyi`, with their types. Each is imported from its own module
when it is first used, so that `import vestige` stays instant. Everything else is imported from the
module that defines it.

Example:
    >>> import vestige as vg
    >>> corpus = vg.Corpus.from_texts(["to be or not to be"])
    >>> vg.WordVocabulary.build(corpus).decode([3, 2])
    'to be'
"""

import lazy_loader

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
