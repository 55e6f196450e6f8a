"""Scoring: the losses do not depend on how a split is cut, and the network is left as it was."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from visiontrain.engine.distributed import Group, Place
from visiontrain.engine.evaluate import evaluate, predict_batches, unmoved
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


class Counted(dict):
    """Metrics that know more than their numbers."""


class Collector:
    def __init__(self):
        self.seen = []

    def add(self, predictions, batch):
        assert len(predictions) == len(batch)
        self.seen += predictions

    def state(self):
        return list(self.seen)

    def merge(self, state):
        self.seen += state

    def compute(self):
        return Counted({"metrics/count": float(len(self.seen))})


def score(model, batches, loss=criterion, group=None):
    return evaluate(
        model,
        batches,
        criterion=loss,
        decoder=lambda outputs: [{"scores": row} for row in outputs],
        evaluator=Collector(),
        precision=FP32,
        device=CPU,
        group=group,
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


class Thread(Group):
    """A process that is a thread, and exchanges with the others by a list."""

    def __init__(self, process, said, barrier):
        super().__init__(Place(process, len(said)))
        self._said, self._barrier = said, barrier

    def gather(self, value):
        self._said[self.place.process] = value
        self._barrier.wait(10)
        values = list(self._said)
        self._barrier.wait(10)
        return values

    def first_gives(self, make):
        return self.gather(make() if self.is_first else None)[0]


def score_together(parts, loss=criterion):
    """What each of several processes finds, of which each has its part of the batches."""
    said, barrier = [None] * len(parts), threading.Barrier(len(parts))
    models = [Net() for _ in parts]
    with ThreadPoolExecutor(len(parts)) as pool:
        running = [
            pool.submit(score, model, batches, loss, Thread(process, said, barrier))
            for process, (model, batches) in enumerate(zip(models, parts, strict=True))
        ]
        return [one.result(10) for one in running]


@pytest.mark.parametrize("cuts", [(3, 4), (7, 0), (0, 7), (2, 0, 5), (0, 3, 4)])
def test_several_processes_find_what_one_finds(cuts):
    _, losses = score(Net(), batch_of(images()).split(2))
    parts = [batch_of(part).split(2) if len(part) else [] for part in images().split(cuts)]
    found = score_together(parts)
    for metrics, shares in found:
        assert metrics["metrics/count"] == 7
        assert shares == pytest.approx(losses, rel=1e-6)
        assert list(shares) == list(losses)


def test_only_the_first_process_has_more_than_the_numbers():
    found = score_together([[batch_of(images(2))], [batch_of(images(3))]])
    assert [isinstance(metrics, Counted) for metrics, _ in found] == [True, False]
    assert [dict(metrics) for metrics, _ in found] == [{"metrics/count": 5.0}] * 2


def test_a_split_without_images_has_no_losses_in_any_process():
    assert score_together([[batch_of(images(0))], []]) == [({"metrics/count": 0.0}, {})] * 2


class TestUnmoved:
    def test_a_batch_without_images_moves_no_statistics_and_one_with_images_does(self):
        model = Net().train()
        with unmoved(model, by=batch_of(images(0))):
            model(images(0))
        assert (model.norm.running_mean.abs().sum(), model.norm.num_batches_tracked) == (0, 0)
        with unmoved(model, by=batch_of(images(4))):
            model(images(4))
        assert model.norm.running_mean.abs().sum() > 0
        assert model.norm.num_batches_tracked == 1

    def test_a_batch_without_images_gives_gradients_of_zero(self):
        model = Net().train()
        with unmoved(model, by=batch_of(images(0))):
            criterion(model(images(0)), batch_of(images(0))).total.backward()
        assert [param.grad.abs().sum().item() for param in model.parameters()] == [0.0] * 4

    def test_each_layer_is_as_it_was_afterwards_and_others_stay_in_training_inside(self):
        model = nn.Sequential(Net(), nn.BatchNorm2d(2)).train()
        model[1].eval()  # frozen
        with unmoved(model, by=batch_of(images(0))):
            inside = [layer.training for layer in (model[0].norm, model[0].dropout, model[1])]
        assert inside == [False, True, False]
        assert [layer.training for layer in (model[0].norm, model[0].dropout, model[1])] == [True, True, False]

    def test_layers_in_which_processes_exchange_go_on_to(self):
        model = nn.SyncBatchNorm.convert_sync_batchnorm(Net()).train()
        with unmoved(model, by=batch_of(images(0))):
            assert model.norm.training
