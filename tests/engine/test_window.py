"""The window: its step does not depend on the cut, acts happen once and in order, a dropped window leaves no trace."""

import contextlib
import re
import textwrap

import pytest
import torch
from torch import nn
from torch.optim import SGD, AdamW

import visiontrain.engine.window as window_module
from visiontrain.engine.window import GradientWindow
from visiontrain.losses.sums import LossSum

CUTS = [(8,), (4, 4), (3, 3, 2), (7, 1), (1,) * 8]
EXACT = {"rtol": 1e-12, "atol": 1e-15}


def toy(seed=0, dtype=torch.float64):
    """A linear network from 5 to 3, the same for the same seed."""
    network = nn.Linear(5, 3)
    with torch.no_grad():
        generator = torch.Generator().manual_seed(seed)
        for param in network.parameters():
            param.copy_(torch.randn(param.shape, generator=generator, dtype=torch.float64))
    return network.to(dtype)


def images(count=8, dtype=torch.float64):
    return torch.randn(count, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).to(dtype)


def error_over_hits(outputs, **keys):
    """A loss whose normalizer is decided by the outputs, as in detection: how many of them are positive."""
    hits = (outputs.detach() > 0).to(outputs.dtype)
    return LossSum((outputs**2 * hits).sum() + outputs.abs().sum(), hits.sum(), **keys)


def floored(outputs):
    return error_over_hits(outputs, floor=1.0)


def train(network, cuts, *, loss=error_over_hits, optimizer=None, data=None, planned=None, **keys):
    """One step for each cut; returns the reports."""
    data = images(dtype=next(network.parameters()).dtype) if data is None else data
    window = GradientWindow(optimizer or SGD(network.parameters(), lr=0.1), model=network, **keys)
    reports = []
    for sizes in cuts:
        window.open(planned)
        for number, part in enumerate(data.split(list(sizes))):
            with window.micro_batch(last=number == len(sizes) - 1):
                window.add(loss(network(part)), num_images=len(part))
        reports.append(window.step())
    return reports


def assert_equal_networks(one, other, **tolerance):
    for name, param in one.state_dict().items():
        torch.testing.assert_close(param, other.state_dict()[name], **(tolerance or EXACT), msg=name)


class FakeScaler:
    """A GradScaler that notes what is asked of it."""

    def __init__(self, log, scale=1024.0):
        self.log, self.factor = log, scale

    def is_enabled(self):
        return True

    def scale(self, tensor):
        self.log.append("scale")
        return tensor * self.factor

    def unscale_(self, optimizer):
        self.log.append("unscale")
        for group in optimizer.param_groups:
            for param in group["params"]:
                param.grad.div_(self.factor)

    def step(self, optimizer):
        optimizer.step()

    def get_scale(self):
        return self.factor

    def update(self, new_scale=None):
        self.log.append("update")


class TestCut:
    @pytest.mark.parametrize("sizes", CUTS)
    @pytest.mark.parametrize("clip", [None, 0.1, 1e6])
    def test_cutting_a_window_differently_does_not_change_the_steps(self, sizes, clip):
        whole, cut = toy(), toy()
        train(whole, [(8,)] * 3, clip=clip, gain=8.0)
        train(cut, [sizes] * 3, clip=clip, gain=8.0)
        assert_equal_networks(cut, whole)

    @pytest.mark.parametrize("sizes", CUTS)
    def test_the_gradient_is_that_of_the_mean_over_the_whole_window(self, sizes):
        network, reference = toy(), toy()
        loss = error_over_hits(reference(images()))
        (loss.total / loss.normalizer).backward()
        train(network, [sizes])
        for param, wanted in zip(network.parameters(), reference.parameters(), strict=True):
            torch.testing.assert_close(param, wanted - 0.1 * wanted.grad, **EXACT)

    def test_micro_batches_without_any_target_count_for_what_they_are(self):
        data = images()
        with torch.no_grad():
            data[2:5] = torch.linalg.pinv(toy().weight) @ (-1 - toy().bias)  # all outputs are -1: three without a hit
        assert error_over_hits(toy()(data[2:5])).normalizer == 0
        whole, cut = toy(), toy()
        train(whole, [(8,)], data=data)
        train(cut, [(2, 3, 3)], data=data)
        assert_equal_networks(cut, whole)

    def test_a_short_last_window_weighs_as_much_as_a_full_one(self):
        network = nn.Linear(1, 1, bias=False, dtype=torch.float64)
        nn.init.zeros_(network.weight)
        data = torch.ones(7, 1, dtype=torch.float64)  # the gradient of every image is 1
        window = GradientWindow(SGD(network.parameters(), lr=1.0), model=network)
        for micro_batches in (4, 3):
            before = network.weight.item()
            for _ in range(micro_batches):
                window.add(LossSum(network(data[:1]).sum(), torch.tensor(1.0)))
            window.step()
            assert before - network.weight.item() == 1.0

    @pytest.mark.parametrize("sizes", CUTS)
    def test_float32_agrees_to_its_rounding(self, sizes):
        whole, cut = toy(dtype=torch.float32), toy(dtype=torch.float32)
        train(whole, [(8,)])
        train(cut, [sizes])
        assert_equal_networks(cut, whole, rtol=1e-5, atol=1e-7)

    @pytest.mark.parametrize("planned", [None, 1, 8, 1000])
    @pytest.mark.parametrize("hint", [0.01, 1.0, 8.0])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_the_reference_changes_no_bit(self, planned, hint, dtype):
        plain, other = toy(dtype=dtype), toy(dtype=dtype)
        train(plain, [(3, 3, 2)] * 2)
        train(other, [(3, 3, 2)] * 2, planned=planned, loss=lambda out: error_over_hits(out, scale_hint=hint))
        assert_equal_networks(other, plain, rtol=0, atol=0)

    def test_the_normalizer_is_summed_in_float64(self):
        network = toy(dtype=torch.float32)
        window = GradientWindow(SGD(network.parameters(), lr=0.0), model=network)
        for count in (2.0**24, 1.0, 1.0):
            window.add(LossSum(network(images(1, torch.float32)).sum(), torch.tensor(count)))
        report = window.step()
        assert report.normalizer.dtype == torch.float64
        assert report.normalizer == 2**24 + 2

    def test_the_floor_is_the_least_that_a_window_is_divided_by(self):
        network, reference = toy(), toy()
        reference(images()).abs().sum().backward()
        report, *_ = train(network, [(4, 4)], loss=lambda out: LossSum(out.abs().sum(), out.new_zeros(()), floor=1.0))
        assert report.applied
        torch.testing.assert_close(network.weight, reference.weight - 0.1 * reference.weight.grad, **EXACT)

    def test_from_mean_gives_the_step_of_the_mean_over_all_images(self):
        whole, cut = toy(), toy()
        (whole(images()) ** 2).sum(dim=1).mean().backward()
        SGD(whole.parameters(), lr=0.1).step()
        train(cut, [(5, 2, 1)], loss=lambda out: LossSum.from_mean((out**2).sum(dim=1).mean(), torch.tensor(len(out))))
        assert_equal_networks(cut, whole)


class TestOrder:
    def spies(self, monkeypatch, network, **keys):
        log = []
        optimizer = SGD(network.parameters(), lr=0.1)
        for name in ("step", "zero_grad"):
            original = getattr(optimizer, name)

            def spy(*args, name=name, original=original, **keywords):
                log.append(name)
                return original(*args, **keywords)

            monkeypatch.setattr(optimizer, name, spy)
        clip = torch.nn.utils.clip_grad_norm_
        monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", lambda *args: log.append("clip") or clip(*args))
        multiply = torch._foreach_mul_

        def spy_multiply(tensors, factor):
            if isinstance(factor, torch.Tensor) and factor.ndim == 0 and "clip" not in log:
                log.append("normalize")
            return multiply(tensors, factor)

        monkeypatch.setattr(torch, "_foreach_mul_", spy_multiply)
        return log, optimizer

    def test_each_act_happens_once_a_window_and_in_order(self, monkeypatch):
        network = toy()
        log, optimizer = self.spies(monkeypatch, network)
        train(network, [(2, 2, 2, 2)], optimizer=optimizer, clip=1.0)
        assert log == ["normalize", "clip", "step", "zero_grad"]

    def test_with_a_scaler_gradients_are_unscaled_first_and_the_scale_is_updated_once(self, monkeypatch):
        network = toy()
        log, optimizer = self.spies(monkeypatch, network)
        train(network, [(2, 2, 2, 2)], optimizer=optimizer, clip=1.0, scaler=FakeScaler(log))
        assert log == ["scale"] * 4 + ["unscale", "normalize", "clip", "step", "update", "zero_grad"]

    def test_a_window_that_is_not_applied_has_no_step_but_ends_like_any_other(self, monkeypatch):
        network = toy()
        log, optimizer = self.spies(monkeypatch, network)
        data = images()
        data[3] = float("nan")
        train(network, [(4, 4)], optimizer=optimizer, clip=1.0, scaler=FakeScaler(log), data=data)
        assert log == ["scale"] * 2 + ["unscale", "normalize", "clip", "update", "zero_grad"]

    @pytest.mark.parametrize("sizes", CUTS)
    def test_the_norm_at_the_step_is_the_clip_for_every_cut(self, sizes, monkeypatch):
        network = toy()
        optimizer, norms = SGD(network.parameters(), lr=0.1), []
        step = optimizer.step

        def measuring():
            norms.append(torch.cat([param.grad.flatten() for param in network.parameters()]).norm().item())
            return step()

        monkeypatch.setattr(optimizer, "step", measuring)
        train(network, [sizes], optimizer=optimizer, clip=1.0, gain=1e6, scaler=FakeScaler([]))
        assert norms == [pytest.approx(1.0, rel=1e-6)]

    def test_a_power_of_two_in_the_scaler_changes_no_bit(self):
        plain, scaled = toy(dtype=torch.float32), toy(dtype=torch.float32)
        train(plain, [(4, 4)] * 2, clip=0.5)
        train(scaled, [(4, 4)] * 2, clip=0.5, scaler=torch.amp.GradScaler("cpu"))
        assert_equal_networks(scaled, plain, rtol=0, atol=0)

    def test_a_scaler_that_is_disabled_is_as_good_as_none(self):
        plain, scaled = toy(dtype=torch.float32), toy(dtype=torch.float32)
        train(plain, [(4, 4)] * 2, clip=0.5)
        train(scaled, [(4, 4)] * 2, clip=0.5, scaler=torch.amp.GradScaler("cpu", enabled=False))
        assert_equal_networks(scaled, plain, rtol=0, atol=0)
        data = images(dtype=torch.float32) * torch.inf
        report, *_ = train(scaled, [(4, 4)], scaler=torch.amp.GradScaler("cpu", enabled=False), data=data)
        assert not report.is_calibration

    def test_gradients_are_gone_after_the_step(self):
        network = toy()
        train(network, [(4, 4)])
        assert all(param.grad is None for param in network.parameters())


class Noisy(nn.Module):
    """Everything that a forward pass changes: running statistics and random numbers."""

    def __init__(self):
        super().__init__()
        self.norm, self.dropout, self.linear = nn.BatchNorm1d(5), nn.Dropout(0.5), nn.Linear(5, 3)

    def forward(self, images):
        return self.linear(self.dropout(self.norm(images)))


def traces(network, optimizer):
    """All that a window could leave behind, as values to compare."""
    return {
        "network": {name: tensor.clone() for name, tensor in network.state_dict().items()},
        "optimizer": {
            f"{number}.{key}": value.clone()
            for number, param in enumerate(network.parameters())
            for key, value in optimizer.state.get(param, {}).items()
        },
        "random": {"cpu": torch.get_rng_state()},
        "grad": {str(n): param.grad for n, param in enumerate(network.parameters()) if param.grad is not None},
    }


class TestLeftOut:
    def warmed_up(self):
        torch.manual_seed(0)
        network = Noisy()
        optimizer = AdamW(network.parameters(), lr=0.1)
        train(network, [(4, 4)], optimizer=optimizer)
        return network, optimizer

    def losses(self):
        return {
            "the loss is not finite": lambda out: LossSum(out.sum() * float("nan"), torch.tensor(1.0)),
            "its normalizer is 0": lambda out: LossSum(out.sum(), torch.tensor(0.0)),
            # The root of 0 has an infinite slope, the loss itself is 0.
            "the gradient of norm.weight is not finite": lambda out: LossSum((out * 0).sum().sqrt(), torch.tensor(1.0)),
        }

    @pytest.mark.parametrize(
        "reason", ["the loss is not finite", "its normalizer is 0", "the gradient of norm.weight is not finite"]
    )
    def test_a_window_that_is_not_applied_leaves_no_trace(self, reason):
        network, optimizer = self.warmed_up()
        before = traces(network, optimizer)
        report, *_ = train(network, [(4, 4)], optimizer=optimizer, loss=self.losses()[reason])
        assert not report.applied
        assert reason in report.reason
        assert report.num_images == 8
        torch.testing.assert_close(traces(network, optimizer), before, rtol=0, atol=0)

    def test_a_window_that_is_rolled_back_leaves_no_trace(self):
        network, optimizer = self.warmed_up()
        before = traces(network, optimizer)
        window = GradientWindow(optimizer, model=network)
        with window.micro_batch(last=False):
            window.add(error_over_hits(network(images(4, torch.float32))))
        assert not torch.equal(torch.get_rng_state(), before["random"]["cpu"])
        window.rollback()
        torch.testing.assert_close(traces(network, optimizer), before, rtol=0, atol=0)

    def test_a_rolled_back_window_can_be_run_again_to_the_same_bits(self):
        network, optimizer = self.warmed_up()
        other, other_optimizer = self.warmed_up()
        random = torch.get_rng_state()
        train(other, [(4, 4)], optimizer=other_optimizer)

        torch.set_rng_state(random)
        window = GradientWindow(optimizer, model=network)
        with window.micro_batch(last=False):
            window.add(error_over_hits(network(images(4, torch.float32))))
        window.rollback()
        train(network, [(4, 4)], optimizer=optimizer)
        assert_equal_networks(network, other, rtol=0, atol=0)

    def test_after_a_rollback_that_came_after_unscaling_the_window_can_be_unscaled_again(self, monkeypatch):
        network = toy(dtype=torch.float32)
        scaler = torch.amp.GradScaler("cpu")
        window = GradientWindow(SGD(network.parameters(), lr=0.1), model=network, scaler=scaler)

        def fail(*_):
            raise torch.OutOfMemoryError

        with monkeypatch.context() as patch:
            patch.setattr(torch.nn.utils, "clip_grad_norm_", fail)
            window.add(error_over_hits(network(images(4, torch.float32))))
            with pytest.raises(torch.OutOfMemoryError):
                window.step()
        scale = scaler.get_scale()
        window.rollback()
        assert scaler.get_scale() == scale
        window.add(error_over_hits(network(images(4, torch.float32))))
        assert window.step().applied

    def test_the_scale_falls_after_a_gradient_that_is_not_finite(self):
        network = toy(dtype=torch.float32)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)
        before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
        report, *_ = train(network, [(4, 4)], scaler=scaler)
        assert not report.applied
        assert scaler.get_scale() == 2.0**126
        torch.testing.assert_close(dict(network.state_dict()), before, rtol=0, atol=0)

    def test_a_window_without_a_readable_image_is_reported_and_not_applied(self):
        network = toy()
        window = GradientWindow(SGD(network.parameters(), lr=0.1), model=network)
        window.open(8)
        report = window.step()
        assert not report.applied
        assert "no image that could be read" in report.reason
        assert report.losses() == {}

    def test_a_window_of_which_all_say_that_they_hold_no_image_is_left_out_for_that(self):
        network = toy()
        before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
        optimizer = SGD(network.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
        # A floor, so that its normalizer would not tell, and sums of 0 that hang on every output.
        report, *_ = train(network, [(0, 0)], data=images(0), optimizer=optimizer, loss=floored)
        assert (report.applied, report.num_images, report.reason) == (False, 0, window_module.NO_IMAGE)
        torch.testing.assert_close(dict(network.state_dict()), before, rtol=0, atol=0)
        assert not optimizer.state

    def test_micro_batches_without_an_image_change_nothing_where_others_hold_some(self):
        network, cut = toy(), toy()
        train(network, [(8,)], loss=floored)
        (report,) = train(cut, [(0, 5, 0, 3, 0)], loss=floored)
        assert (report.applied, report.num_images) == (True, 8)
        assert_equal_networks(cut, network)

    def test_where_nobody_tells_images_a_window_is_not_taken_for_one_without(self):
        network = toy()
        window = GradientWindow(SGD(network.parameters(), lr=0.1), model=network)
        window.add(error_over_hits(network(images())))
        report = window.step()
        assert (report.applied, report.num_images, report.reason) == (True, 0, "")

    def test_a_running_statistic_that_overflows_though_the_loss_does_not_leaves_no_trace(self):
        network = nn.Sequential(nn.BatchNorm1d(5), nn.Linear(5, 3))
        before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
        report, *_ = train(network, [(4, 4)], data=images(dtype=torch.float32) * 1e25)  # its square is beyond float32
        assert "a running statistic of BatchNorm is not finite" in report.reason
        assert not report.is_forward_finite
        torch.testing.assert_close(dict(network.state_dict()), before, rtol=0, atol=0)

    def test_a_running_statistic_is_not_taken_for_an_overflow_because_its_square_would_be_one(self):
        network = nn.Sequential(nn.BatchNorm1d(5), nn.Linear(5, 3))
        report, *_ = train(network, [(4, 4)], data=images(dtype=torch.float32) * 1e15)
        assert report.applied
        assert network[0].running_var.min() > 1e25

    def test_a_window_leaves_no_trace_also_where_nobody_opened_it(self):
        network, optimizer = self.warmed_up()
        window = GradientWindow(optimizer, model=network)
        for is_applied in (False, True, False, False):
            before = traces(network, optimizer)
            window.add(LossSum(network(images(4, torch.float32)).sum() * (1.0 if is_applied else float("nan")), 1.0))
            assert window.step().applied == is_applied
            if not is_applied:
                torch.testing.assert_close(traces(network, optimizer), before, rtol=0, atol=0)

    @pytest.mark.parametrize("normalizer", [float("nan"), float("inf")])
    def test_a_normalizer_that_is_not_finite_is_a_loss_that_is_not_finite(self, normalizer):
        report, *_ = train(toy(), [(4, 4)], loss=lambda out: LossSum(out.sum(), torch.tensor(normalizer)))
        assert report.reason == "the loss is not finite"

    def test_gradients_of_somebody_elses_backward_pass_are_no_part_of_a_window(self):
        plain, other = toy(), toy()
        train(plain, [(4, 4)])
        other(images()).sum().backward()
        train(other, [(4, 4)])
        assert_equal_networks(other, plain, rtol=0, atol=0)

    def test_a_step_that_has_begun_is_not_rolled_back(self, monkeypatch):
        network = toy()
        optimizer = SGD(network.parameters(), lr=0.1)
        window = GradientWindow(optimizer, model=network)

        def fail():
            raise torch.OutOfMemoryError

        monkeypatch.setattr(optimizer, "step", fail)
        window.add(error_over_hits(network(images())))
        with pytest.raises(torch.OutOfMemoryError):
            window.step()
        assert window.is_applying
        with pytest.raises(AssertionError, match="cannot be brought back"):
            window.rollback()


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.boxes, self.masks = toy(0), toy(1)
        self.stem = nn.Parameter(torch.ones(5, dtype=torch.float64))


def two_branches(network, data, *, shares_stem=False, weight=1.0):
    """Boxes are normalized by hits, masks by images; with `weight` 0 the masks have no target and reach nothing."""
    features = data * network.stem if shares_stem else data
    boxes, masks = error_over_hits(network.boxes(features)), network.masks(features)
    nothing = masks.new_zeros(())
    total = (masks**2).sum() if weight else nothing
    return (
        LossSum(boxes.total, boxes.normalizer, name="boxes"),
        LossSum(total, nothing + len(data) * weight, floor=1.0, name="masks"),
    )


class TestBranches:
    def run(self, cuts, **keys):
        network = TwoHeads()
        window = GradientWindow(SGD(network.parameters(), lr=0.1), model=network)
        for part, weight in cuts:
            window.add(two_branches(network, part, weight=weight, **keys))
        return network, window.step()

    @pytest.mark.parametrize("sizes", CUTS)
    def test_each_branch_is_divided_by_its_own_normalizer(self, sizes):
        network, report = self.run([(part, 1.0) for part in images().split(list(sizes))])
        boxes, masks = two_branches(reference := TwoHeads(), images())
        (boxes.total / boxes.normalizer + masks.total / masks.normalizer).backward()
        for name, param in network.named_parameters():
            wanted = reference.get_parameter(name)
            torch.testing.assert_close(param, wanted if wanted.grad is None else wanted - 0.1 * wanted.grad, **EXACT)
        assert report.losses()["masks"] == pytest.approx((masks.total / masks.normalizer).item(), rel=1e-12)

    def test_a_branch_that_has_its_first_target_late_in_the_window_is_divided_too(self):
        data = images()
        early, _ = self.run([(data[:4], 1.0), (data[4:], 0.0)])
        late, _ = self.run([(data[4:], 0.0), (data[:4], 1.0)])
        assert_equal_networks(late, early)
        assert not torch.equal(late.masks.weight, TwoHeads().masks.weight)

    def test_a_parameter_behind_two_branches_is_refused(self):
        with pytest.raises(ValueError, match=r"shape \(5,\) is reached from the loss branches 'boxes' and 'masks'"):
            self.run([(images(), 1.0)], shares_stem=True)

    def test_a_gradient_that_no_branch_accounts_for_is_refused(self):
        network = TwoHeads()
        window = GradientWindow(SGD(network.parameters(), lr=0.1), model=network)
        window.add(two_branches(network, images()))
        network.stem.sum().backward()
        with pytest.raises(ValueError, match=r"shape \(5,\) has a gradient that comes from none of the loss branches"):
            window.step()

    def test_micro_batches_with_different_branches_are_refused(self):
        network = TwoHeads()
        window = GradientWindow(SGD(network.parameters(), lr=0.1), model=network)
        boxes, _ = two_branches(network, images())
        window.add(boxes)
        with pytest.raises(ValueError, match=r"are \['boxes', 'masks'\], those before it were \['boxes'\]"):
            window.add(two_branches(network, images()))

    def test_micro_batches_with_different_parts_are_refused(self):
        network = toy()
        window = GradientWindow(SGD(network.parameters(), lr=0.1), model=network)
        part = torch.zeros(())
        window.add(LossSum(network(images()).sum(), 1.0, {"a": part}))
        with pytest.raises(
            ValueError, match=r"parts of the loss are \['a', 'b'\], those of the micro-batch before \['a'\]"
        ):
            window.add(LossSum(network(images()).sum(), 1.0, {"a": part, "b": part}))

    @pytest.mark.parametrize("make", [lambda loss: [], lambda loss: [loss, loss]])
    def test_branches_need_different_names_and_there_is_at_least_one(self, make):
        network = toy()
        window = GradientWindow(SGD(network.parameters(), lr=0.1), model=network)
        with pytest.raises(ValueError, match="one LossSum, or several of different names"):
            window.add(make(error_over_hits(network(images()))))

    @pytest.mark.parametrize("wrap", [lambda mean: mean, lambda mean: [mean, mean]])
    def test_a_bare_tensor_is_refused_with_the_remedy(self, wrap):
        network = toy()
        window = GradientWindow(SGD(network.parameters(), lr=0.1), model=network)
        with pytest.raises(TypeError, match=r"bare tensor: .*LossSum\.from_mean\(loss, count\)"):
            window.add(wrap(network(images()).mean()))


class TestMisuse:
    """What would train wrongly, or not at all, is refused with what to do instead."""

    def window(self, network=None, optimizer=None, **keys):
        network = network or toy()
        return network, GradientWindow(optimizer or SGD(network.parameters(), lr=0.1), model=network, **keys)

    def test_after_an_error_in_a_micro_batch_nothing_goes_on_before_a_rollback(self):
        network, window = self.window()
        clean, _ = self.window()
        with contextlib.suppress(KeyError), window.micro_batch(last=False):
            window.add(error_over_hits(network(images(4))), num_images=4)
            raise KeyError
        for go_on in (window.step, lambda: window.add(error_over_hits(network(images()))), lambda: enter(window)):
            with pytest.raises(RuntimeError, match=r"call rollback\(\), which drops what was added"):
                go_on()
        window.rollback()
        window.add(error_over_hits(network(images())), num_images=8)
        assert window.step().num_images == 8
        train(clean, [(8,)])
        assert_equal_networks(network, clean, rtol=0, atol=0)

    def test_micro_batches_stand_one_after_another_and_end_with_the_last(self):
        network, window = self.window()
        with window.micro_batch(last=False):
            with pytest.raises(RuntimeError, match="inside another one"):
                enter(window)
            with pytest.raises(RuntimeError, match=r"step\(\) stands inside a micro-batch"):
                window.step()
        with window.micro_batch(last=True):
            window.add(error_over_hits(network(images())))
        with pytest.raises(RuntimeError, match="after the last one of its window"):
            enter(window)
        assert window.step().applied

    @pytest.mark.parametrize("scaler", [None, torch.amp.GradScaler("cpu")])
    def test_an_optimizer_of_another_model_is_found_at_the_first_step(self, scaler):
        network, window = self.window(optimizer=SGD(toy().parameters(), lr=0.1), scaler=scaler)
        for _ in range(2):
            window.add(error_over_hits(network(images())))
            with pytest.raises(
                ValueError, match="no parameter of the optimizer has a gradient: make it of this model's"
            ):
                window.step()
        assert network.weight.grad is None

    def test_a_loss_that_reaches_no_parameter_is_found_at_the_step(self):
        network, window = self.window()
        with torch.no_grad():
            outputs = network(images())
        window.add(error_over_hits(outputs))
        with pytest.raises(ValueError, match="run the forward pass with gradients enabled"):
            window.step()

    def test_a_micro_batch_without_targets_may_return_constants(self):
        network, window = self.window()
        window.add(LossSum(torch.zeros(()), 0.0))
        window.add(error_over_hits(network(images()), name="loss"))
        assert window.step().applied
        window.add(LossSum(torch.zeros(()), 0.0))
        assert "its normalizer is 0" in window.step().reason

    def test_gradients_of_parameters_that_the_optimizer_does_not_have_do_not_pile_up(self):
        network = nn.Sequential(toy(), nn.Linear(3, 2, dtype=torch.float64))
        window = GradientWindow(SGD(network[1].parameters(), lr=0.1), model=network)
        for _ in range(2):
            window.add(error_over_hits(network(images())))
            assert window.step().applied
            assert network[0].weight.grad is None

    def test_a_window_to_which_nothing_was_added_says_so(self):
        _, window = self.window()
        assert window.step().reason == "nothing was added to the window"

    @pytest.mark.parametrize("num_images", [-1, "x", 2.5])
    def test_a_number_of_images_is_one(self, num_images):
        network, window = self.window()
        with pytest.raises(ValueError, match="is not a number of images"):
            window.add(error_over_hits(network(images())), num_images=num_images)

    @pytest.mark.parametrize(
        ("keys", "text"),
        [
            ({"model": None}, "model is a NoneType; it should be the nn.Module"),
            ({"scaler": True}, "scaler is a bool; it should be a torch.amp.GradScaler or None"),
            ({"optimizer": [SGD(toy().parameters(), lr=0.1)]}, "optimizer is a list; it should be one of torch.optim"),
            ({"optimizer": torch.optim.LBFGS(toy().parameters())}, "optimizer is a LBFGS; .* and not LBFGS"),
        ],
    )
    def test_arguments_of_the_wrong_kind_are_named(self, keys, text):
        network = toy()
        arguments = {"optimizer": SGD(network.parameters(), lr=0.1), "model": network, **keys}
        with pytest.raises(TypeError, match=text):
            GradientWindow(arguments.pop("optimizer"), **arguments)

    @pytest.mark.parametrize("clip", [0.0, -1.0, float("nan")])
    def test_a_clip_that_is_no_norm_is_refused(self, clip):
        with pytest.raises(ValueError, match="not a positive norm; None leaves gradients"):
            GradientWindow(SGD(toy().parameters(), lr=0.1), model=toy(), clip=clip)

    def test_a_window_is_not_opened_over_an_open_one(self):
        window = GradientWindow(SGD(toy().parameters(), lr=0.1), model=toy())
        window.open()
        with pytest.raises(RuntimeError, match="still open"):
            window.open()


def enter(window):
    with window.micro_batch(last=False):
        pass


class TestReport:
    @pytest.mark.parametrize("sizes", CUTS)
    def test_reported_losses_are_means_over_the_window_for_every_cut(self, sizes):
        def loss(out):
            whole = error_over_hits(out)
            return LossSum(whole.total, whole.normalizer, {"a": whole.total.detach() / 4, "b": 3 * whole.total / 4})

        report, *_ = train(toy(), [sizes], loss=loss)
        whole = error_over_hits(toy()(images()))
        mean = (whole.total / whole.normalizer).item()
        assert report.losses() == {"a": pytest.approx(mean / 4), "b": pytest.approx(3 * mean / 4)}
        assert report.num_images == 8

    def test_the_norm_is_that_of_the_whole_gradient_before_clipping(self):
        free, *_ = train(toy(), [(4, 4)], clip=None)
        clipped, *_ = train(toy(), [(4, 4)], clip=1e-3)
        assert free.grad_norm == clipped.grad_norm > 1e-3

    @pytest.mark.parametrize("loss", [error_over_hits, lambda out: error_over_hits(out / 0)])
    def test_votes_come_back_whether_the_window_is_applied_or_not(self, loss):
        asked = []

        def votes():
            asked.append(len(asked))
            return [len(asked), 0.0, 1.0]

        reports = train(toy(), [(4, 4), (8,)], loss=loss, votes=votes)
        assert [report.votes for report in reports] == [(1.0, 0.0, 1.0), (2.0, 0.0, 1.0)]
        assert len(asked) == 2  # once a window, however many micro-batches

    def test_votes_are_not_mistaken_for_statistics_that_are_not_finite(self):
        (report,) = train(nn.Sequential(toy(), nn.BatchNorm1d(3).double()), [(8,)], votes=lambda: [1.0])
        assert (report.applied, report.is_forward_finite, report.votes) == (True, True, (1.0,))

    def test_without_votes_there_are_none(self):
        (report,) = train(toy(), [(8,)])
        assert report.votes == ()


def test_the_example_in_the_docstring_runs():
    source = re.search(r"\n    window = .*?\n\n?(?=\"\"\"|$)", window_module.__doc__ + "\n", re.DOTALL).group()
    network = toy()
    before = network.weight.clone()
    names = {
        "GradientWindow": GradientWindow,
        "plan_windows": __import__("visiontrain").plan_windows,
        "optimizer": SGD(network.parameters(), lr=0.1),
        "model": network,
        "data": range(20),
        "images": images(),
        "targets": None,
        "criterion": lambda out, _: error_over_hits(out),
    }
    exec(textwrap.dedent(source), names)
    assert names["report"].applied
    assert not torch.equal(network.weight, before)
