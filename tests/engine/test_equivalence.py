"""The comparison of a cut window with one full batch, on networks that are small enough to check by hand."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from visiontrain.engine.equivalence import (
    TOLERANCE,
    Setting,
    compare,
    compare_cuts,
    plain_gradient,
    settings_of,
    windowed_gradient,
    windowed_gradient_with_means,
)
from visiontrain.engine.precision import choose_precision
from visiontrain.losses.sums import LossSum
from visiontrain.sample import Batch

CPU = torch.device("cpu")
GAIN = 8.0
COUNTS = [4, 0, 1, 9, 2, 2, 0, 7]
"""What each image weighs: as different as box counts are."""


def batch_of(counts=COUNTS) -> Batch:
    generator = torch.Generator().manual_seed(1)
    num_images = len(counts)
    return Batch(
        images=torch.randint(0, 256, (num_images, 3, 6, 6), generator=generator, dtype=torch.uint8),
        targets={
            "classes": torch.randint(0, 2, (num_images,), generator=generator),
            "weights": torch.tensor(counts, dtype=torch.float32),
        },
        paths=("",) * num_images,
        indices=tuple(range(num_images)),
        original_sizes=((6, 6),) * num_images,
        matrices=torch.eye(3).expand(num_images, 3, 3),
    )


class Toy(nn.Module):
    def __init__(self, *, dropout: float = 0.0, norm: bool = True) -> None:
        super().__init__()
        generator_state = torch.random.get_rng_state()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(3, 4, 3)
        self.depthwise = nn.Conv2d(4, 4, 3, groups=4)
        self.norm = nn.BatchNorm2d(4) if norm else nn.Identity()
        self.dropout = nn.Dropout(dropout)
        self.left, self.right = nn.Linear(4, 2), nn.Linear(4, 2)
        torch.random.set_rng_state(generator_state)

    def forward(self, images):
        features = self.norm(self.depthwise(self.conv(images.to(self.conv.weight.dtype) / 255))).relu()
        features = self.dropout(features.mean(dim=(2, 3)))
        return self.left(features), self.right(features)


def weighted(outputs, batch) -> LossSum:
    logits = outputs[0] + outputs[1]
    logits = logits if logits.dtype == torch.float64 else logits.float()
    weights = batch.targets["weights"].to(logits.dtype)
    losses = cross_entropy(logits, batch.targets["classes"], reduction="none")
    return LossSum((losses * weights).sum(), weights.sum(), floor=1.0)


def two_branches(outputs, batch) -> list[LossSum]:
    """Only the heads learn, each from a loss of its own, with its own normalizer."""
    left, right = outputs
    losses = cross_entropy(left, batch.targets["classes"], reduction="none")
    weights = batch.targets["weights"].to(left.dtype)
    counted = cross_entropy(right, batch.targets["classes"], reduction="sum")
    return [
        LossSum((losses * weights).sum(), weights.sum(), name="left", floor=1.0),
        LossSum(counted, torch.tensor(float(len(batch))), name="right"),
    ]


def setting_of(network, criterion=weighted, *, amp="False", dtype=torch.float64) -> Setting:
    return Setting(network.to(dtype).eval(), criterion, GAIN, choose_precision(amp, CPU), CPU)


def heads_alone() -> Toy:
    network = Toy()
    for part in (network.conv, network.depthwise, network.norm):
        part.requires_grad_(False)
    return network


def joined(gradient):
    return torch.cat(list(gradient.values()))


def equivalence_of(network, criterion=weighted, *, cut=3, counts=COUNTS, is_trained=False, **fits):
    whole = batch_of(counts)
    micro_batches = whole.split(cut)
    settings = settings_of(
        network,
        lambda _: criterion,
        micro_batches,
        gain=GAIN,
        precision=choose_precision("False", CPU),
        device=CPU,
        is_trained=is_trained,
    )
    return compare_cuts(settings, micro_batches, whole, whole_fits=True, live_fits=True, **fits)


@pytest.mark.parametrize("cut", [1, 2, 3, 8])
@pytest.mark.parametrize(("make", "criterion"), [(Toy, weighted), (heads_alone, two_branches)])
def test_a_window_gives_the_gradient_of_plain_torch(make, criterion, cut):
    setting = setting_of(make(), criterion)
    reference = plain_gradient(setting, [batch_of()])
    found = compare(windowed_gradient(setting, batch_of().split(cut)), reference)
    assert joined(reference).norm() > 0
    assert found.rel_error <= 1e-14
    assert found.cosine == pytest.approx(1.0)
    assert all(group.is_exact for group in found.groups.values())


@pytest.mark.parametrize(("make", "criterion"), [(Toy, weighted), (heads_alone, two_branches)])
def test_the_reference_is_the_gradient_of_the_mean_loss(make, criterion):
    network = make()
    setting = setting_of(network, criterion)
    losses = criterion(network(batch_of().images), batch_of())
    for branch in losses if isinstance(losses, list) else [losses]:
        (GAIN * branch.total / branch.normalizer).backward()
    found = plain_gradient(setting, [batch_of()])
    assert set(found) == (
        {"weights", "depthwise", "norms", "biases"} if criterion is weighted else {"weights", "biases"}
    )
    expected = torch.cat([network.left.weight.grad.flatten(), network.right.weight.grad.flatten()])
    torch.testing.assert_close(found["weights"][-len(expected) :], expected, rtol=1e-12, atol=0)


def test_sums_over_single_images_are_a_reference_too():
    setting = setting_of(Toy())
    found = compare(plain_gradient(setting, batch_of().split(1)), plain_gradient(setting, [batch_of()]))
    assert found.rel_error <= 1e-14


@pytest.mark.parametrize(("make", "criterion"), [(Toy, weighted), (heads_alone, two_branches)])
def test_the_mean_of_means_is_that_of_each_micro_batch_alone(make, criterion):
    setting = setting_of(make(), criterion)
    parts = batch_of().split(3)
    gradient, means = windowed_gradient_with_means(setting, parts)
    alone = [joined(plain_gradient(setting, [part])) for part in parts]
    torch.testing.assert_close(joined(means), torch.stack(alone).mean(dim=0), rtol=1e-10, atol=1e-14)
    assert joined(gradient).equal(joined(windowed_gradient(setting, parts)))


def test_equal_counts_make_the_mean_of_means_right_and_unequal_ones_do_not():
    assert equivalence_of(Toy(), cut=2, counts=[3] * 8).mean_of_means.rel_error <= 1e-12
    assert equivalence_of(Toy(), cut=2).mean_of_means.rel_error > 0.02


def test_dropout_and_live_statistics_spoil_only_their_own_row():
    with torch.random.fork_rng(devices=[]):
        found = equivalence_of(Toy(dropout=0.5))
    assert found.passed
    assert found.exact.rel_error <= TOLERANCE
    assert found.precision.rel_error <= 1e-5
    assert found.batchnorm.rel_error > 0.02


def test_a_network_that_sees_images_one_by_one_has_nothing_live_to_lose():
    found = equivalence_of(Toy(norm=False))
    assert found.batchnorm.rel_error <= 1e-5


def test_the_network_is_left_as_it_was():
    network = Toy().train()
    before = copy.deepcopy(network.state_dict())
    equivalence_of(network)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert all(module.training for module in network.modules())
    assert all(param.grad is None for param in network.parameters())


def test_a_fresh_network_gets_statistics_of_the_window_and_a_trained_one_keeps_its_own():
    def frozen(is_trained):
        settings = settings_of(
            Toy(),
            lambda _: weighted,
            batch_of().split(4),
            gain=GAIN,
            precision=choose_precision("False", CPU),
            device=CPU,
            is_trained=is_trained,
        )
        return settings.exact.network.norm.running_mean, settings.live.network.norm.running_mean

    network = Toy()
    features = network.depthwise(network.conv(batch_of().images / 255))
    estimated, live = frozen(is_trained=False)
    torch.testing.assert_close(estimated, features.mean(dim=(0, 2, 3)).double(), rtol=1e-5, atol=1e-6)
    assert not live.any()
    kept, _ = frozen(is_trained=True)
    assert not kept.any()


def test_images_that_cannot_be_read_leave_an_empty_micro_batch_that_changes_nothing():
    setting = setting_of(Toy())
    empty = batch_of([])
    parts = [*batch_of().split(4), empty]
    found = compare(windowed_gradient(setting, parts), plain_gradient(setting, [batch_of()]))
    assert found.is_exact


def test_without_room_for_a_full_batch_single_images_are_compared_with():
    whole = batch_of()
    settings = settings_of(
        Toy(),
        lambda _: weighted,
        whole.split(3),
        gain=GAIN,
        precision=choose_precision("False", CPU),
        device=CPU,
        is_trained=False,
    )
    sizes = []
    settings.exact.network.register_forward_pre_hook(lambda _, inputs: sizes.append(len(inputs[0])))
    found = compare_cuts(settings, whole.split(3), whole, whole_fits=False, live_fits=False)
    assert max(sizes) == 3
    assert found.passed
    assert found.batchnorm is None


def test_half_precision_finds_its_scale_and_agrees_to_its_rounding():
    setting = setting_of(Toy(norm=False), amp="fp16", dtype=torch.float32)
    reference = plain_gradient(setting_of(Toy(norm=False)), [batch_of()])
    for gradient in (plain_gradient(setting, [batch_of()]), windowed_gradient(setting, batch_of().split(3))):
        assert compare(gradient, reference).rel_error < 0.05


@pytest.mark.parametrize("cut", [2, 8])
def test_a_scale_that_is_far_too_high_is_come_down_from(cut):
    def steep(outputs, batch):
        sums = weighted(outputs, batch)
        return LossSum(sums.total * 1e4, sums.normalizer, floor=1.0)

    setting = setting_of(Toy(norm=False), steep, amp="fp16", dtype=torch.float32)
    reference = plain_gradient(setting_of(Toy(norm=False), steep), [batch_of()])
    assert compare(plain_gradient(setting, [batch_of()]), reference).rel_error < 0.05
    assert compare(windowed_gradient(setting, batch_of().split(cut)), reference).rel_error < 0.05


def test_a_window_in_which_nothing_counts_moves_nothing_on_either_side():
    def no_floor(outputs, batch):
        sums = weighted(outputs, batch)
        return LossSum(sums.total, sums.normalizer)

    found = equivalence_of(Toy(), no_floor, counts=[0] * 8)
    assert found.passed
    assert found.exact.rel_error == found.mean_of_means.rel_error == 0


def test_a_loss_that_is_not_finite_never_passes():
    def broken(outputs, batch):
        sums = weighted(outputs, batch)
        return LossSum(sums.total * math.inf, sums.normalizer, floor=1.0)

    found = equivalence_of(Toy(), broken)
    assert math.isnan(found.exact.rel_error)
    assert not found.passed


@pytest.mark.parametrize(
    ("gradient", "reference", "error", "cosine", "ratio"),
    [
        ([3.0, 4.0], [3.0, 4.0], 0.0, 1.0, 1.0),
        ([6.0, 8.0], [3.0, 4.0], 1.0, 1.0, 2.0),
        ([-4.0, 3.0], [3.0, 4.0], math.sqrt(2), 0.0, 1.0),
        ([0.0, 0.0], [0.0, 0.0], 0.0, 1.0, 1.0),
        ([1.0, 0.0], [0.0, 0.0], math.inf, 0.0, math.inf),
        ([0.0, 0.0], [3.0, 4.0], 1.0, 0.0, 0.0),
        ([3e-200, 4e-200], [3e-200, 4e-200], 0.0, 1.0, 1.0),
    ],
)
def test_error_cosine_and_ratio_of_two_gradients(gradient, reference, error, cosine, ratio):
    wide = {"weights": torch.tensor(gradient, dtype=torch.float64), "biases": torch.zeros(1, dtype=torch.float64)}
    other = {"weights": torch.tensor(reference, dtype=torch.float64), "biases": torch.zeros(1, dtype=torch.float64)}
    found = compare(wide, other)
    for numbers in (found, found.groups["weights"]):
        assert numbers.rel_error == pytest.approx(error)
        assert numbers.cosine == pytest.approx(cosine)
        assert numbers.norm_ratio == pytest.approx(ratio)
    assert found.groups["biases"].rel_error == 0


def test_a_branch_that_has_no_target_in_a_micro_batch_is_a_constant_there():
    def without_targets(outputs, batch):
        left, right = two_branches(outputs, batch)
        has_targets = bool((batch.targets["weights"] > 0).any())
        return [left if has_targets else LossSum(torch.zeros(()), 0.0, name="left", floor=1.0), right]

    setting = setting_of(heads_alone(), without_targets)
    micro_batches = batch_of((0, 0, 0, 3, 1, 2)).split(2)  # the first has none, and a mean of means counts it as 0
    exact, means = windowed_gradient_with_means(setting, micro_batches)
    reference = plain_gradient(setting, [batch_of((0, 0, 0, 3, 1, 2))])
    assert compare(exact, reference).is_exact
    assert compare(plain_gradient(setting, micro_batches), reference).is_exact
    assert not compare(means, reference).is_exact
