"""The noise scale: it is the ratio it claims to be, does not depend on units, and leaves the update alone."""

import math

import pytest
import torch
from torch import nn
from torch.optim import SGD

from visiontrain.engine.noise import NoiseScale, advice
from visiontrain.engine.window import GradientWindow
from visiontrain.losses.sums import LossSum

DIMENSIONS = 16


class Linear(nn.Module):
    """The gradient of an image's loss, `images @ weight`, is the image itself."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(DIMENSIONS, dtype=torch.float64))
        self.other = nn.Parameter(torch.zeros(DIMENSIONS, dtype=torch.float64))

    def forward(self, images):
        return images @ self.weight


def images_of(num_images, *, mean, spread, seed=0):
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(num_images, DIMENSIONS, dtype=torch.float64, generator=generator)
    return mean / math.sqrt(DIMENSIONS) + spread * noise


def measure(images, *, cut=(2, 2, 4), counts=None, gain=1.0, noise=None, scaler=None, branches=1):
    """What is measured over windows of the images, cut into micro-batches of the given sizes."""
    network, noise = Linear(), noise or NoiseScale()
    window = GradientWindow(
        SGD(network.parameters(), lr=0.0), model=network, gain=gain, noise=noise, scaler=scaler, clip=1e-3
    )
    counts = torch.ones(len(images), dtype=torch.float64) if counts is None else counts
    for start in range(0, len(images), sum(cut)):
        parts = images[start : start + sum(cut)].split(list(cut))
        for number, (part, count) in enumerate(
            zip(parts, counts[start : start + sum(cut)].split(list(cut)), strict=True)
        ):
            with window.micro_batch(last=number == len(cut) - 1):
                losses = [LossSum((network(part) * count).sum(), count.sum())]
                if branches == 2:
                    losses.append(LossSum((part @ network.other).sum(), torch.tensor(float(len(part))), name="other"))
                window.add(losses, num_images=len(part))
        window.step()
    return noise.estimate()


@pytest.mark.parametrize("cut", [(1,) * 8, (3, 3, 2)])
@pytest.mark.parametrize(("mean", "spread"), [(1.0, 0.5), (2.0, 0.25), (1.0, 1.0)])
def test_it_is_the_trace_of_the_covariance_over_the_squared_length_of_the_mean(cut, mean, spread):
    images = images_of(1_600, mean=mean, spread=spread)
    expected = DIMENSIONS * spread**2 / mean**2
    assert measure(images, cut=cut) == pytest.approx(expected, rel=0.25)


def test_neither_the_gain_nor_the_scale_nor_the_clip_moves_it():
    images = images_of(800, mean=1.0, spread=0.5)
    plain = measure(images)
    assert measure(images, gain=64.0) == pytest.approx(plain)
    assert measure(images, scaler=torch.amp.GradScaler("cpu")) == pytest.approx(plain)
    assert measure(images * 1000) == pytest.approx(plain)


def test_equal_normalizers_count_as_images_whatever_they_are():
    images = images_of(800, mean=1.0, spread=0.5)
    counts = torch.full((800,), 7.0, dtype=torch.float64)
    assert measure(images, counts=counts) == pytest.approx(measure(images))


def test_targets_that_all_pull_the_same_way_are_no_noise_however_they_are_spread_over_images():
    images = images_of(800, mean=1.0, spread=0.0)
    counts = torch.arange(800, dtype=torch.float64) % 5  # the gradient of an image is its count times the same vector
    assert measure(images, counts=counts) in (None, pytest.approx(0.0, abs=1e-12))


def test_branches_are_measured_together():
    images = images_of(1_600, mean=1.0, spread=0.5)
    assert measure(images, branches=2) == pytest.approx(measure(images))  # both twice as large


def test_pure_noise_has_an_infinite_noise_scale():
    pairs = images_of(1_600, mean=0.0, spread=1.0).repeat_interleave(2, dim=0)
    signs = torch.tensor([1.0, -1.0], dtype=torch.float64).repeat(1_600)
    assert measure(pairs * signs[:, None], cut=(1, 7)) == math.inf  # every window's gradient is 0


def test_windows_of_one_micro_batch_tell_nothing():
    assert measure(images_of(80, mean=1.0, spread=1.0), cut=(8,)) is None


def test_a_window_of_which_the_first_micro_batch_alone_could_be_read_tells_nothing():
    network, noise = Linear(), NoiseScale()
    window = GradientWindow(SGD(network.parameters(), lr=0.0), model=network, noise=noise)
    with window.micro_batch(last=False):
        window.add(LossSum(network(images_of(2, mean=1.0, spread=1.0)).sum(), 2.0), num_images=2)
    assert window.step().applied
    assert noise.estimate() is None


def test_a_window_that_is_not_applied_is_not_counted():
    images = images_of(80, mean=1.0, spread=0.5)
    broken = images.clone()
    broken[11] = float("nan")  # in the second window
    assert measure(broken) == pytest.approx(measure(torch.cat([images[:8], images[16:]])))


def test_earlier_epochs_count_less_but_are_not_forgotten():
    noise = NoiseScale()
    first = measure(images_of(80, mean=1.0, spread=2.0), noise=noise)
    later = [measure(images_of(80, mean=1.0, spread=0.1, seed=seed), noise=noise) for seed in range(1, 25)]
    assert first > later[0] > later[-1]
    assert later[-1] == pytest.approx(DIMENSIONS * 0.01, rel=1.0)
    assert noise.estimate() == pytest.approx(later[-1])  # nothing new, nothing changed


def test_it_goes_on_from_what_was_saved():
    straight, begun = NoiseScale(), NoiseScale()
    parts = images_of(160, mean=1.0, spread=0.5).split(80)
    for part in parts:
        expected = measure(part, noise=straight)
    measure(parts[0], noise=begun)
    gone_on = NoiseScale()
    gone_on.restore(begun.state())
    assert measure(parts[1], noise=gone_on) == expected


def test_a_normalizer_with_a_graph_keeps_no_graph_alive():
    network, noise = Linear(), NoiseScale()
    window = GradientWindow(SGD(network.parameters(), lr=0.1), model=network, noise=noise)
    for part in images_of(4, mean=1.0, spread=1.0).split(2):
        outputs = network(part)
        window.add(LossSum(outputs.sum(), outputs.square().sum() + 1), num_images=2)
    window.step()
    assert not noise._windows[0].requires_grad


def test_it_needs_to_know_how_many_images_a_micro_batch_holds():
    network = Linear()
    window = GradientWindow(SGD(network.parameters(), lr=0.0), model=network, noise=NoiseScale())
    with pytest.raises(ValueError, match=r"pass num_images= to GradientWindow\.add"), window.micro_batch(last=False):
        window.add(LossSum(network(images_of(2, mean=1.0, spread=1.0)).sum(), 2.0))


def test_measuring_changes_no_bit_of_the_update():
    weights = []
    for noise in (None, NoiseScale()):
        torch.manual_seed(0)
        network = nn.Linear(DIMENSIONS, 3)
        window = GradientWindow(SGD(network.parameters(), lr=0.1), model=network, noise=noise)
        for part in images_of(8, mean=1.0, spread=1.0).float().split(2):
            window.add(LossSum(network(part).square().sum(), float(len(part))), num_images=2)
        window.step()
        weights.append(network.weight.detach())
    assert torch.equal(*weights)


@pytest.mark.parametrize(
    ("noise_scale", "text"),
    [
        (None, "not measured"),
        (10.0, "about 10 images, far below nbs 64: a smaller nbs"),
        (16.0, "about 16 images: nbs 64 fits"),
        (256.0, "nbs 64 fits"),
        (1234.0, "about 1,200 images, far above nbs 64"),
        (0.3, "less than 1 image, far below nbs 64"),
        (math.inf, "beyond measure, far above nbs 64"),
    ],
)
def test_the_advice_compares_it_with_nbs(noise_scale, text):
    assert text in advice(noise_scale, 64)
