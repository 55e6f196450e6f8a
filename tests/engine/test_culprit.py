"""Who is to blame for a number that is not finite: the image by itself, the first layer, and nothing is moved."""

import pytest
import torch
from torch import nn

from visiontrain.engine.culprit import find_culprits
from visiontrain.engine.precision import Precision
from visiontrain.losses.sums import LossSum
from visiontrain.sample import Batch

FP32 = Precision("fp32", "cpu", None)


class Root(nn.Module):
    """Not a number for an image below 0."""

    def forward(self, images):
        return images.sqrt()


class Pair(nn.Module):
    """Several outputs, as heads give them."""

    def forward(self, features):
        return features, [features.long(), features.pow(4)]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.stem = nn.Sequential(Root(), nn.Flatten())
        self.norm, self.dropout, self.head = nn.BatchNorm1d(4), nn.Dropout(0.5), Pair()

    def forward(self, images):
        return self.head(self.dropout(self.norm(self.stem(images))))


def criterion(outputs, batch):
    return LossSum(outputs[1][1].sum(), float(len(batch)))


def batch_of(*values, start=0):
    """An image of 2 × 2 pixels for each value, called by its number."""
    size = len(values)
    return Batch(
        images=torch.tensor(values, dtype=torch.float32).reshape(-1, 1, 1, 1).expand(-1, 1, 2, 2),
        targets={},
        paths=tuple(f"{start + number}.png" for number in range(size)),
        indices=tuple(range(size)),
        original_sizes=((2, 2),) * size,
        matrices=torch.eye(3).expand(size, 3, 3),
    )


def blame(*batches, network=None, loss=criterion):
    return find_culprits(network or Net(), loss, batches, FP32, torch.device("cpu"))


def test_the_image_is_named_with_the_innermost_of_the_first_layers_that_give_what_is_not_finite():
    found = blame(batch_of(1.0, -1.0), batch_of(2.0, 3.0, -4.0, start=2))
    assert found == [f"{name}.png (the output of stem.0 is not finite)" for name in (1, 4)]


def test_a_layer_is_looked_at_also_where_it_gives_several_tensors():
    (found,) = blame(batch_of(1.0, 1e30))  # finite until the head takes its fourth power
    assert found == "1.png (the output of head is not finite)"


def test_a_network_of_one_layer_is_called_by_its_kind():
    found = blame(batch_of(-1.0), network=Root(), loss=lambda outputs, batch: LossSum(outputs.sum(), 1.0))
    assert found == ["0.png (the output of Root is not finite)"]


def test_where_all_outputs_are_finite_the_loss_is_named_whichever_branch_it_is_in():
    def branches(outputs, batch):
        poisoned = outputs[0].sum() * (float("inf") if batch.paths == ("1.png",) else 1.0)
        return LossSum(outputs[0].sum(), 1.0, name="one"), LossSum(poisoned, 1.0, name="other")

    assert blame(batch_of(1.0, 1.0, 1.0), loss=branches) == ["1.png (the loss is not finite)"]


def test_nobody_is_to_blame_where_every_image_is_finite_by_itself():
    def together(outputs, batch):
        return LossSum(outputs[0].sum() * (1.0 if len(batch) == 1 else float("nan")), 1.0)

    assert blame(batch_of(1.0, 2.0), batch_of(), loss=together) == []


def test_a_layer_that_is_not_finite_in_training_mode_alone_is_nobodys_fault():
    network = Net().train()
    network.dropout.register_forward_hook(lambda module, _, out: out * float("nan") if module.training else out)
    assert blame(batch_of(1.0), network=network) == []


@pytest.mark.parametrize("fails", [False, True])
def test_the_search_moves_nothing(fails):
    def loss(outputs, batch):
        if fails:
            raise RuntimeError("broken")
        return criterion(outputs, batch)

    network = Net().train()
    network.stem.eval()  # a frozen part
    before, random = {name: value.clone() for name, value in network.state_dict().items()}, torch.get_rng_state()
    modes = [module.training for module in network.modules()]
    if fails:
        with pytest.raises(RuntimeError, match="broken"):
            blame(batch_of(1.0, -1.0), network=network, loss=loss)
    else:
        blame(batch_of(1.0, -1.0), network=network, loss=loss)
    torch.testing.assert_close(dict(network.state_dict()), before, rtol=0, atol=0)
    assert torch.equal(torch.get_rng_state(), random)
    assert [module.training for module in network.modules()] == modes
    assert not any(module._forward_hooks for module in network.modules())
