"""A model that is split over processes is refused before it is measured."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from vestige.errors import VestigeError
from vestige.integrations.leakage_callback import LeakageCallback, require_whole


@pytest.fixture
def mesh():
    """A process group of one process."""
    torch.distributed.init_process_group(
        "gloo", rank=0, world_size=1, store=torch.distributed.HashStore()
    )
    yield init_device_mesh("cpu", (1,))
    torch.distributed.destroy_process_group()


def trainer(model, *, fsdp=False):
    return SimpleNamespace(model=model, is_fsdp_enabled=fsdp)


def test_an_fsdp_model_is_refused_before_the_first_step(mesh):
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    require_whole(trainer(model))
    fully_shard(model[0], mesh=mesh)
    with pytest.raises(VestigeError, match=r"processes by FSDP.*`vestige exposure MODEL"):
        LeakageCallback("nowhere", trainer(model)).on_train_begin(None, None, None)


@pytest.mark.parametrize(
    ("attribute", "message"),
    [
        (None, "by FSDP"),
        ("ds_tensor", "DeepSpeed ZeRO 3"),
        ("placements", "tensor parallelism"),
    ],
)
def test_models_split_by_other_methods_are_refused(attribute, message):
    model = nn.Linear(2, 2)
    if attribute is not None:
        setattr(model.weight, attribute, ())
    with pytest.raises(VestigeError, match=message):
        require_whole(trainer(model, fsdp=attribute is None))
