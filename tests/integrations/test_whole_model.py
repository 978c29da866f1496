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
def alone():
    """One process of a group of one."""
    torch.distributed.init_process_group(
        "gloo", rank=0, world_size=1, store=torch.distributed.HashStore()
    )
    yield init_device_mesh("cpu", (1,))
    torch.distributed.destroy_process_group()


def training(model, *, fsdp=False):
    return SimpleNamespace(model=model, is_fsdp_enabled=fsdp)


def test_an_fsdp_model_is_refused_before_the_first_step(alone):
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    require_whole(training(model))
    fully_shard(model[0], mesh=alone)
    with pytest.raises(VestigeError, match=r"processes by FSDP.*`vestige exposure MODEL"):
        LeakageCallback("nowhere", training(model)).on_train_begin(None, None, None)


def test_models_split_by_other_methods_are_refused():
    model = nn.Linear(2, 2)
    with pytest.raises(VestigeError, match="by FSDP"):
        require_whole(training(model, fsdp=True))
    for name, told in (("ds_tensor", "DeepSpeed ZeRO 3"), ("placements", "tensor parallelism")):
        model = nn.Linear(2, 2)
        setattr(model.weight, name, ())
        with pytest.raises(VestigeError, match=told):
            require_whole(training(model))
