"""The classification losses: torch's own means, cut anyhow; focal against its formula; shares, padding, refusals."""

import math

import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, logsigmoid
from torchvision.ops import sigmoid_focal_loss

from visiontrain.data.collate import collate_classification
from visiontrain.engine.window import GradientWindow
from visiontrain.errors import ConfigError
from visiontrain.losses.classification import ClassificationCriterion, target_shares
from visiontrain.models.build import build_network
from visiontrain.sample import Batch

NUM_CLASSES = 5
WEIGHTS = (1.0, 20.0, 0.05, 0.0, 3.0)
SIZE = 32
NAMES = ("a", "b", "c", "d", "e")


def random_logits(count=12, dtype=torch.float64, scale=3.0):
    generator = torch.Generator().manual_seed(0)
    return (torch.randn(count, NUM_CLASSES, generator=generator, dtype=torch.float64) * scale).to(dtype)


def batch_of(classes, shares=None):
    """Images of these classes, -1 for padding; a share of 1 for each class unless given."""
    classes = torch.as_tensor(classes)
    classes = classes if classes.ndim == 2 else classes[:, None]
    shares = (classes >= 0).float() if shares is None else torch.as_tensor(shares, dtype=torch.float32)
    count = len(classes)
    generator = torch.Generator().manual_seed(1)
    return Batch(
        images=torch.randint(0, 256, (count, 3, SIZE, SIZE), generator=generator, dtype=torch.uint8),
        targets={"classes": classes, "shares": shares},
        paths=("",) * count,
        indices=tuple(range(count)),
        original_sizes=((SIZE, SIZE),) * count,
        matrices=torch.eye(3).expand(count, 3, 3),
    )


def hard(count=12):
    return batch_of(torch.randint(0, NUM_CLASSES, (count,), generator=torch.Generator().manual_seed(2)))


def mixed(count=12):
    """Two classes an image, by mix-up; some images are mixed with one of their own class, some not at all."""
    generator = torch.Generator().manual_seed(3)
    classes = torch.randint(0, NUM_CLASSES, (count, 2), generator=generator)
    share = torch.rand(count, generator=generator)
    classes[:2, 1] = classes[:2, 0]
    shares = torch.stack([share, 1 - share], dim=1)
    classes[2, 1], shares[2] = -1, torch.tensor([1.0, 0.0])
    return batch_of(classes, shares)


def several(count=12):
    """No class, one or more, in any order."""
    generator = torch.Generator().manual_seed(4)
    is_class = torch.rand(count, NUM_CLASSES, generator=generator) < 0.3
    is_class[0] = False
    classes = torch.where(is_class, torch.arange(NUM_CLASSES), -1)
    return batch_of(classes.flip(1))


def mean(criterion, logits, batch):
    loss = criterion(logits, batch)
    return loss.total / loss.normalizer


def assert_same_loss_and_gradient(ours, theirs, logits, *, rtol=1e-12):
    values, gradients = [], []
    for compute in (ours, theirs):
        leaf = logits.clone().requires_grad_()
        value = compute(leaf)
        value.backward()
        values.append(value.detach())
        gradients.append(leaf.grad)
    torch.testing.assert_close(values[0], values[1], rtol=rtol, atol=0)
    torch.testing.assert_close(gradients[0], gradients[1], rtol=rtol, atol=1e-15)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_cross_entropy_of_hard_labels_is_the_mean_of_torch(weights, smoothing):
    batch = hard()
    criterion = ClassificationCriterion(num_classes=NUM_CLASSES, class_weights=weights, label_smoothing=smoothing)
    weight = None if weights is None else torch.tensor(weights, dtype=torch.float64)
    assert_same_loss_and_gradient(
        lambda logits: mean(criterion, logits, batch),
        lambda logits: cross_entropy(logits, batch.targets["classes"][:, 0], weight=weight, label_smoothing=smoothing),
        random_logits(),
    )


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy_of_mixed_images_is_the_mean_of_torch_over_soft_targets(smoothing):
    batch = mixed()
    criterion = ClassificationCriterion(num_classes=NUM_CLASSES, label_smoothing=smoothing)
    targets = target_shares(batch, random_logits())
    assert_same_loss_and_gradient(
        lambda logits: mean(criterion, logits, batch),
        lambda logits: cross_entropy(logits, targets, label_smoothing=smoothing),
        random_logits(),
        rtol=1e-6,  # shares are float32, so λ and 1 - λ add up to 1 within their rounding
    )


def test_a_mixed_image_counts_as_its_two_images_each_for_its_share():
    criterion = ClassificationCriterion(num_classes=NUM_CLASSES, class_weights=WEIGHTS, label_smoothing=0.1)
    logits = random_logits(1)
    whole = criterion(logits, batch_of([[1, 4]], [[0.25, 0.75]]))
    first, second = (criterion(logits, batch_of([[label]])) for label in (1, 4))
    torch.testing.assert_close(whole.total, 0.25 * first.total + 0.75 * second.total, rtol=1e-12, atol=0)
    assert whole.normalizer.item() == pytest.approx(0.25 * WEIGHTS[1] + 0.75 * WEIGHTS[4])


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_binary_cross_entropy_is_the_mean_of_torch_over_images_and_classes(weights, smoothing):
    batch = several()
    criterion = ClassificationCriterion(
        "bce", num_classes=NUM_CLASSES, multi_label=True, class_weights=weights, label_smoothing=smoothing
    )
    targets = target_shares(batch, random_logits()) * (1 - smoothing) + smoothing / 2
    weight = None if weights is None else torch.tensor(weights, dtype=torch.float64)
    assert_same_loss_and_gradient(
        lambda logits: mean(criterion, logits, batch),
        lambda logits: binary_cross_entropy_with_logits(logits, targets, weight=weight),
        random_logits(),
    )


@pytest.mark.parametrize("gamma", [0.0, 0.5, 2.0])
def test_the_focal_loss_of_several_classes_is_that_of_torchvision(gamma):
    batch = several()
    criterion = ClassificationCriterion("focal", num_classes=NUM_CLASSES, multi_label=True, gamma=gamma)
    targets = target_shares(batch, random_logits())
    assert_same_loss_and_gradient(
        lambda logits: mean(criterion, logits, batch),
        lambda logits: sigmoid_focal_loss(logits, targets, alpha=-1, gamma=gamma, reduction="mean"),
        random_logits(),
        rtol=1e-9,
    )


@pytest.mark.parametrize("gamma", [0.0, 0.5, 2.0])
def test_the_focal_loss_of_one_class_is_its_formula(gamma):
    batch, logits = hard(), random_logits()
    loss = ClassificationCriterion("focal", num_classes=NUM_CLASSES, class_weights=WEIGHTS, gamma=gamma)(logits, batch)
    total = normalizer = 0.0
    for row, (label,) in zip(logits.tolist(), batch.targets["classes"].tolist(), strict=True):
        p = math.exp(row[label]) / sum(map(math.exp, row))
        total += WEIGHTS[label] * (1 - p) ** gamma * -math.log(p)
        normalizer += WEIGHTS[label]
    assert loss.total.item() == pytest.approx(total, rel=1e-12)
    assert loss.normalizer.item() == pytest.approx(normalizer, rel=1e-12)


@pytest.mark.parametrize("gamma", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("multi_label", [False, True])
def test_the_focal_loss_and_its_gradient_are_finite_however_sure_the_network_is(multi_label, gamma):
    criterion = ClassificationCriterion("focal", num_classes=NUM_CLASSES, multi_label=multi_label, gamma=gamma)
    logits = torch.zeros(4, NUM_CLASSES)
    logits[:, 1] = torch.tensor([1e4, 120.0, 40.0, 17.0])
    for sign in (1, -1):
        leaf = (sign * logits).requires_grad_()
        total = criterion(leaf, batch_of([1] * 4)).total
        total.backward()
        assert total.isfinite()
        assert leaf.grad.isfinite().all()


def test_the_focal_loss_of_several_labels_keeps_its_digits_however_sure_the_network_is():
    """Where p is nearly 1, 1 - p has none left in single precision."""
    criterion = ClassificationCriterion("focal", num_classes=NUM_CLASSES, multi_label=True, gamma=0.5)
    logits = torch.full((1, NUM_CLASSES), -8.0, dtype=torch.float64)
    logits[0, 1] = 8.0
    exact = criterion(logits, batch_of([1])).total.item()
    assert criterion(logits.float(), batch_of([1])).total.item() == pytest.approx(exact, rel=1e-5, abs=0)


def test_the_focal_loss_of_one_label_loses_no_more_digits_than_the_cross_entropy():
    criterion = ClassificationCriterion("focal", num_classes=NUM_CLASSES, gamma=0.5)
    logits = torch.full((1, NUM_CLASSES), -6.0)
    logits[0, 1] = 6.0
    log_probability = logits.log_softmax(dim=1)[0, 1].double()
    exact = (-log_probability * (-torch.expm1(log_probability)) ** 0.5).item()
    assert criterion(logits, batch_of([1])).total.item() == pytest.approx(exact, rel=1e-5, abs=0)


@pytest.mark.parametrize("settings", [{"loss": "bce"}, {"loss": "focal"}])
def test_of_several_classes_none_is_more_than_wholly_there(settings):
    criterion = ClassificationCriterion(num_classes=NUM_CLASSES, multi_label=True, **settings)
    logits = random_logits(1)
    twice, once = (criterion(logits, batch) for batch in (batch_of([[1, 1]], [[0.75, 0.75]]), batch_of([[1]])))
    torch.testing.assert_close(twice.total, once.total, rtol=1e-12, atol=0)


CASES = {
    "class weights": (hard, {"class_weights": WEIGHTS}),
    "class weights, label smoothing": (hard, {"class_weights": WEIGHTS, "label_smoothing": 0.1}),
    "mix-up": (mixed, {}),
    "mix-up, class weights, label smoothing": (mixed, {"class_weights": WEIGHTS, "label_smoothing": 0.1}),
    "several labels": (several, {"loss": "bce", "multi_label": True}),
    "several labels, class weights, label smoothing": (
        several,
        {"loss": "bce", "multi_label": True, "class_weights": WEIGHTS, "label_smoothing": 0.1},
    ),
    "focal": (mixed, {"loss": "focal", "class_weights": WEIGHTS}),
    "focal, several labels": (several, {"loss": "focal", "multi_label": True}),
}


class Recording(torch.optim.SGD):
    """Keeps the gradient that it is given, and moves nothing."""

    def step(self, closure=None):
        self.gradient = torch.cat([param.grad.flatten() for param in self.param_groups[0]["params"]])


TINY = {"layers": [[-1, 1, "Conv", [16, 3, 4]], [-1, 1, "CSPStage", [16, True]], [-1, 1, "Classify", [32]]]}


def network_of(spec):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return build_network(spec, NAMES).double().eval()


@pytest.mark.parametrize("name", CASES)
def test_the_update_of_a_window_is_that_of_the_full_batch_however_it_is_cut(name):
    make, settings = CASES[name]
    network = network_of("cls-n" if name == "mix-up, class weights, label smoothing" else TINY)
    batch, criterion = make(), ClassificationCriterion(num_classes=NUM_CLASSES, **settings)
    network.zero_grad()
    mean(criterion, network(batch.images), batch).backward()
    wanted = torch.cat([param.grad.flatten() for param in network.parameters()])
    for most in (1, 5, 12):
        optimizer = Recording(network.parameters(), lr=0.0)
        window = GradientWindow(optimizer, model=network)
        for part in batch.split(most):
            with window.micro_batch(last=part.is_last):
                window.add(criterion(network(part.images), part), num_images=len(part))
        assert window.step().applied
        assert (optimizer.gradient - wanted).norm() <= 1e-9 * wanted.norm(), most


def test_the_mean_of_means_would_be_another_gradient():
    """So the comparison above can fail."""
    batch, criterion = hard(), ClassificationCriterion(num_classes=NUM_CLASSES, class_weights=WEIGHTS)
    logits = random_logits()
    parts = zip(batch.split(4), logits.split(4), strict=True)
    of_means = sum(mean(criterion, rows, part) for part, rows in parts) / 3
    assert abs(of_means / mean(criterion, logits, batch) - 1) > 0.05


@pytest.mark.parametrize("name", CASES)
def test_a_batch_without_images_has_sums_of_zero_that_hang_on_every_parameter(name):
    network, batch = network_of(TINY), collate_classification([])
    loss = ClassificationCriterion(num_classes=NUM_CLASSES, **CASES[name][1])(network(batch.images), batch)
    assert [value.item() for value in (loss.total, loss.normalizer, loss.parts["loss"])] == [0.0] * 3
    loss.total.backward()
    assert all(param.grad is not None and not param.grad.any() for param in network.parameters())


def test_a_window_of_classes_without_weight_is_left_out_and_makes_no_nan():
    criterion = ClassificationCriterion(num_classes=2, class_weights=(0, 0))
    network = torch.nn.Linear(3, 2)
    before = network.weight.detach().clone()
    window = GradientWindow(torch.optim.SGD(network.parameters(), lr=1.0), model=network)
    with window.micro_batch(last=True):
        loss = criterion(network(torch.ones(2, 3)), batch_of([0, 1]))
        window.add(loss)
    assert (loss.total.item(), loss.normalizer.item()) == (0, 0)
    assert not window.step().applied
    assert torch.equal(network.weight, before)


@pytest.mark.parametrize("settings", [{}, {"loss": "bce", "multi_label": True}, {"loss": "focal"}])
def test_padding_changes_nothing(settings):
    criterion = ClassificationCriterion(num_classes=NUM_CLASSES, label_smoothing=0.1, **settings)
    plain, logits = mixed(), random_logits()
    classes, shares = plain.targets["classes"], plain.targets["shares"]
    padded = batch_of(
        torch.cat([classes, torch.full((12, 3), -1)], dim=1), torch.cat([shares, torch.zeros(12, 3)], dim=1)
    )
    for name in ("total", "normalizer"):
        assert torch.equal(getattr(criterion(logits, plain), name), getattr(criterion(logits, padded), name))


def test_an_image_without_a_label_counts_only_where_each_class_is_decided_for_itself():
    logits, labelled, bare = random_logits(2), batch_of([[1], [2]]), batch_of([[1], [-1]])
    one = ClassificationCriterion(num_classes=NUM_CLASSES, label_smoothing=0.1)
    loss = one(logits, bare)
    assert loss.normalizer == 1
    torch.testing.assert_close(loss.total, one(logits[:1], batch_of([[1]])).total)
    binary = ClassificationCriterion("bce", num_classes=NUM_CLASSES, multi_label=True)
    assert binary(logits, bare).normalizer == binary(logits, labelled).normalizer == 2 * NUM_CLASSES
    expected = binary(logits[:1], batch_of([[1]])).total - logsigmoid(-logits[1]).sum()
    torch.testing.assert_close(binary(logits, bare).total, expected)


@pytest.mark.parametrize(("dtype", "computed"), [(torch.bfloat16, torch.float32), (torch.float64, torch.float64)])
@pytest.mark.parametrize("loss", ["cross_entropy", "bce", "focal"])
def test_sums_are_taken_in_single_precision_or_better_and_the_normalizer_in_double(loss, dtype, computed):
    criterion = ClassificationCriterion(loss, num_classes=NUM_CLASSES, class_weights=(0.1,) * NUM_CLASSES)
    sums = criterion(random_logits(dtype=dtype), hard())
    assert (sums.total.dtype, sums.normalizer.dtype) == (computed, torch.float64)
    assert sums.floor == 0
    assert not sums.parts["loss"].requires_grad
    criterion(random_logits(dtype=torch.float32), hard())
    exact = criterion(random_logits(), hard()).normalizer  # weights come back in full precision
    assert exact.item() == pytest.approx(1.2 if loss != "bce" else 60, rel=1e-15)


def test_the_scale_hint_is_what_an_image_brings_on_average():
    def hint(loss="cross_entropy", **settings):
        return ClassificationCriterion(loss, num_classes=4, **settings)(torch.zeros(1, 4), batch_of([0])).scale_hint

    assert hint() == 1
    assert hint(class_weights=(1, 2, 3, 6)) == 3
    assert hint(class_weights=(0, 0, 0, 0)) == 1
    assert hint("bce", class_weights=(1, 2, 3, 6)) == 4


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"loss": "mse"}, "loss = 'mse': .* one of cross_entropy, bce, focal"),
        ({"multi_label": True}, "loss = cross_entropy: .* use loss=bce or loss=focal"),
        ({"class_weights": (1, 2)}, "class_weights: 2 are given for 5 classes"),
        ({"class_weights": (1, 2, -1, 1, 1)}, "class_weights: .* should be numbers from 0"),
        ({"class_weights": (1, 2, math.nan, 1, 1)}, "class_weights: .* should be numbers from 0"),
        ({"class_weights": (1, 2, math.inf, 1, 1)}, "class_weights: .* should be numbers from 0"),
        ({"label_smoothing": 1.5}, "label_smoothing = 1.5: should lie between 0 and 1"),
        ({"gamma": -1.0}, "focal_gamma = -1.0: should be a number from 0"),
        ({"gamma": math.inf}, "focal_gamma = inf: should be a number from 0"),
    ],
)
def test_settings_that_make_no_loss_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        ClassificationCriterion(num_classes=NUM_CLASSES, **settings)


def test_all_faults_are_told_at_once():
    with pytest.raises(ConfigError) as caught:
        ClassificationCriterion("mse", num_classes=2, class_weights=(1,), label_smoothing=2.0, gamma=-1.0)
    assert len(caught.value.faults) == 4
