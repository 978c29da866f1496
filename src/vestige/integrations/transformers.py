"""Vestige in a training by Transformers' `Trainer`, or by what is built on it.

`docs/in-your-training.md` shows both in a training:

    data = plant(data, copies=10, out="canaries")
    trainer = Trainer(..., train_dataset=data, callbacks=[LeakageCallback("canaries")])
"""

from vestige.integrations.leakage_callback import Leakage, LeakageCallback
from vestige.integrations.planting import plant
from vestige.integrations.private_trainer import PrivateTrainer, private

__all__ = ["Leakage", "LeakageCallback", "PrivateTrainer", "plant", "private"]
