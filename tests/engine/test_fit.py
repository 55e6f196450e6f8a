"""The loop: it walks the plan, counts what was applied, ranks strictly, and its rows do not depend on `batch`."""

import math
from dataclasses import replace
from itertools import count

import pytest
import torch
from torch import nn
from torch.optim import SGD

from visiontrain.engine.branches import Share
from visiontrain.engine.ema import Ema, LiveWeights
from visiontrain.engine.fit import EpochSums, Interrupted, RunState, TooManySkips, Training, fit
from visiontrain.engine.precision import Precision
from visiontrain.engine.schedule import Rates, Schedule
from visiontrain.engine.transaction import Transaction
from visiontrain.engine.window import GradientWindow, WindowReport
from visiontrain.losses.sums import LossSum
from visiontrain.plan import plan_run
from visiontrain.sample import Batch

MAP = "metrics/mAP"


def image(epoch, index):
    generator = torch.Generator().manual_seed(1000 * epoch + index)
    return torch.randint(0, 256, (3, 2, 2), dtype=torch.uint8, generator=generator)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(12, 2)

    def forward(self, images):
        return self.linear(images.to(self.linear.weight.dtype).flatten(1) / 255)


def criterion(outputs, batch):
    """Normalized by counts that differ from image to image and are 0 for some."""
    counts = batch.targets["counts"]
    total = (outputs.square().sum(dim=1) * (1 + counts)).sum()
    return LossSum(total, counts.sum().double(), {"a": total.detach() / 4, "b": total.detach() * 3 / 4}, floor=1.0)


class Loaded:
    """A window whose batches are made of its images' numbers."""

    t_data = 0.5

    def __init__(self, planned, run):
        self.planned, self.run = planned, run

    def __iter__(self):
        for part in self.planned.micro_batches:
            keys = [divmod(x, self.run.plan.num_images) for x in range(part.start, part.start + part.size)]
            if self.planned.index in self.run.unreadable:
                keys = []
            self.run.trained_on += keys
            images = torch.stack([image(*key) for key in keys]) if keys else torch.zeros(0, 3, 0, 0)
            yield Batch(
                images=images,
                targets={"counts": torch.tensor([index % 3 for _, index in keys], dtype=torch.float64)},
                paths=tuple(map(str, keys)),
                indices=tuple(index for _, index in keys),
                original_sizes=((2, 2),) * len(keys),
                matrices=torch.eye(3).expand(len(keys), 3, 3),
                is_last=part.is_last,
            )


class Run:
    """A toy run; `scores` are what validation gives, one after the other."""

    def __init__(
        self, *, scores=None, patience=0, val_interval=1, poisoned=(), unreadable=(), ema=False, max_skips=0, **plan
    ):
        self.plan = plan_run(**{"num_images": 10, "batch": 2, "nbs": 4, "epochs": 3} | plan)
        self.network = Net().double()
        self.optimizer = SGD([{"name": "weights", "params": list(self.network.parameters())}], lr=0.1)
        self.trained_on, self.windows, self.ends, self.validated = [], [], [], []
        self.poisoned, self.unreadable = poisoned, unreadable
        self.scores = scores
        gradients = GradientWindow(self.optimizer, model=self.network)
        precision = Precision("fp32", "cpu", None)
        self.training = Training(
            network=self.network,
            average=Ema(self.network) if ema else LiveWeights(self.network),
            gradients=gradients,
            transaction=Transaction(gradients, batch=self.plan.batch, precision=precision, warn=pytest.fail),
            schedule=Schedule(0.1, 0.01, 0.9, 0.8, 0.0, False, self.plan.warmup_images, self.plan.total_images),
            criterion=self.criterion,
            precision=precision,
            device=torch.device("cpu"),
            plan=self.plan,
            windows=self.load,
            validate=None if scores is None else self.validate,
            validates=lambda epoch: epoch % val_interval == 0 or epoch == self.plan.epochs,
            ranking=MAP,
            patience=patience,
            on_window=lambda window, report, state, rates: self.windows.append(
                (window.planned, report, replace(state), rates)
            ),
            on_epoch=self.ends.append,
            is_to_end=lambda state: False,
            max_skips=max_skips,
            clock=count(0.0, 0.25).__next__,
        )

    def load(self, first):
        for epoch in range(self.plan.epochs):
            for window in self.plan.windows(epoch):
                if window.index >= first:
                    self.current = window.index
                    yield Loaded(window, self)

    def criterion(self, outputs, batch):
        loss = criterion(outputs, batch)
        return replace(loss, total=loss.total * float("nan")) if self.current in self.poisoned else loss

    def validate(self, network, epoch):
        self.validated.append(epoch)
        assert network is self.training.average.model
        return {MAP: self.scores[len(self.validated) - 1], "table": object()}, {"a": 1.0, "b": 2.0}

    def fit(self, state=None):
        self.state = fit(self.training, state or RunState())
        return self

    def rows(self, column):
        return [end.row.get(column) for end in self.ends]


class TestWalk:
    @pytest.mark.parametrize("tail", ["flush", "spread", "carry"])
    def test_the_run_walks_exactly_the_plan(self, tail):
        run = Run(tail=tail, warmup_epochs=1).fit()
        planned = [window for epoch in range(3) for window in run.plan.windows(epoch)]
        assert [window for window, *_ in run.windows] == planned
        assert run.trained_on == [(epoch, index) for epoch in range(3) for index in range(10)]
        assert [report.num_images for _, report, *_ in run.windows] == [window.size for window in planned]
        assert run.state.updates == len(planned)
        assert run.state.images == 30
        assert run.state.epoch == 3

    def test_each_window_has_the_rates_of_its_end(self):
        run = Run(warmup_epochs=1).fit()
        for window, _, _, rates in run.windows:
            assert rates == run.training.schedule.at(window.stop)
        assert run.windows[-1][3].lr == 0.1 * 0.01
        assert run.rows("lr/weight") == [run.training.schedule.at(10 * epoch).lr for epoch in (1, 2, 3)]

    def test_rows_hold_cumulative_counts_and_nothing_of_what_was_not_validated(self):
        run = Run().fit()
        assert run.rows("epoch") == [1, 2, 3]
        assert run.rows("updates") == [3, 6, 9]
        assert run.rows("images") == [10, 20, 30]
        assert run.rows("time") == sorted(run.rows("time"))
        assert run.rows("t_data") == [1.5] * 3
        assert all(set(end.row) >= {"train/a", "train/b", "lr/norm", "lr/bias", "t_step", "t_val"} for end in run.ends)
        assert not any(name.startswith(("val/", "metrics/")) for end in run.ends for name in end.row)

    def test_rows_of_validated_epochs_hold_metrics_and_losses(self):
        run = Run(scores=[0.5, 0.25], val_interval=2).fit()
        assert run.validated == [2, 3]
        assert run.rows(MAP) == [None, 0.5, 0.25]
        assert run.rows("val/a") == [None, 1.0, 1.0]
        assert "table" not in run.ends[1].row
        assert [end.metrics is None for end in run.ends] == [True, False, False]

    def test_the_parts_of_an_epochs_time_add_up(self):
        run = Run(scores=[0.1, 0.2, 0.3]).fit()
        spent = [end.row["t_data"] + end.row["t_step"] + end.row["t_val"] for end in run.ends]
        times = run.rows("time")
        gained = [after - before for before, after in zip([0.0, *times], times, strict=False)]
        assert all(0 <= total - part <= 1.0 for total, part in zip(gained, spent, strict=True))  # a look at the clock

    def test_a_run_that_goes_on_from_an_epochs_state_ends_with_the_same_bits(self):
        whole = Run(warmup_epochs=1).fit()
        first = Run(warmup_epochs=1)
        first.training = replace(first.training, on_epoch=self.stop_after(first, 1))
        with pytest.raises(KeyboardInterrupt):
            first.fit()
        second = Run(warmup_epochs=1)
        second.network.load_state_dict(first.network.state_dict())
        second.optimizer.load_state_dict(first.optimizer.state_dict())
        second.fit(first.ends[-1].state)
        assert first.rows("epoch") + second.rows("epoch") == [1, 2, 3]
        assert first.rows("updates") + second.rows("updates") == whole.rows("updates")
        assert first.rows("train/a") + second.rows("train/a") == whole.rows("train/a")
        assert torch.equal(second.network.linear.weight, whole.network.linear.weight)

    def stop_after(self, run, epoch):
        def on_epoch(end):
            run.ends.append(end)
            if end.state.epoch == epoch:
                raise KeyboardInterrupt

        return on_epoch

    def test_the_average_takes_one_step_an_applied_update(self):
        run = Run(ema=True, poisoned=(1,)).fit()
        assert run.training.average.updates == run.state.updates == 8


class TestLosses:
    @pytest.mark.parametrize("batch", [1, 2, 4])
    def test_logged_losses_do_not_depend_on_batch(self, batch):
        reference, run = Run(batch=4).fit(), Run(batch=batch).fit()
        for name in ("train/a", "train/b"):
            assert run.rows(name) == pytest.approx(reference.rows(name), rel=1e-12)
        torch.testing.assert_close(run.network.linear.weight, reference.network.linear.weight, rtol=1e-12, atol=0)

    @pytest.mark.parametrize("nbs", [1, 2, 5, 10])
    def test_logged_losses_are_divided_once_an_epoch_so_windows_of_background_weigh_nothing(self, nbs):
        run = Run(batch=1, nbs=nbs, epochs=1)
        with torch.no_grad():
            outputs = run.network(torch.stack([image(0, index) for index in range(10)]))
        counts = torch.tensor([index % 3 for index in range(10)], dtype=torch.float64)
        total = (outputs.square().sum(dim=1) * (1 + counts)).sum() / counts.sum()
        run.training = replace(run.training, schedule=Schedule(0.0, 0.0, 0.0, 0.0, 0.0, False, 0, 10))
        run.fit()
        assert run.rows("train/a") == [pytest.approx(total.item() / 4, rel=1e-12)]


class TestLeftOut:
    def test_a_window_whose_loss_is_not_finite_is_left_out_and_counted(self):
        run = Run(poisoned=(1, 4)).fit()
        assert [report.applied for _, report, *_ in run.windows] == [i not in (1, 4) for i in range(9)]
        assert run.rows("updates") == [2, 4, 7]
        assert run.rows("images") == [10, 20, 30]
        assert [end.state.skipped for end in run.ends] == [1, 2, 2]
        assert all(math.isfinite(value) for value in run.rows("train/a"))
        assert torch.isfinite(run.network.linear.weight).all()
        assert all(rates == run.training.schedule.at(window.stop) for window, _, _, rates in run.windows)

    def test_a_window_of_unreadable_images_is_left_out_and_counted(self):
        run = Run(unreadable=(0,)).fit()
        assert run.state.skipped == 1
        assert run.state.updates == 8

    def test_an_epoch_without_an_applied_window_has_no_losses_and_goes_on(self):
        run = Run(poisoned=(0, 1, 2)).fit()
        assert [row is None for row in run.rows("train/a")] == [True, False, False]

    def test_so_many_in_a_row_break_the_run_off(self):
        run = Run(poisoned=(0, 2, 3), max_skips=2)
        text = "^2 windows in a row were left out, the last because the loss is not finite$"
        with pytest.raises(TooManySkips, match=text) as caught:
            run.fit()
        assert (caught.value.state.window, caught.value.state.skipped) == (4, 3)

    def test_a_window_that_is_applied_begins_the_row_anew(self):
        assert Run(poisoned=(1, 3, 5), max_skips=2).fit().state.skipped == 3

    def test_a_window_that_only_finds_the_loss_scale_neither_adds_to_the_row_nor_ends_it(self):
        state, nothing = RunState(skipped_in_a_row=1), torch.zeros(())
        state.count(WindowReport(False, 4, {}, nothing, nothing, is_calibration=True))
        assert (state.calibrations, state.skipped, state.skipped_in_a_row) == (1, 0, 1)


class TestEnd:
    def test_the_run_ends_behind_the_window_after_which_it_is_told_to(self):
        run = Run()
        run.training = replace(run.training, is_to_end=lambda state: state.window == 5)
        assert run.fit().state.window == 5
        assert run.rows("epoch") == [1]

    def test_a_validation_that_is_broken_off_is_made_up_for_when_the_run_goes_on(self):
        def broken_off(network, epoch):
            raise Interrupted

        saved, scores = [], [0.1, 0.2, 0.3]
        whole, first, second = Run(scores=scores).fit(), Run(scores=scores), Run(scores=scores)
        first.training = replace(
            first.training, validate=broken_off, is_to_end=lambda state: bool(saved.append(state.window))
        )
        first.fit()
        assert (first.state.window, first.state.epoch, first.ends) == (3, 0, [])
        assert saved == [1, 2, 3]
        second.network.load_state_dict(first.network.state_dict())
        second.optimizer.load_state_dict(first.optimizer.state_dict())
        second.fit(first.state)
        for column in ("epoch", "updates", "train/a", MAP):
            assert second.rows(column) == whole.rows(column)

    def test_what_an_epoch_has_added_up_to_comes_back_from_plain_values(self):
        shares = {"a": Share(torch.tensor(6.0), torch.tensor(0.5), floor=1.0)}
        sums = EpochSums(shares, Rates(0.1, 0.2, 0.3), t_data=1.5, seconds=2.5)
        again = EpochSums.from_plain(sums.to_plain(), torch.device("cpu"))
        assert again == sums
        assert again.losses() == {"a": 6.0}


class TestRanking:
    def test_only_a_strictly_better_epoch_is_the_best(self):
        run = Run(scores=[0.0, 0.3, 0.3, 0.2], epochs=4).fit()
        assert [end.is_best for end in run.ends] == [True, True, False, False]
        assert (run.state.best, run.state.best_epoch) == (0.3, 2)
        assert [end.state.best_epoch for end in run.ends] == [1, 2, 2, 2]

    def test_without_validation_the_last_epoch_is_the_best(self):
        run = Run(patience=1).fit()
        assert [end.is_best for end in run.ends] == [True, True, True]
        assert run.state.best_epoch == 3

    def test_where_nothing_can_be_scored_the_last_epoch_is_the_best(self):
        run = Run(scores=[math.nan] * 3, patience=1).fit()
        assert [end.is_best for end in run.ends] == [True, True, True]

    def test_a_score_that_is_not_a_number_does_not_displace_one_that_is(self):
        run = Run(scores=[0.3, math.nan, 0.2]).fit()
        assert [end.is_best for end in run.ends] == [True, False, False]
        assert run.state.best == 0.3

    @pytest.mark.parametrize(("patience", "epochs"), [(0, 8), (1, 3), (2, 4), (3, 5), (100, 8)])
    def test_the_run_ends_when_patience_is_over(self, patience, epochs):
        run = Run(scores=[0.1, 0.5] + [0.4] * 6, patience=patience, epochs=8).fit()
        assert run.rows("epoch")[-1] == run.state.epoch == epochs

    def test_patience_waits_for_a_validation(self):
        run = Run(scores=[0.5, 0.4, 0.3], patience=2, val_interval=4, epochs=12).fit()
        assert run.validated == [4, 8]
        assert run.state.epoch == 8

    def test_patience_goes_on_counting_in_a_resumed_run(self):
        run = Run(scores=[0.4, 0.4], patience=2, epochs=8)
        first = run.plan.first_window[2]
        run.fit(RunState(window=first, epoch=2, updates=first, images=20, best=0.5, best_epoch=1))
        assert run.state.epoch == 3


class TestCarry:
    def test_one_window_may_close_several_epochs_and_each_has_its_row(self):
        run = Run(num_images=3, batch=2, nbs=8, epochs=5, tail="carry", scores=[0.5, 0.75]).fit()
        assert run.rows("epoch") == [1, 2, 3, 4, 5]
        assert run.rows("updates") == [1, 1, 2, 2, 2]
        assert run.rows("images") == [3, 6, 9, 12, 15]
        assert [end.state.epoch for end in run.ends] == [1, 2, 3, 4, 5]
        assert [end.state.images for end in run.ends] == [8, 8, 15, 15, 15]
        assert run.validated == [2, 5]
        assert run.rows(MAP) == [0.5, 0.5, 0.75, 0.75, 0.75]
        assert [end.is_best for end in run.ends] == [True, False, True, False, False]

    def test_an_epoch_to_validate_is_validated_though_its_window_closes_later_ones_too(self):
        run = Run(num_images=3, batch=2, nbs=12, epochs=6, tail="carry", scores=[0.5, 0.75], val_interval=3).fit()
        assert [window.size for window, *_ in run.windows] == [12, 6]
        assert run.rows(MAP) == [None, None, 0.5, None, None, 0.75]
