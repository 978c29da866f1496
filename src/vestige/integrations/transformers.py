"""Vestige in a training by Transformers' `Trainer`, or by what is built on it.

Example:
    >>> from vestige.integrations.transformers import LeakageCallback, plant  # doctest: +SKIP
    >>> data = plant(data, copies=10, out="canaries")  # doctest: +SKIP
    >>> trainer = Trainer(model, args, train_dataset=data.map(tokenize),
    ...                   callbacks=[LeakageCallback("canaries")])  # doctest: +SKIP
"""

from vestige.integrations.leakage_callback import Leakage, LeakageCallback
from vestige.integrations.planting import plant

__all__ = ["Leakage", "LeakageCallback", "plant"]
