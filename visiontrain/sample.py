"""The words that data, tasks and engine share: Record, Sample, Batch.

Letters: B images of a batch, N boxes of an image, H × W pixels of the network's input.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray

from visiontrain.findings import Findings
from visiontrain.plan import micro_batch_sizes

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class ScoringLabels:
    """What scoring knows of an image beside its labels. Training never looks at it. Letters: N labels, K regions."""

    areas: NDArray[np.float64]
    """(N,) square pixels of each labelled object, of its mask where it has one; nan where only its box is known."""
    is_difficult: NDArray[np.bool_]
    """(N,) labels that need not be found; what hits one is passed over."""
    crowd_boxes: NDArray[np.float32]
    """(K, 4) xyxy, fractions of width and height: regions of any number of objects, none of them a label."""
    crowd_classes: NDArray[np.int64]
    """(K,)"""


@dataclass(frozen=True)
class Record:
    """One labelled image of a data set, as read: nothing decoded yet."""

    path: Path
    height: int
    """Pixels of the upright image (its orientation tag applied)."""
    width: int
    boxes: NDArray[np.float32]
    """(N, 4) xyxy, fractions of width and height, in [0, 1]."""
    classes: NDArray[np.int64]
    """(N,) index into the class names; for classification the labels of the image."""
    scoring: ScoringLabels | None = None
    """None: nothing is known beside the labels."""

    def with_classes(self, classes_of: Callable[[NDArray[np.int64]], NDArray[np.int64]]) -> Record:
        """The same image with other class numbers, of its crowd regions too."""
        scoring = self.scoring and replace(self.scoring, crowd_classes=classes_of(self.scoring.crowd_classes))
        return replace(self, classes=classes_of(self.classes), scoring=scoring)


class Records(Sequence[Record]):
    """The records of a split, in flat arrays: workers share their memory instead of growing it object by object.

    Either each label has its box (detection), or no record has boxes (classification).
    """

    def __init__(self, records: Sequence[Record]) -> None:
        self._paths = np.array([str(record.path) for record in records], dtype=np.str_)
        self._sizes = np.array([(record.height, record.width) for record in records], np.int32).reshape(-1, 2)
        self._ends = np.cumsum([len(record.classes) for record in records], dtype=np.int64)
        empty_boxes = np.zeros((0, 4), np.float32)
        self.boxes = np.concatenate([empty_boxes, *(record.boxes for record in records)]).astype(np.float32)
        self.classes = np.concatenate([np.zeros(0, np.int64), *(record.classes for record in records)]).astype(np.int64)
        # Without boxes the ends of the labels cut them to none as well.
        assert not len(self.boxes) or all(len(record.boxes) == len(record.classes) for record in records)
        self._scoring = _FlatScoring(records) if any(record.scoring is not None for record in records) else None

    def __len__(self) -> int:
        return len(self._paths)

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> Records: ...
    def __getitem__(self, index: int | slice) -> Record | Records:
        if isinstance(index, slice):
            return Records([self[i] for i in range(*index.indices(len(self)))])
        if index < 0:
            index += len(self)
        if not 0 <= index < len(self):
            raise IndexError(f"record {index} of {len(self)}")
        stop = self._ends.item(index)
        start = self._ends.item(index - 1) if index else 0
        height, width = self._sizes[index].tolist()
        path = Path(self._paths.item(index))  # a plain str: of numpy's own a path takes twice the time
        scoring = None if self._scoring is None else self._scoring.of(index, slice(start, stop))
        return Record(path, height, width, self.boxes[start:stop], self.classes[start:stop], scoring)

    def digest(self) -> str:
        """SHA-256 of file names, sizes, labels and what scoring passes over; where the files lie does not matter."""
        digest = hashlib.sha256("\0".join(Path(path).name for path in self._paths).encode("utf-8", "surrogatepass"))
        arrays: list[NDArray[Any]] = [self._sizes, self._ends, self.boxes, self.classes]
        for array in arrays + ([] if self._scoring is None else self._scoring.passed_over()):
            digest.update(array.tobytes())
        return digest.hexdigest()

    def __iter__(self) -> Iterator[Record]:
        return (self[index] for index in range(len(self)))


class _FlatScoring:
    """The `ScoringLabels` of records of which some have any."""

    def __init__(self, records: Sequence[Record]) -> None:
        known = [record.scoring or _nothing_known(len(record.classes)) for record in records]
        self._areas = np.concatenate([one.areas for one in known])
        self._is_difficult = np.concatenate([one.is_difficult for one in known])
        self._crowd_boxes = np.concatenate([one.crowd_boxes for one in known])
        self._crowd_classes = np.concatenate([one.crowd_classes for one in known])
        self._crowd_ends = np.cumsum([len(one.crowd_classes) for one in known], dtype=np.int64)

    def of(self, index: int, labels: slice) -> ScoringLabels:
        """Of one record, whose labels lie at `labels`."""
        crowds = slice(self._crowd_ends.item(index - 1) if index else 0, self._crowd_ends.item(index))
        return ScoringLabels(
            self._areas[labels], self._is_difficult[labels], self._crowd_boxes[crowds], self._crowd_classes[crowds]
        )

    def passed_over(self) -> list[NDArray[Any]]:
        """What decides which detections are passed over; nothing where none can be."""
        difficult = [self._is_difficult] if self._is_difficult.any() else []
        crowds = [self._crowd_ends, self._crowd_boxes, self._crowd_classes] if len(self._crowd_boxes) else []
        return difficult + crowds


def _nothing_known(num_labels: int) -> ScoringLabels:
    return ScoringLabels(
        areas=np.full(num_labels, np.nan),
        is_difficult=np.zeros(num_labels, bool),
        crowd_boxes=np.zeros((0, 4), np.float32),
        crowd_classes=np.zeros(0, np.int64),
    )


@dataclass(frozen=True)
class DataSet:
    """A data set as a reader found it."""

    source: Path
    """The file or folder that the user named."""
    names: tuple[str, ...]
    """Class names, in the order of their indices."""
    splits: Mapping[str, Records]
    """`train`, and where they exist `val` and `test`."""
    notes: tuple[str, ...] = ()
    """What was guessed or decided, one line each."""
    findings: Findings = field(default_factory=Findings)
    """What was dropped, clipped or odd, with file and line number."""
    faults: tuple[str, ...] = ()
    """What makes it unfit for training, one line each."""

    @property
    def messages(self) -> tuple[str, ...]:
        """Notes and findings, one line each."""
        return (*self.notes, *self.findings.lines())

    def num_unreadable(self, split: str) -> int:
        """Images of a split that were left out because they cannot be read."""
        return sum(self.findings.count(code, split) for code in ("image-unreadable", "image-too-large"))


@dataclass(frozen=True)
class SampleKey:
    """Names one training sample: all its randomness is a function of this and the seed."""

    epoch: int
    place: int
    """Where the image stands in the epoch's permutation."""
    index: int
    """Which record of the split."""
    occurrence: int = 0
    """How often the image came before in this epoch (not 0 only where sampling repeats images)."""
    size: int | None = None
    """Side of the sample, pixels, where it changes from window to window. Apart from that the sample is the same."""


@dataclass(frozen=True)
class DroppedBoxes:
    """How many boxes of the images that make up a sample are not in it, by cause. They add up."""

    outside: int = 0
    too_small: int = 0
    too_little_left: int = 0
    too_long: int = 0

    def __str__(self) -> str:
        return ", ".join(f"{count} {cause.replace('_', ' ')}" for cause, count in asdict(self).items())

    def __add__(self, other: DroppedBoxes) -> DroppedBoxes:
        return DroppedBoxes(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))


@dataclass(frozen=True)
class Sample:
    """One image as the network will see it, with its targets."""

    image: NDArray[np.uint8]
    """(H, W, 3) RGB."""
    boxes: NDArray[np.float32]
    """(N, 4) xyxy, pixels of `image`."""
    classes: NDArray[np.int64]
    """(N,)"""
    path: str
    index: int
    original_size: tuple[int, int]
    """Height and width of the upright source image, pixels."""
    matrix: NDArray[np.float32] = field(default_factory=lambda: np.eye(3, dtype=np.float32))
    """(3, 3): pixels of the source image → pixels of `image`; of the first tile where several were composed."""
    dropped: DroppedBoxes = DroppedBoxes()
    shares: NDArray[np.float32] | None = None
    """(N,) what part of the image each class is: 1 unless images were mixed. None: detection."""


@dataclass(frozen=True)
class Marks:
    """What is drawn on one image: its labels, or what was found."""

    boxes: NDArray[np.float32]
    """(N, 4) xyxy, pixels of the image as the network sees it."""
    classes: NDArray[np.int64]
    """(N,) of the boxes."""
    scores: NDArray[np.float32] | None = None
    """(N,)"""
    caption: str = ""
    """What is said of the image as a whole."""


@dataclass(frozen=True)
class Batch:
    """What is on the device at once: images and whatever targets the task's criterion reads."""

    images: torch.Tensor
    """(B, 3, H, W) uint8, RGB."""
    targets: Mapping[str, torch.Tensor]
    """Tensors whose first dimension is B. Detection: `boxes` (B, N, 4) float32 xyxy pixels of `images`, padded with
    zeros, and `classes` (B, N) int64, padded with -1; N is the most boxes of an image in the batch. Classification:
    `classes` (B, N) int64, padded with -1, and `shares` (B, N) float32, padded with 0; N is the most labels."""
    paths: tuple[str, ...]
    indices: tuple[int, ...]
    original_sizes: tuple[tuple[int, int], ...]
    matrices: torch.Tensor
    """(B, 3, 3) float32: source pixels → pixels of `images`."""
    is_last: bool = True
    """Whether its window closes behind it."""
    unreadable: tuple[str, ...] = ()
    """Images that could not be read: they keep their place in the plan with weight zero."""
    dropped: DroppedBoxes = DroppedBoxes()
    """Of all its samples."""

    def __len__(self) -> int:
        return len(self.paths)

    def to(self, device: torch.device) -> Batch:
        """The same batch with its tensors on `device`; asynchronous where the host memory is pinned."""
        return replace(
            self,
            images=self.images.to(device, non_blocking=True),
            targets={name: tensor.to(device, non_blocking=True) for name, tensor in self.targets.items()},
        )

    def pin_memory(self) -> Batch:
        """The same batch in page-locked host memory (called by torch's loader)."""
        return replace(
            self,
            images=self.images.pin_memory(),
            targets={name: tensor.pin_memory() for name, tensor in self.targets.items()},
        )

    def split(self, most: int) -> list[Batch]:
        """Cut into the fewest parts of at most `most` images, of nearly equal size; only the last may end a window."""
        sizes = micro_batch_sizes(len(self), most)
        starts = list(accumulate(sizes[:-1], initial=0))
        return [
            Batch(
                images=self.images[start : start + size],
                targets={name: tensor[start : start + size] for name, tensor in self.targets.items()},
                paths=self.paths[start : start + size],
                indices=self.indices[start : start + size],
                original_sizes=self.original_sizes[start : start + size],
                matrices=self.matrices[start : start + size],
                is_last=self.is_last and start == starts[-1],
                unreadable=self.unreadable if start == 0 else (),
                dropped=self.dropped if start == 0 else DroppedBoxes(),
            )
            for start, size in zip(starts, sizes, strict=True)
        ]
