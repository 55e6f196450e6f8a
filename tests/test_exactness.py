"""The promise: an accumulated update is the update of the full batch, for real networks and however a window is cut.

The other side of every comparison is plain torch: one forward pass over all images of the window, one division, one
backward pass. `GradientWindow` has no part in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy
from torchvision.models import mobilenet_v3_small
from torchvision.ops import sigmoid_focal_loss

from visiontrain.config.load import load_config
from visiontrain.config.schema import Config
from visiontrain.engine.window import GradientWindow
from visiontrain.losses.detection import DetectionCriterion
from visiontrain.losses.sums import LossSum
from visiontrain.models.build import build_network
from visiontrain.plan import plan_run
from visiontrain.run.samples import open_samples
from visiontrain.sample import Batch
from visiontrain.tasks.classify import CLASSIFY

NUM_IMAGES = 16
SIZE = 32
CUTS = (1, 2, 4, 6, 8, 16)
"""Most images of a micro-batch."""
EXACT = 1e-9
SINGLE_PRECISION = 1e-4

BOX_COUNTS = {
    "even": [3] * 16,
    "skewed": [1, 50, 0, 2, 9, 1, 1, 30, 0, 0, 4, 1, 2, 1, 17, 3],
    "one micro-batch empty": [2] * 8 + [0] * 4 + [5] * 4,
    "mostly background": [0] * 13 + [1, 0, 2],
    "nothing at all": [0] * 16,
}

CLASS_WEIGHTS = (1.0, 20.0, 0.05)
IGNORED = -100  # cross entropy's own mark of an image that does not count
LABELS = {
    "skewed": [1, 1, 1, 1] + [2] * 12,
    "one micro-batch of nothing that counts": [0, 1, 2, 1] * 2 + [IGNORED] * 4 + [0, 2, 2, 2],
    "a single image that counts": [IGNORED] * 13 + [1] + [IGNORED] * 2,
}


@dataclass(frozen=True)
class Subject:
    """A network in evaluation mode (BatchNorm frozen, dropout off), its loss as sums, and the loss as plain torch."""

    network: nn.Module
    criterion: Callable[..., LossSum]
    mean: Callable[..., Tensor]
    gain: float


def detection_mean(outputs, batch: Batch) -> Tensor:
    loss = DetectionCriterion()(outputs, batch)
    return loss.total / max(loss.normalizer.item(), 1.0)


def weighted_cross_entropy(logits: Tensor, batch: Batch) -> LossSum:
    labels, weights = batch.targets["labels"], logits.new_tensor(CLASS_WEIGHTS)
    counted = weights[labels.clamp(min=0)] * (labels != IGNORED)
    return LossSum(cross_entropy(logits, labels, weights, reduction="sum"), counted.sum())


def weighted_mean(logits: Tensor, batch: Batch) -> Tensor:
    return cross_entropy(logits, batch.targets["labels"], logits.new_tensor(CLASS_WEIGHTS))


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.network = mobilenet_v3_small(num_classes=len(CLASS_WEIGHTS))

    def forward(self, images: Tensor) -> Tensor:
        return self.network(images.to(self.network.classifier[0].weight.dtype) / 255)


@pytest.fixture(scope="module")
def detector() -> Subject:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = build_network("det-n", ("a", "b", "c"))
    return Subject(network.eval(), DetectionCriterion(), detection_mean, gain=64.0)


@pytest.fixture(scope="module")
def classifier() -> Subject:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = Classifier()
    return Subject(network.eval(), weighted_cross_entropy, weighted_mean, gain=1.0)


def batch_of(targets: dict[str, Tensor]) -> Batch:
    """Random images with these targets."""
    count = len(next(iter(targets.values())))
    generator = torch.Generator().manual_seed(1)
    return Batch(
        images=torch.randint(0, 256, (count, 3, SIZE, SIZE), generator=generator, dtype=torch.uint8),
        targets=targets,
        paths=("",) * count,
        indices=tuple(range(count)),
        original_sizes=((SIZE, SIZE),) * count,
        matrices=torch.eye(3).expand(count, 3, 3),
    )


def boxes(counts: Sequence[int]) -> Batch:
    """Images with so many boxes each."""
    generator = torch.Generator().manual_seed(0)
    shape = (len(counts), max(counts))
    corners = torch.rand(*shape, 2, generator=generator, dtype=torch.float64) * 16
    sides = 4 + torch.rand(*shape, 2, generator=generator, dtype=torch.float64) * 12
    classes = torch.randint(0, 3, shape, generator=generator)
    is_padding = torch.arange(shape[1])[None] >= torch.tensor(counts)[:, None]
    return batch_of(
        {
            "boxes": torch.cat([corners, corners + sides], dim=-1).masked_fill(is_padding[..., None], 0),
            "classes": classes.masked_fill(is_padding, -1),
        }
    )


def labels(classes: Sequence[int]) -> Batch:
    """Images of these classes."""
    return batch_of({"labels": torch.tensor(classes)})


def pick(batch: Batch, index: Sequence[int], *, is_last: bool) -> Batch:
    """Some images of a batch."""
    return replace(
        batch,
        images=batch.images[list(index)],
        targets={name: tensor[list(index)] for name, tensor in batch.targets.items()},
        paths=tuple(batch.paths[i] for i in index),
        indices=tuple(index),
        original_sizes=tuple(batch.original_sizes[i] for i in index),
        matrices=batch.matrices[list(index)],
        is_last=is_last,
    )


class Recording(torch.optim.SGD):
    """Keeps the gradients that it is given, and moves nothing."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__(network.parameters(), lr=0.0)
        self.network = network
        self.gradients: list[Tensor] = []

    def step(self, closure=None):
        self.gradients.append(gradient_in(self.network))


def gradient_in(network: nn.Module) -> Tensor:
    grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in network.parameters()]
    return torch.cat([grad.flatten() for grad in grads]).double()


def accumulated(subject: Subject, windows: Iterable[Sequence[Batch]]) -> list[Tensor]:
    """The gradient that the optimizer gets in each window, given as micro-batches."""
    optimizer = Recording(subject.network)
    window = GradientWindow(optimizer, model=subject.network, gain=subject.gain)
    for parts in windows:
        window.open(sum(map(len, parts)))
        for part in parts:
            with window.micro_batch(last=part.is_last):
                window.add(subject.criterion(subject.network(part.images), part), num_images=len(part))
        assert window.step().applied
    return optimizer.gradients


def plain(subject: Subject, batch: Batch) -> Tensor:
    """The gradient of the mean over all images at once."""
    subject.network.zero_grad()
    (subject.mean(subject.network(batch.images), batch) * subject.gain).backward()
    gradient = gradient_in(subject.network)
    subject.network.zero_grad()
    assert gradient.norm() > 0
    return gradient


def relative_error(gradient: Tensor, wanted: Tensor) -> float:
    return ((gradient - wanted).norm() / wanted.norm()).item()


def assert_no_cut_matters(subject: Subject, batch: Batch, *, cuts: Iterable[int], most: float) -> None:
    wanted = plain(subject, batch)
    for size in cuts:
        (gradient,) = accumulated(subject, [batch.split(size)])
        assert relative_error(gradient, wanted) <= most, size


@pytest.mark.parametrize("name", BOX_COUNTS)
def test_the_update_of_a_detector_is_that_of_the_full_batch(detector, name):
    detector.network.double()
    assert_no_cut_matters(detector, boxes(BOX_COUNTS[name]), cuts=CUTS, most=EXACT)


@pytest.mark.parametrize("name", LABELS)
@pytest.mark.slow
def test_the_update_of_a_classifier_is_that_of_the_full_batch(classifier, name):
    classifier.network.double()
    assert_no_cut_matters(classifier, labels(LABELS[name]), cuts=CUTS, most=EXACT)


def test_in_single_precision_a_detector_agrees_to_its_rounding(detector):
    detector.network.float()
    assert_no_cut_matters(detector, boxes(BOX_COUNTS["skewed"]), cuts=(1, 4), most=SINGLE_PRECISION)


def test_in_single_precision_a_classifier_agrees_to_its_rounding(classifier):
    classifier.network.float()
    assert_no_cut_matters(classifier, labels(LABELS["skewed"]), cuts=(1, 4), most=SINGLE_PRECISION)


def batches_of_task(task: str, counts: Sequence[int], classes: Sequence[int]) -> Batch:
    return boxes(counts) if task == "detector" else labels(classes)


@pytest.mark.parametrize("task", ["detector", "classifier"])
def test_the_mean_of_means_is_another_gradient(task, request):
    """So the comparisons here can fail: this is what adding up each micro-batch's own mean would give."""
    subject = request.getfixturevalue(task)
    subject.network.double()
    batch = batches_of_task(task, BOX_COUNTS["skewed"], LABELS["skewed"])
    parts = batch.split(4)
    customary = sum(plain(subject, part) for part in parts) / len(parts)
    assert relative_error(customary, plain(subject, batch)) > 0.05


NUM_OF_EPOCH = 22
"""Images that fill one window of 16 and leave 6."""
COUNTS_OF_EPOCH = [3, 0, 0, 0, 0, 0, 0, 0, 41, 1, 1, 2, 0, 7, 1, 3, 0, 0, 0, 0, 5, 2]
CLASSES_OF_EPOCH = [0, 0, 2, 2, 2, 2, 2, 2, 1, IGNORED, 2, 2, 2, 0, 2, 2, 2, IGNORED, 2, 2, 1, 0]


def images_of_run(epochs: int) -> list[int]:
    """The image at each place of a run: every epoch has an order of its own."""
    return [
        index
        for epoch in range(epochs)
        for index in torch.randperm(NUM_OF_EPOCH, generator=torch.Generator().manual_seed(epoch)).tolist()
    ]


@pytest.mark.parametrize("task", ["detector", "classifier"])
@pytest.mark.parametrize(
    ("tail", "warmup_epochs", "sizes"),
    [
        ("flush", 0, [16, 6, 16, 6]),
        ("spread", 0, [22, 22]),
        ("carry", 0, [16, 16, 12]),
        ("flush", 1, [4, 8, 10, 16, 6]),
    ],
    ids=["flush", "spread", "carry", "flush, with a ramp"],
)
@pytest.mark.slow
def test_every_window_of_a_run_is_a_full_batch_whatever_becomes_of_the_tail(task, request, tail, warmup_epochs, sizes):
    subject = request.getfixturevalue(task)
    plan = plan_run(num_images=NUM_OF_EPOCH, batch=4, nbs=16, epochs=2, warmup_epochs=warmup_epochs, tail=tail)
    windows, order = list(plan.all_windows()), images_of_run(epochs=2)
    epoch = batches_of_task(task, COUNTS_OF_EPOCH, CLASSES_OF_EPOCH)
    assert [window.size for window in windows] == sizes
    subject.network.double()

    gradients = accumulated(
        subject,
        (
            [
                pick(epoch, order[part.start : part.start + part.size], is_last=part.is_last)
                for part in window.micro_batches
            ]
            for window in windows
        ),
    )

    for window, gradient in zip(windows, gradients, strict=True):
        whole = pick(epoch, order[window.start : window.stop], is_last=True)
        assert relative_error(gradient, plain(subject, whole)) <= EXACT, window


# The parts of a task as a run puts them together: reader, transforms, collation, network, criterion.

OF_CLASSIFICATION = {
    "class weights": {"class_weights": CLASS_WEIGHTS},
    "balanced class weights": {"class_weights": "balanced"},
    "weights and label smoothing": {"class_weights": CLASS_WEIGHTS, "label_smoothing": 0.1},
    "mix-up": {"class_weights": CLASS_WEIGHTS, "mixup": 1.0},
    "cut-mix and label smoothing": {"class_weights": CLASS_WEIGHTS, "cutmix": 1.0, "label_smoothing": 0.2},
    "mix-up and cut-mix of some": {"class_weights": "balanced", "mixup": 0.4, "cutmix": 0.3},
    "focal": {"class_weights": CLASS_WEIGHTS, "loss": "focal", "focal_gamma": 1.5},
    "several labels": {"multi_label": True, "class_weights": CLASS_WEIGHTS},
    "several labels, mix-up and label smoothing": {"multi_label": True, "mixup": 1.0, "label_smoothing": 0.1},
    "several labels, focal": {"multi_label": True, "loss": "focal"},
}


def labels_csv(folder: Path, *, several: bool) -> Path:
    """Small pictures, few of them of the first and second class; of several classes or none if asked for."""
    rng = np.random.default_rng(0)
    sets = ["c", "b", "b", "c", "a", *("c",) * 11]
    if several:
        sets = ["c", "a|b|c", "", "b", "", "", "", "", "a", "c|b", "c", "c", "a", "a|c", "", "c"]
    rows = []
    for number, names in enumerate(sets):
        Image.fromarray(rng.integers(0, 256, (36, 44, 3), dtype=np.uint8)).save(folder / f"{number}.png")
        rows.append(f"{number}.png,{names}")
    (folder / "labels.csv").write_text("\n".join(["path,label", *rows]) + "\n", encoding="utf-8")
    return folder / "labels.csv"


def shares_in(batch: Batch) -> Tensor:
    """(B, 3) float64, by a loop."""
    shares = torch.zeros(len(batch), 3, dtype=torch.float64)
    for image, (classes, of_image) in enumerate(zip(batch.targets["classes"], batch.targets["shares"], strict=True)):
        for label, share in zip(classes.tolist(), of_image.tolist(), strict=True):
            if label >= 0:
                shares[image, label] += share
    return shares


def plain_loss(logits: Tensor, batch: Batch, config: Config) -> Tensor:
    """The mean loss of all images at once, by torch's and torchvision's own functions as far as they go."""
    shares, smoothing = shares_in(batch), config.label_smoothing
    weights = torch.tensor(config.class_weights or (1.0,) * 3, dtype=torch.float64)
    if config.multi_label:
        targets = shares.clamp(max=1) * (1 - smoothing) + smoothing / 2
        if config.loss == "focal":
            return sigmoid_focal_loss(logits, targets, alpha=-1, gamma=config.focal_gamma, reduction="mean")
        return binary_cross_entropy_with_logits(logits, targets, weights)
    if config.loss != "focal" and not (config.mixup or config.cutmix):
        return cross_entropy(logits, shares.argmax(1), weights, label_smoothing=smoothing)
    losses = -logits.log_softmax(1)
    if config.loss == "focal":
        losses = losses * (1 - logits.softmax(1)) ** config.focal_gamma
    targets = (1 - smoothing) * shares + smoothing / 3
    return (weights * targets * losses).sum() / (weights * shares).sum()


@pytest.mark.parametrize("name", OF_CLASSIFICATION)
def test_the_parts_of_classification_give_the_update_of_the_full_batch(tmp_path, small_classifier, name):
    keys = OF_CLASSIFICATION[name]
    data = labels_csv(tmp_path, several="multi_label" in keys)
    fixed = {"data": str(data), "model": str(small_classifier), "imgsz": SIZE, "dropout": 0.5}
    config = load_config("train", python={**fixed, **keys})
    data_set = CLASSIFY.read(config, ("train",))
    config = CLASSIFY.settle(config, data_set)
    network = CLASSIFY.fresh_network(config, data_set.names).double().eval()
    torch.nn.init.normal_(network.layers[-1].linear.weight, generator=torch.Generator().manual_seed(0))
    samples = open_samples(config, CLASSIFY, data_set.splits["train"], stride=SIZE)
    batch = CLASSIFY.collate([samples[samples.sampler.key(place)] for place in range(NUM_IMAGES)])
    assert bool((batch.targets["shares"] % 1).any()) == any(key in keys for key in ("mixup", "cutmix"))

    subject = Subject(
        network,
        CLASSIFY.criterion(network, config),
        lambda outputs, batch: plain_loss(outputs, batch, config),
        gain=CLASSIFY.gain(plan_run(num_images=NUM_IMAGES, batch=4, nbs=16, epochs=1)),
    )
    assert_no_cut_matters(subject, batch, cuts=CUTS, most=EXACT)
    # A tail that no micro-batch divides.
    assert_no_cut_matters(subject, pick(batch, range(11), is_last=True), cuts=(4,), most=EXACT)
