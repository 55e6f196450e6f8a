"""Samples of classification: by the sample's key in training, the middle of the picture in validation.

The geometry of a training sample is one matrix, so each pixel is resampled once from the decoded image. All randomness
comes from a generator made of (seed, epoch, image, occurrence). What is off draws nothing from it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from visiontrain.data.sampler import generator_of
from visiontrain.data.transforms import geometry
from visiontrain.data.transforms.color import recolor_
from visiontrain.data.transforms.flip_swap import faults_of_flip_swap, swap_classes
from visiontrain.data.transforms.geometry import FILL, Image, Matrix, Tile
from visiontrain.data.transforms.mixing import (
    MIXUP_BETA,
    blend,
    draw_patch,
    erase_,
    mix_labels,
    paste_patch_,
)
from visiontrain.data.transforms.partners import Loaded, load, load_partners
from visiontrain.data.transforms.policies import POLICIES, apply_policy
from visiontrain.data.transforms.resized_crop import draw_window, middle_square
from visiontrain.data.transforms.settings import faults_of_values
from visiontrain.errors import ConfigError
from visiontrain.protocols import ImageSource
from visiontrain.sample import Record, Sample, SampleKey

NO_BOXES = np.zeros((0, 4), np.float32)
STORED_SIZE = 1.5
"""Long side of the images that training reads, in sides of the network's input: a window of half of a 4:3 picture's
area is then enlarged by a quarter at most."""
_PROBABILITIES = ("flipud", "fliplr", "erasing", "mixup", "cutmix")
_RANGES = ("degrees", "hsv_h", "hsv_s", "hsv_v")


def stored_long_side(imgsz: int) -> int:
    """Long side, pixels, to which images are to be reduced for training samples of `imgsz` pixels."""
    return round(STORED_SIZE * imgsz)


@dataclass(frozen=True)
class ClassifySettings:
    """What training samples look like. Probabilities and gains; 0 switches each of them off."""

    imgsz: int
    """Side of the square sample, pixels."""
    scale: float = 0.5
    """A random window of the image is seen, of at least 1 − this of its area and at any place; 0: the middle square."""
    degrees: float = 0.0
    """Rotation up to ± this."""
    flipud: float = 0.0
    """Probability of a flip upside down."""
    fliplr: float = 0.5
    """Probability of a flip sideways."""
    hsv_h: float = 0.015
    """Hue is turned by up to ± this share of a full turn."""
    hsv_s: float = 0.7
    """Saturation is multiplied by a factor within 1 ± this."""
    hsv_v: float = 0.4
    """Value is multiplied by a factor within 1 ± this."""
    auto_augment: str | None = None
    """One of `POLICIES`, applied before the color is changed."""
    erasing: float = 0.0
    """Probability that a rectangle of the picture is filled with noise."""
    mixup: float = 0.0
    """Probability that a picture is blended with another one."""
    cutmix: float = 0.0
    """Probability that a rectangle of a picture is taken from another one. It excludes mix-up."""
    flip_swap: tuple[tuple[int, int], ...] = ()
    """Pairs of classes that a flip sideways turns into each other, such as arrows to the left and to the right."""

    def __post_init__(self) -> None:
        faults = faults_of_values(self, probabilities=_PROBABILITIES, ranges=_RANGES)
        if not 0 <= self.scale < 1:
            faults.append(f"scale = {self.scale} would leave nothing of an image; choose one from 0 to below 1")
        if self.mixup + self.cutmix > 1:
            faults.append(
                f"mixup = {self.mixup} and cutmix = {self.cutmix} exclude each other in a sample; choose two "
                "probabilities that add up to at most 1"
            )
        if self.auto_augment not in (None, *POLICIES):
            faults.append(f"auto_augment = {self.auto_augment!r} is unknown; choose one of {', '.join(POLICIES)}")
        faults += faults_of_flip_swap(self.flip_swap)
        if faults:
            raise ConfigError(faults)


class _View(NamedTuple):
    """One image as a sample shows it, before it is mixed with another one."""

    image: Image
    """(imgsz, imgsz, 3), not shared with anybody."""
    classes: NDArray[np.int64]
    record: Record
    matrix: Matrix
    """Pixels of the source image → pixels of `image`."""


@dataclass(frozen=True)
class ClassifyTrain:
    """Makes the training sample that a key names. A `Transform`."""

    settings: ClassifySettings
    seed: int

    def __call__(self, key: SampleKey, images: ImageSource) -> Sample:
        rng = generator_of(self.seed, key)
        view = self._view(load(key.index, images), rng)
        image, classes, shares = self._mix(view, key, images, rng)
        return Sample(
            image=image,
            boxes=NO_BOXES,
            classes=classes,
            path=str(view.record.path),
            index=key.index,
            original_size=(view.record.height, view.record.width),
            matrix=view.matrix.astype(np.float32),
            shares=shares,
        )

    def at_size(self, imgsz: int) -> ClassifyTrain:
        """The same augmentation for samples with sides of `imgsz` pixels."""
        return replace(self, settings=replace(self.settings, imgsz=imgsz))

    def _view(self, loaded: Loaded, rng: np.random.Generator) -> _View:
        settings, (record, stored) = self.settings, loaded
        matrix, is_sideways = self._draw_geometry(stored.shape[0], stored.shape[1], rng)
        image = np.full((settings.imgsz, settings.imgsz, 3), FILL, np.uint8)
        (matrix,) = geometry.warp_tiles([Tile(stored, matrix)], image)
        if settings.auto_augment is not None:
            image = apply_policy(image, settings.auto_augment, int(rng.integers(2**63)))
        recolor_(image, rng, hue=settings.hsv_h, saturation=settings.hsv_s, value=settings.hsv_v)
        if settings.erasing and rng.random() < settings.erasing:
            erase_(image, rng)
        classes = swap_classes(record.classes, settings.flip_swap) if is_sideways else record.classes
        to_stored = geometry.scaling(stored.shape[1] / record.width, stored.shape[0] / record.height)
        return _View(image, classes, record, matrix @ to_stored)

    def _draw_geometry(self, height: int, width: int, rng: np.random.Generator) -> tuple[Matrix, bool]:
        """The matrix from pixels of an image to those of the sample, and whether it was flipped left to right."""
        settings, imgsz = self.settings, self.settings.imgsz
        if settings.scale:
            window = draw_window(height, width, 1 - settings.scale, rng)
        else:
            window = middle_square(height, width)
        left, top, right, bottom = window
        matrix = geometry.scaling(imgsz / (right - left), imgsz / (bottom - top)) @ geometry.translation(-left, -top)
        if settings.degrees:
            turn = geometry.rotation(float(rng.uniform(-settings.degrees, settings.degrees)))
            matrix = (
                geometry.translation(imgsz / 2, imgsz / 2)
                @ turn
                @ geometry.translation(-imgsz / 2, -imgsz / 2)
                @ matrix
            )
        is_sideways = bool(settings.fliplr and rng.random() < settings.fliplr)
        is_upside_down = bool(settings.flipud and rng.random() < settings.flipud)
        flip = geometry.flipping(imgsz, imgsz, sideways=is_sideways, upside_down=is_upside_down)
        return flip @ matrix, is_sideways

    def _mix(
        self, view: _View, key: SampleKey, images: ImageSource, rng: np.random.Generator
    ) -> tuple[Image, NDArray[np.int64], NDArray[np.float32]]:
        """The picture, its (N,) classes and their (N,) shares."""
        settings = self.settings
        if settings.mixup or settings.cutmix:
            choice = rng.random()
            if choice < settings.mixup + settings.cutmix:
                (partner,) = load_partners(key, images, rng, 1)
                other = self._view(partner, rng)
                if choice < settings.mixup:
                    ratio = float(rng.beta(MIXUP_BETA, MIXUP_BETA))
                    image = blend(view.image, other.image, ratio)
                else:
                    image = view.image
                    ratio = paste_patch_(image, other.image, draw_patch(settings.imgsz, settings.imgsz, rng))
                return image, *mix_labels(view.classes, other.classes, ratio)
        return view.image, view.classes, np.ones(len(view.classes), np.float32)


@dataclass(frozen=True)
class ClassifyVal:
    """Brings the short side to `imgsz` and cuts out the middle square: validation and prediction. A `Transform`.

    The picture is reduced by area averaging or enlarged bilinearly.
    """

    imgsz: int
    """Side of the square output, pixels."""

    def prepare(self, image: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
        """Resize and cut one image.

        Args:
            image: (H, W, 3) uint8.

        Returns:
            The input, (imgsz, imgsz, 3) uint8, and the (3, 3) float32 matrix from pixels of `image` to its pixels.
        """
        left, top, right, bottom = middle_square(*image.shape[:2])
        square = image[top:bottom, left:right]
        gain = self.imgsz / (right - left)
        interpolation = cv2.INTER_AREA if gain < 1 else cv2.INTER_LINEAR
        resized = cv2.resize(square, (self.imgsz, self.imgsz), interpolation=interpolation)
        matrix = geometry.scaling(gain, gain) @ geometry.translation(-left, -top)
        return np.asarray(resized, np.uint8), matrix.astype(np.float32)

    def __call__(self, key: SampleKey, images: ImageSource) -> Sample:
        record, source = images.record(key.index), images.load(key.index)
        image, from_source = self.prepare(source)
        # `source` may have been reduced already; the matrix is that of the file's own pixels.
        to_source = geometry.scaling(source.shape[1] / record.width, source.shape[0] / record.height)
        return Sample(
            image=image,
            boxes=NO_BOXES,
            classes=record.classes,
            path=str(record.path),
            index=key.index,
            original_size=(record.height, record.width),
            matrix=(from_source @ to_source).astype(np.float32),
            shares=np.ones(len(record.classes), np.float32),
        )
