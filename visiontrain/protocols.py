"""Every contract between the parts, on one screen.

Whoever fulfils one of these can be put in place of ours: a data format, a transform, a loss, a decoder, a metric, a
logger, a whole task.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from visiontrain.metrics.bootstrap import Interval, Resampled
from visiontrain.metrics.outcomes import ImageOutcome
from visiontrain.sample import Batch, DataSet, Marks, Record, Records, Sample, SampleKey

if TYPE_CHECKING:
    from torch import Tensor, nn

    from visiontrain.config.schema import Config
    from visiontrain.losses.sums import LossSum
    from visiontrain.models.network import Network
    from visiontrain.plan import Plan


class Reader(Protocol):
    """Reads one data format."""

    def recognizes(self, source: Path) -> bool:
        """Whether `source` (a file or folder) looks like this format; opens as little as possible."""

    def read(self, source: Path, splits: Sequence[str], *, max_pixels: int = ...) -> DataSet:
        """Read the records of those of `splits` that exist; images of more than `max_pixels` are left out.

        What makes the data unfit for training goes into `DataSet.faults`; a DataError is for where nothing can be read.
        """


class ImageSource(Protocol):
    """What a transform may ask for: records and decoded images of its split, by index."""

    def record(self, index: int) -> Record: ...

    def load(self, index: int) -> NDArray[np.uint8]:
        """(H, W, 3) RGB, upright, reduced by area averaging so that its long side is at most `imgsz`."""

    def partners(self, key: SampleKey, rng: np.random.Generator, count: int) -> list[int]:
        """Indices of `count` images near the key's place in the epoch's permutation."""


class Transform(Protocol):
    """Makes the sample that a key names; the same key gives the same sample everywhere."""

    def __call__(self, key: SampleKey, images: ImageSource) -> Sample: ...


class Resizable(Transform, Protocol):
    """A transform that can make its samples at another size."""

    def at_size(self, imgsz: int) -> Transform:
        """The same transform for samples with sides of `imgsz` pixels."""


class Criterion(Protocol):
    """The loss, as sums. See `LossSum` for why it is not a mean.

    Of a batch without images, as a process of several may have it, all sums are 0 and still hang on every output.
    """

    def __call__(self, outputs: Any, batch: Batch) -> LossSum | Sequence[LossSum]: ...


class Decoder(Protocol):
    """Turns raw outputs of the network into predictions, one entry for each image of the batch.

    Detection: {"boxes": (N, 4) float32 xyxy pixels of the network's input, "scores": (N,) float32 falling,
    "classes": (N,) int64}.
    """

    def __call__(self, outputs: Any) -> list[dict[str, Tensor]]: ...


class Evaluator(Protocol):
    """Collects predictions over a split and turns them into metrics."""

    def add(self, predictions: list[dict[str, Tensor]], batch: Batch) -> None: ...

    def state(self) -> Any:
        """What was added since the last `compute` or `state`, as plain values for `merge` in another process."""

    def merge(self, state: Any) -> None:
        """Take what the evaluator of another process has."""

    def compute(self) -> Mapping[str, Any]:
        """The metrics by their CSV names, plus what the task's tables need. They are `Judged` too."""


class Judged(Protocol):
    """What metrics know beyond their numbers; worked out when it is asked for."""

    @property
    def images(self) -> int:
        """That were scored."""

    @property
    def intervals(self) -> tuple[Interval, ...]: ...

    @property
    def per_image(self) -> tuple[ImageOutcome, ...]:
        """The errors of each image, in the order of the records."""

    def resampled(self, weights: NDArray[np.int64]) -> Resampled:
        """The metrics where each image stands `weights` (R, I) times, for R splits of I images."""

    def details(self) -> dict[str, Any]:
        """Everything, as plain values."""


class Logger(Protocol):
    """A sink for what a run reports."""

    def log(self, event: str, values: Mapping[str, Any]) -> None:
        """`event` is one of `start window updates epoch windows note warning end`.

        `values` are plain numbers and texts, or lists of them.
        """

    def close(self) -> None: ...


@dataclass(frozen=True)
class Task:
    """Everything the trainer needs to know of a task; the engine knows none of them by name."""

    name: str
    read: Callable[[Config, Sequence[str]], DataSet]
    train_transform: Callable[[Config], Resizable]
    stored_size: Callable[[int], int]
    """From the size of samples to the long side to which training images are reduced when they are read."""
    balance_power: float
    """How strongly `sampling=balanced` lifts rare classes. See `image_weights`."""
    val_transform: Callable[[Config, Network], Transform]
    prepare: Callable[[Config, Network], Callable[[NDArray[np.uint8]], tuple[NDArray[np.uint8], NDArray[Any]]]]
    """What `val_transform` does to an image alone, for prediction: (H, W, 3) RGB in; input and its matrix out."""
    collate: Callable[[Sequence[Any]], Batch]
    """Samples, and what stands for unreadable images, to a batch."""
    network: Callable[[Mapping[str, Any], tuple[str, ...]], Network]
    """From a `Network.description` and the class names."""
    fresh_network: Callable[[Config, tuple[str, ...]], Network]
    """Untrained, or begun from given weights, as the settings ask for it."""
    settle: Callable[[Config, DataSet], Config]
    """The settings with what the training data decide of them."""
    criterion: Callable[[Network, Config], Criterion]
    finish: Callable[[Network, Any], Mapping[str, Tensor]]
    """Raw outputs of the network → what leaves it for other programs, by name; what is finished already stays as it is.
    Detection: `boxes` (B, A, 4) xyxy pixels and `scores` (B, A, C); classification: `probs` (B, C). Decoders begin with
    it, so that an exported network can stand in for the network."""
    augmented: Callable[[Network, Config], nn.Module]
    """The network looking at each image in several ways; its outputs are finished. For prediction with `augment`."""
    scoring_decoder: Callable[[Network, Config], Decoder]
    """Keeps all that metrics rank."""
    decoder: Callable[[Network, Config], Decoder]
    """Keeps what a user wants to see."""
    evaluator: Callable[[Records, tuple[str, ...], Config], Evaluator]
    found: Callable[[Mapping[str, Tensor], NDArray[Any], tuple[int, int]], Any]
    """From what the decoder gives for an image, the matrix source → input and the source's height and width to what
    its `Results` hold."""
    target_marks: Callable[[Batch, tuple[str, ...]], list[Marks]]
    """The labels of each image, for pictures."""
    found_marks: Callable[[list[dict[str, Tensor]], tuple[str, ...]], list[Marks]]
    """What was found in each image, for pictures."""
    loss_columns: tuple[str, ...]
    metric_columns: tuple[str, ...]
    ranking: str
    """The metric that picks the best epoch; higher is better."""
    gain: Callable[[Plan], float]
    """The constant that a window's mean gradient is multiplied by."""
    stored: Callable[[Any], Mapping[str, float]]
    """What a checkpoint keeps of the evaluator's metrics: those of the CSV, and the thresholds that were found best."""
    table: Callable[[Any], str]
    """The evaluator's metrics as lines of text."""
    review: Callable[[Any, Records, int], dict[str, Any]]
    """From the evaluator's metrics, the records and the most images of a gallery to one plain document, of which the
    report page and the plots are made; `report/review.py` tells its parts."""
    default_model: str
    default_imgsz: int
    default_data: str
    """Name of the bundled data set."""
