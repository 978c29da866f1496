"""Vestige in trainings with Transformers' `Trainer` and trainers built on it.

    data = plant(data, copies=10, out="canaries")
    trainer = Trainer(..., train_dataset=data)
    trainer.add_callback(LeakageCallback("canaries", trainer))

`docs/guides/trainer.md` shows whole trainings.
"""

from vestige.integrations.leakage_callback import Leakage, LeakageCallback
from vestige.integrations.planting import plant
from vestige.integrations.private_trainer import PrivateTrainer, private

__all__ = ["Leakage", "LeakageCallback", "PrivateTrainer", "plant", "private"]
