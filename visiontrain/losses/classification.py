"""Classification losses, as sums: cross entropy, binary cross entropy of each class, focal.

An image's labels are shares: 1 for its class, λ and 1 - λ after mix-up or cut-mix, 1 for each class where it may be of
several. The normalizer is what the mean of torch's own loss divides by, so that class weights, soft targets and several
labels come out the same however a window is cut.

Letters: B images, N labels of an image (padded), C classes; t_ic the share of class c in image i, w_c its weight, ε the
label smoothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, logsigmoid

from visiontrain.errors import ConfigError
from visiontrain.losses.sums import LossSum
from visiontrain.sample import Batch

Loss = Literal["cross_entropy", "bce", "focal"]
LOSSES: tuple[str, ...] = get_args(Loss)
FOCAL_GAMMA = 2.0
"""Source: Lin et al. 2017, Focal Loss (arXiv:1708.02002), section 5.1: the best of those tried."""


class ClassificationCriterion:
    """Loss of a classifier as a sum over the micro-batch.

    cross_entropy   Σ w_c t_ic · -log softmax; divided by Σ w_c t_ic, which for one label an image is what
                    `cross_entropy(weight=…, label_smoothing=…)` of torch divides by
    bce             Σ w_c · binary cross entropy of every class; divided by B · C as
                    `binary_cross_entropy_with_logits(weight=…)` does, so the weights act as factors
    focal           the same as cross_entropy, or as bce where images may be of several classes, with each term times
                    (1 - p)^gamma, p being the probability of what is right

    Both normalizers are those of the targets as given; label smoothing changes no normalizer.
    """

    def __init__(
        self,
        loss: str = "cross_entropy",
        *,
        num_classes: int,
        multi_label: bool = False,
        class_weights: Sequence[float] | None = None,
        label_smoothing: float = 0.0,
        gamma: float = FOCAL_GAMMA,
    ) -> None:
        """Set what is computed.

        Args:
            loss: One of `LOSSES`.
            num_classes: Of the network.
            multi_label: Whether an image may be of several classes, each of which is then decided for itself.
            class_weights: (C) one for each class, 0 or more.
            label_smoothing: ε in [0, 1]: how much of the target is spread over all classes; where each class is decided
                for itself, over its yes and no.
            gamma: Of focal: how much what is right already is left out; 0 leaves out nothing.

        Raises:
            ConfigError: If one of them is something else, or they do not go together.
        """
        weights = [1.0] * num_classes if class_weights is None else [float(weight) for weight in class_weights]
        faults = list(_faults(loss, num_classes, multi_label, weights, label_smoothing, gamma))
        if faults:
            raise ConfigError(faults)
        self.loss = loss
        self.label_smoothing = label_smoothing
        self.gamma = gamma
        self.is_binary = loss == "bce" or multi_label
        """Whether each class is a question of its own."""
        mean_weight = sum(weights) / num_classes
        self._scale_hint = float(num_classes) if self.is_binary else mean_weight or 1.0
        self._weights = torch.tensor(weights, dtype=torch.float64)
        self._weights_there = self._weights
        """In the type and on the device of the last logits."""

    def __call__(self, outputs: Tensor, batch: Batch) -> LossSum:
        logits = outputs if outputs.dtype == torch.float64 else outputs.float()  # (B, C)
        targets = target_shares(batch, logits)
        weights = self._weights_like(logits)
        if self.is_binary:
            total = self._binary(logits, targets, weights)
            normalizer = _wide(torch.ones_like(logits)).sum()
        else:
            total = self._softmax(logits, targets, weights)
            normalizer = (_wide(weights) * _wide(targets)).sum()
        return LossSum(
            total=total,
            normalizer=normalizer,
            parts={"loss": total.detach()},
            scale_hint=self._scale_hint,
            name="classification",
        )

    def _weights_like(self, logits: Tensor) -> Tensor:
        """(C) w; they travel to the device once, not with every micro-batch."""
        if self._weights_there.device != logits.device or self._weights_there.dtype != logits.dtype:
            self._weights_there = self._weights.to(logits.dtype).to(logits.device)
        return self._weights_there

    def _softmax(self, logits: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        """() float: for targets that are distributions."""
        spread = targets.sum(dim=1, keepdim=True) / targets.shape[1]  # an image without a label spreads nothing
        smooth = torch.lerp(targets, spread.expand_as(targets), self.label_smoothing)
        log_probabilities = logits.log_softmax(dim=1)
        losses = -log_probabilities
        if self.loss == "focal":
            # 1 - p by expm1: it keeps its digits, and its gradient stays finite, where p is nearly 1.
            losses = losses * _power(-torch.expm1(log_probabilities), self.gamma)
        return (weights * smooth * losses).sum()

    def _binary(self, logits: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        """() float: for targets in [0, 1], each class for itself."""
        smooth = targets.clamp(max=1) * (1 - self.label_smoothing) + self.label_smoothing / 2
        if self.loss == "bce":
            return binary_cross_entropy_with_logits(logits, smooth, weights, reduction="sum")
        yes = -logsigmoid(logits) * _power((-logits).sigmoid(), self.gamma)
        no = -logsigmoid(-logits) * _power(logits.sigmoid(), self.gamma)
        return (weights * (smooth * yes + (1 - smooth) * no)).sum()


def target_shares(batch: Batch, logits: Tensor) -> Tensor:
    """(B, C) in the type of `logits`: the share of each class in each image.

    Args:
        batch: Its targets are `classes` (B, N) int64, -1 where padded, and `shares` (B, N) float, 0 where padded.
        logits: (B, C).
    """
    classes, shares = batch.targets["classes"], batch.targets["shares"]
    assert shares.shape == classes.shape, f"{tuple(classes.shape)} classes, {tuple(shares.shape)} shares"
    is_label = classes >= 0
    return torch.zeros_like(logits).scatter_add_(1, classes.clamp(min=0), (shares * is_label).to(logits.dtype))


def _wide(tensor: Tensor) -> Tensor:
    """In float64, in which normalizers are added, where the device has it."""
    return tensor.detach().to(torch.float32 if tensor.is_mps else torch.float64)


def _power(base: Tensor, exponent: float) -> Tensor:
    """`base ** exponent` for a base in [0, 1], whose gradient is finite at 0 for any exponent."""
    least = torch.finfo(base.dtype).tiny
    return torch.ones_like(base) if exponent == 0 else base.clamp(min=least) ** exponent


def _faults(
    loss: str, num_classes: int, multi_label: bool, weights: Sequence[float], label_smoothing: float, gamma: float
) -> list[str]:
    faults = []
    if loss not in LOSSES:
        faults.append(f"loss = {loss!r}: is none that is known; it should be one of {', '.join(LOSSES)}")
    elif loss == "cross_entropy" and multi_label:
        faults.append(
            "loss = cross_entropy: takes an image's classes to exclude each other, and these images may be of several; "
            "use loss=bce or loss=focal"
        )
    if len(weights) != num_classes:
        faults.append(
            f"class_weights: {len(weights)} are given for {num_classes} classes; give one for each, in the order of "
            "the names"
        )
    if not all(0 <= weight < math.inf for weight in weights):
        faults.append(f"class_weights: hold {weights}; they should be numbers from 0")
    if not 0 <= label_smoothing <= 1:
        faults.append(f"label_smoothing = {label_smoothing}: should lie between 0 and 1")
    if not 0 <= gamma < math.inf:
        faults.append(f"focal_gamma = {gamma}: should be a number from 0")
    return faults
