"""Windows that are left out of a run: nothing of them remains, and a loss scale too high is no image's fault."""

import pytest
import torch
from torch import nn
from torch.optim import SGD

from visiontrain.engine.ema import Ema
from visiontrain.engine.fit import RunState, Training, fit
from visiontrain.engine.precision import Precision
from visiontrain.engine.schedule import Schedule
from visiontrain.engine.transaction import Transaction
from visiontrain.engine.window import GradientWindow
from visiontrain.losses.sums import LossSum
from visiontrain.plan import plan_run
from visiontrain.sample import Batch

BROKEN = (11, 12, 17)
NUM_WINDOWS = 20


class Net(nn.Module):
    """BatchNorm and dropout: all that a forward pass changes."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.norm, self.dropout, self.linear = nn.BatchNorm1d(6), nn.Dropout(0.2), nn.Linear(6, 3)

    def forward(self, images):
        return self.linear(self.dropout(self.norm(images)))


def half(**keys):
    return Precision("fp16", "cpu", torch.float16, torch.amp.GradScaler("cpu", **keys))


class Loaded:
    t_data = 0.0

    def __init__(self, planned, value=None):
        self.planned = planned
        generator = torch.Generator().manual_seed(planned.index)
        self.images = torch.randn(planned.size, 6, generator=generator)
        if value is not None:
            self.images[2] = value

    def __iter__(self):
        for part in self.planned.micro_batches:
            first = part.start - self.planned.start
            yield Batch(
                images=self.images[first : first + part.size],
                targets={},
                paths=tuple(f"{x}.jpg" for x in range(part.start, part.start + part.size)),
                indices=tuple(range(part.start, part.start + part.size)),
                original_sizes=((1, 1),) * part.size,
                matrices=torch.eye(3).expand(part.size, 3, 3),
                is_last=part.is_last,
            )


class Run:
    """Twenty windows of two micro-batches under a GradScaler, some of them spoilt; every act is written down."""

    def __init__(self, *, broken=(), value=float("inf"), without=(), precision=None, criterion=None):
        self.plan = plan_run(num_images=8 * NUM_WINDOWS, batch=4, nbs=8, epochs=1)
        self.broken, self.value, self.without = broken, value, without
        self.precision = precision or half(init_scale=1024.0)
        self.network = Net()
        optimizer = SGD([{"name": "weights", "params": list(self.network.parameters())}], lr=0.1, momentum=0.9)
        self.average = Ema(self.network)
        self.gradients = GradientWindow(optimizer, model=self.network, scaler=self.precision.scaler, clip=1.0)
        self.schedule = Schedule(0.1, 0.01, 0.9, 0.8, 0.0, False, 0, self.plan.total_images)
        self.windows, self.lines = [], []
        self.training = Training(
            network=self.network,
            average=self.average,
            gradients=self.gradients,
            transaction=Transaction(self.gradients, batch=4, precision=self.precision, warn=self.lines.append),
            schedule=self.schedule,
            criterion=criterion or (lambda outputs, batch: LossSum(outputs.square().sum(), float(len(batch)))),
            precision=self.precision,
            device=torch.device("cpu"),
            plan=self.plan,
            windows=self.load,
            validate=None,
            validates=lambda epoch: False,
            ranking="",
            patience=0,
            on_window=lambda window, report, state, rates: self.windows.append((window, report, rates)),
            on_epoch=lambda end: None,
            max_skips=0,
            is_to_end=lambda state: False,
        )

    def load(self, first):
        for planned in self.plan.all_windows(first):
            if planned.index not in self.without:
                yield Loaded(planned, self.value if planned.index in self.broken else None)

    def fit(self):
        self.state = fit(self.training, RunState())
        return self

    @property
    def reports(self):
        return [report for _, report, _ in self.windows]


def count_calls(monkeypatch, owner, name, calls):
    original = getattr(owner, name)

    def spy(*args, **keys):
        calls.append(name)
        return original(*args, **keys)

    monkeypatch.setattr(owner, name, spy)


class Spy:
    """Counts calls of methods and lets them through."""

    def __init__(self, monkeypatch):
        self.calls, self._patch = {}, monkeypatch

    def watch(self, label, owner, name):
        original = getattr(owner, name)
        self.calls[label] = 0

        def counting(*args, **keys):
            self.calls[label] += 1
            return original(*args, **keys)

        self._patch.setattr(owner, name, counting)


def assert_same_state(one, other):
    torch.testing.assert_close(one.network.state_dict(), other.network.state_dict(), rtol=0, atol=0)
    torch.testing.assert_close(one.average.model.state_dict(), other.average.model.state_dict(), rtol=0, atol=0)
    states = [run.gradients.optimizer.state_dict()["state"] for run in (one, other)]
    torch.testing.assert_close(*states, rtol=0, atol=0)


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_of_twenty_windows_three_that_are_not_finite_are_left_out_whole(monkeypatch, value):
    run, spy = Run(broken=BROKEN, value=value), Spy(monkeypatch)
    spy.watch("unscale", run.precision.scaler, "unscale_")
    spy.watch("clip", torch.nn.utils, "clip_grad_norm_")
    spy.watch("update scale", run.precision.scaler, "update")
    spy.watch("step", run.gradients.optimizer, "step")
    spy.watch("average", run.average, "update")
    run.fit()
    assert spy.calls == {"unscale": 20, "clip": 20, "update scale": 20, "step": 17, "average": 17}
    assert (run.state.updates, run.state.skipped, run.state.calibrations) == (17, 3, 0)
    assert run.average.updates == 17
    assert [rates for *_, rates in run.windows] == [run.schedule.at(window.stop) for window in run.plan.all_windows()]
    assert [window.planned.index for window, report, _ in run.windows if not report.applied] == list(BROKEN)
    assert run.precision.scaler.get_scale() == 1024.0  # no scale would have made them finite


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_a_run_goes_on_as_if_the_windows_left_out_had_not_been(value):
    torch.manual_seed(1)
    run = Run(broken=BROKEN, value=value).fit()
    torch.manual_seed(1)
    without = Run(without=BROKEN).fit()
    assert_same_state(run, without)
    assert all(buffer.isfinite().all() for buffer in run.network.buffers())
    assert run.network.norm.num_batches_tracked == 2 * 17


def test_with_a_loss_scale_far_too_high_the_first_windows_are_calibration():
    run = Run(precision=half(init_scale=2.0**30)).fit()
    kinds = [(report.applied, report.is_calibration, report.is_forward_finite) for report in run.reports]
    num_calibrations = run.state.calibrations
    assert 5 < num_calibrations < NUM_WINDOWS
    assert kinds == [(False, True, True)] * num_calibrations + [(True, False, True)] * (NUM_WINDOWS - num_calibrations)
    assert (run.state.updates, run.state.skipped) == (NUM_WINDOWS - num_calibrations, 0)
    assert run.precision.scaler.get_scale() == 2.0 ** (30 - num_calibrations)
    assert "overflowed at a loss scale of 1.07374e+09" in run.reports[0].reason
    assert run.lines == []


@pytest.mark.parametrize("name", ["fp16", "bf16"])
def test_where_half_precision_overflows_in_the_first_windows_fp32_takes_over_and_nothing_is_lost(name):
    is_fp16 = name == "fp16"
    scaler = torch.amp.GradScaler("cpu") if is_fp16 else None
    precision = Precision(name, "cpu", torch.float16 if is_fp16 else torch.bfloat16, scaler)

    torch.manual_seed(1)
    run = Run(precision=precision, criterion=overflowing_in_half).fit()
    assert len(run.lines) == 1
    assert f"window 1: the loss is not finite in {name}: fp32 takes over" in run.lines[0]
    assert (run.state.updates, run.state.skipped) == (NUM_WINDOWS, 0)
    assert (precision.name, precision.scaler, run.gradients.loss_scale.value) == ("fp32", None, None)

    torch.manual_seed(1)
    single = Run(precision=Precision("fp32", "cpu", None), criterion=overflowing_in_half).fit()
    assert_same_state(run, single)


def test_a_window_that_fp32_does_not_hold_either_says_nothing_against_half_precision():
    run = Run(broken=(3,), value=float("nan")).fit()
    assert run.lines == []
    assert run.precision.name == "fp16"
    assert run.gradients.loss_scale.value == run.precision.scaler.get_scale()
    assert (run.state.updates, run.state.skipped) == (19, 1)


def test_later_in_the_run_a_loss_that_is_not_finite_is_the_windows_own_fault():
    calls = []

    def overflows_late(outputs, batch):
        calls.append(outputs.dtype)
        is_late = len(calls) > 2 * 12 and outputs.dtype == torch.float16
        return LossSum(outputs.float().square().sum() * (float("inf") if is_late else 1.0), float(len(batch)))

    run = Run(criterion=overflows_late).fit()
    assert run.precision.name == "fp16"
    assert (run.state.updates, run.state.skipped) == (12, 8)


def test_half_precision_is_put_to_the_test_again_where_a_run_goes_on():
    run = Run(criterion=overflowing_in_half)
    run.state = fit(run.training, RunState(window=12))
    assert "window 13: the loss is not finite in fp16: fp32 takes over" in run.lines[0]
    assert run.state.skipped == 0


def overflowing_in_half(outputs, batch):
    factor = 1.0 if outputs.dtype == torch.float32 else float("inf")
    return LossSum(outputs.float().square().sum() * factor, float(len(batch)))


def test_when_no_scale_is_low_enough_fp32_takes_over():
    class SteepInHalf(torch.autograd.Function):
        """A gradient that overflows in fp16 at any scale of 1 or more."""

        @staticmethod
        def forward(ctx, outputs):
            return outputs

        @staticmethod
        def backward(ctx, gradient):
            return gradient * (torch.inf if gradient.dtype == torch.float16 else 1.0)

    run = Run(
        precision=half(init_scale=4.0),
        criterion=lambda outputs, batch: LossSum(SteepInHalf.apply(outputs).float().square().sum(), float(len(batch))),
    ).fit()
    assert len(run.lines) == 1
    assert "the loss scale of fp16 has fallen to 0.5: fp32 takes over" in run.lines[0]
    assert (run.state.calibrations, run.state.updates, run.state.skipped) == (2, 18, 0)
    assert run.precision.name == "fp32"


def test_a_gradient_that_fp32_does_not_hold_either_is_the_windows_own_fault_and_leaves_a_usable_scale():
    run = Run(
        precision=half(init_scale=1.0),
        # The root of 0 has an infinite slope, the loss itself is finite.
        criterion=lambda outputs, batch: LossSum(
            outputs.float().square().sum() + ((outputs.float() * 0).sum().sqrt() if is_poor(batch) else 0.0),
            float(len(batch)),
        ),
    ).fit()
    assert run.lines == []
    assert run.precision.name == "fp16"
    assert run.precision.scaler.get_scale() == 1.0
    assert (run.state.calibrations, run.state.skipped, run.state.updates) == (0, 3, 17)
    assert {report.reason for report in run.reports if not report.applied} == {
        "the gradient of norm.weight is not finite"
    }


def is_poor(batch):
    return batch.indices[0] // 8 in BROKEN
