"""Scoring: the losses do not depend on how a split is cut, and the network is left as it was."""

import pytest
import torch
from torch import nn

from visiontrain.engine.evaluate import evaluate, predict_batches
from visiontrain.engine.precision import Precision
from visiontrain.losses.sums import LossSum
from visiontrain.sample import Batch

FP32 = Precision("fp32", "cpu", None)
CPU = torch.device("cpu")


def batch_of(images):
    size = len(images)
    return Batch(
        images=images,
        targets={"counts": images[:, 0, 0, 0].long() % 3},
        paths=("x.png",) * size,
        indices=tuple(range(size)),
        original_sizes=((2, 2),) * size,
        matrices=torch.eye(3).expand(size, 3, 3),
    )


def images(count=7):
    return torch.randint(0, 256, (count, 3, 2, 2), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.norm, self.dropout, self.linear = nn.BatchNorm2d(3), nn.Dropout(0.5), nn.Linear(12, 2)

    def forward(self, images):
        return self.linear(self.dropout(self.norm(images.float() / 255)).flatten(1))


def criterion(outputs, batch):
    total = (outputs.square().sum(dim=1) * batch.targets["counts"]).sum()
    return LossSum(total, batch.targets["counts"].sum().float(), {"a": total / 4, "b": total * 3 / 4}, floor=1.0)


class Collector:
    def __init__(self):
        self.seen = []

    def add(self, predictions, batch):
        assert len(predictions) == len(batch)
        self.seen += predictions

    def compute(self):
        return {"metrics/count": float(len(self.seen))}


def score(model, batches, loss=criterion):
    return evaluate(
        model,
        batches,
        criterion=loss,
        decoder=lambda outputs: [{"scores": row} for row in outputs],
        evaluator=Collector(),
        precision=FP32,
        device=CPU,
    )


@pytest.mark.parametrize("most", [1, 2, 3, 7])
def test_losses_and_metrics_do_not_depend_on_the_batches(most):
    metrics, losses = score(Net(), batch_of(images()).split(most))
    whole = criterion(Net().eval()(images()), batch_of(images()))
    assert metrics == {"metrics/count": 7.0}
    mean = (whole.total / whole.normalizer).item()
    assert losses == {"a": pytest.approx(mean / 4, rel=1e-5), "b": pytest.approx(mean * 3 / 4, rel=1e-5)}


def test_a_split_without_targets_is_divided_by_the_floor():
    zeros = torch.zeros_like(images())
    _, losses = score(Net(), batch_of(zeros).split(2))
    assert losses == {"a": 0.0, "b": 0.0}


def test_losses_of_several_branches_are_divided_each_by_its_own_normalizer():
    def branches(outputs, batch):
        return [
            LossSum(outputs.new_tensor(6.0), outputs.new_tensor(2.0), name="x"),
            LossSum(outputs.new_tensor(6.0), outputs.new_tensor(3.0), name="y"),
        ]

    _, losses = score(Net(), batch_of(images()).split(2), branches)
    assert losses == {"x": 3.0, "y": 2.0}


def test_the_network_is_in_evaluation_mode_inside_and_each_module_as_it_was_afterwards():
    model = Net().train()
    model.norm.eval()  # a frozen part of a network in training
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    inside = []

    def note(outputs, batch):
        inside.append([module.training for module in model.modules()])
        assert not outputs.requires_grad
        return criterion(outputs, batch)

    score(model, batch_of(images()).split(4), note)
    assert not any(map(any, inside))
    assert [module.training for module in (model, model.norm, model.dropout)] == [True, False, True]
    torch.testing.assert_close(dict(model.state_dict()), before, rtol=0, atol=0)


def test_the_modes_come_back_also_after_an_error():
    model = Net().train()

    def fail(outputs, batch):
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        score(model, batch_of(images()).split(4), fail)
    assert all(module.training for module in model.modules())


def test_the_network_can_be_trained_on_after_scoring():
    model = Net().train()
    score(model, batch_of(images()).split(4))
    model(images()).sum().backward()
    assert model.linear.weight.grad is not None


def test_a_batch_of_which_nothing_could_be_read_is_passed_over():
    metrics, _ = score(Net(), [batch_of(images(0)), batch_of(images())])
    assert metrics == {"metrics/count": 7.0}


def test_predictions_come_with_their_batches():
    model = Net()
    batches = batch_of(images()).split(3)
    decoder = lambda outputs: [{"scores": row} for row in outputs]  # noqa: E731
    pairs = list(predict_batches(model, batches, decoder, FP32, CPU))
    assert [batch.paths for batch, _ in pairs] == [batch.paths for batch in batches]
    assert [len(predictions) for _, predictions in pairs] == [3, 2, 2]
    assert not any(module.training for module in model.modules())
