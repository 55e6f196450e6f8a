"""Training samples of detection: mosaic, affine, perspective, flip, mix-up and color, by the sample's key.

All geometry of a sample is one matrix per tile, so each pixel is resampled once from the decoded image. All randomness
comes from a generator made of (seed, epoch, image, occurrence).
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from visiontrain.boxes import clip_boxes
from visiontrain.data.sampler import generator_of
from visiontrain.data.transforms import geometry
from visiontrain.data.transforms.color import HUE_TURN, shift_hsv_
from visiontrain.data.transforms.geometry import FILL, Matrix, Tile
from visiontrain.errors import ConfigError, DataError
from visiontrain.protocols import ImageSource
from visiontrain.sample import Record, Sample, SampleKey

MIXUP_BETA = 32.0
"""Both parameters of the blend's Beta distribution: nearly equal halves, in which both images stay visible.
Source: the distribution is of Zhang et al. 2018, mixup, section 2; so large a parameter is the use in detection."""
MIN_BOX_SIDE = 2.0
"""Pixels; a box that is left with less is dropped."""
MIN_BOX_VISIBLE = 0.1
"""Share of a box's area that must be left inside the image."""
MAX_BOX_ASPECT = 100.0
MAX_PARTNER_TRIES = 8


@dataclass(frozen=True)
class AugmentSettings:
    """What training samples look like. Probabilities and gains; 0 switches each of them off."""

    imgsz: int
    """Side of the square sample, pixels."""
    mosaic_until_epoch: int
    """The first epoch, from 0, without mosaic."""
    mosaic: float = 1.0
    """Probability that a sample is composed of four images."""
    degrees: float = 0.0
    """Rotation up to ± this."""
    translate: float = 0.1
    """Shift up to ± this share of `imgsz`."""
    scale: float = 0.5
    """Zoom by a factor within 1 ± this."""
    shear: float = 0.0
    """Degrees, ±, along each axis."""
    perspective: float = 0.0
    """Change of depth per pixel, ±, along each axis; 0.001 is strong."""
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
    mixup: float = 0.0
    """Probability that two composed samples are blended."""

    def __post_init__(self) -> None:
        faults = []
        if self.imgsz < 1:
            faults.append(f"imgsz = {self.imgsz} is not a positive number of pixels")
        for name in ("mosaic", "flipud", "fliplr", "mixup"):
            if not 0 <= getattr(self, name) <= 1:
                faults.append(f"{name} = {getattr(self, name)} is not a probability; choose one from 0 to 1")
        for name in ("translate", "hsv_h", "hsv_s", "hsv_v", "degrees", "shear", "perspective"):
            if not getattr(self, name) >= 0:
                faults.append(f"{name} = {getattr(self, name)} is negative; it is a range to both sides: give its size")
        if not 0 <= self.scale < 1:
            faults.append(f"scale = {self.scale} would shrink images to nothing; choose one from 0 to below 1")
        if faults:
            raise ConfigError(faults)


@dataclass(frozen=True)
class _Layer:
    """One composed picture, before color."""

    image: NDArray[np.uint8]
    boxes: NDArray[np.float32]
    classes: NDArray[np.int64]
    matrix: Matrix
    """Stored pixels of the first tile → pixels of `image`."""


@dataclass(frozen=True)
class TrainTransform:
    """Makes the training sample that a key names. A `Transform`."""

    settings: AugmentSettings
    seed: int

    def __call__(self, key: SampleKey, images: ImageSource) -> Sample:
        rng = generator_of(self.seed, key)
        layer = self._compose(key.index, key, images, rng)
        if rng.random() < self.settings.mixup and key.epoch < self.settings.mosaic_until_epoch:
            partner = _readable_partners(key, images, rng, 1)[0]
            layer = _blend(layer, self._compose(partner, key, images, rng), float(rng.beta(MIXUP_BETA, MIXUP_BETA)))
        self._recolor_(layer.image, rng)
        record, stored = images.record(key.index), images.load(key.index)
        from_source = geometry.scaling(stored.shape[1] / record.width, stored.shape[0] / record.height)
        return Sample(
            image=layer.image,
            boxes=layer.boxes,
            classes=layer.classes,
            path=str(record.path),
            index=key.index,
            original_size=(record.height, record.width),
            matrix=(layer.matrix @ from_source).astype(np.float32),
        )

    def _compose(self, index: int, key: SampleKey, images: ImageSource, rng: np.random.Generator) -> _Layer:
        """Place one or four images on a canvas."""
        imgsz = self.settings.imgsz
        is_mosaic = rng.random() < self.settings.mosaic and key.epoch < self.settings.mosaic_until_epoch
        if is_mosaic:
            indices = [index, *_readable_partners(key, images, rng, 3)]
            loaded = [images.load(i) for i in indices]
            center_x, center_y = rng.uniform(0.5 * imgsz, 1.5 * imgsz, 2)
            placed = [place_in_mosaic(image, k, center_x, center_y, imgsz) for k, image in enumerate(loaded)]
            middle = geometry.translation(-imgsz, -imgsz)
        else:
            indices, loaded = [index], [images.load(index)]
            placed = [place_in_middle(loaded[0], imgsz)]
            middle = geometry.translation(-imgsz / 2, -imgsz / 2)
        moved = random_motion(self.settings, rng) @ middle
        canvas = np.full((imgsz, imgsz, 3), FILL, np.uint8)
        tiles = [Tile(image, moved @ place) for image, place in zip(loaded, placed, strict=True)]
        matrices = geometry.warp_tiles(tiles, canvas)
        records = [images.record(i) for i in indices]
        boxes, classes = _move_boxes(records, tiles, matrices, imgsz)
        return _Layer(canvas, boxes, classes, matrices[0])

    def _recolor_(self, image: NDArray[np.uint8], rng: np.random.Generator) -> None:
        turn, saturation, value = rng.uniform(-1, 1, 3).tolist()
        hue_shift = round(turn * self.settings.hsv_h * HUE_TURN)
        saturation_gain = max(0.0, 1 + saturation * self.settings.hsv_s)
        value_gain = max(0.0, 1 + value * self.settings.hsv_v)
        if (hue_shift, saturation_gain, value_gain) != (0, 1.0, 1.0):
            shift_hsv_(image, hue_shift, saturation_gain, value_gain)


def place_in_mosaic(image: NDArray[np.uint8], quarter: int, center_x: float, center_y: float, imgsz: int) -> Matrix:
    """Scale an image to long side `imgsz` and put a corner of it at the mosaic's center.

    Args:
        image: (H, W, 3).
        quarter: 0 upper left, 1 upper right, 2 lower left, 3 lower right of the center.
        center_x: Where the four tiles meet, pixels of the 2·imgsz × 2·imgsz canvas.
        center_y: The same, downwards.
        imgsz: Pixels.

    Source: Bochkovskiy et al. 2020, YOLOv4, section 3.3 (mosaic).
    """
    height, width = image.shape[:2]
    ratio = imgsz / max(height, width)
    left = center_x - width * ratio * (quarter in (0, 2))
    top = center_y - height * ratio * (quarter in (0, 1))
    return geometry.translation(left, top) @ geometry.scaling(ratio, ratio)


def place_in_middle(image: NDArray[np.uint8], imgsz: int) -> Matrix:
    """Scale an image to long side `imgsz` and center it on a canvas of `imgsz` × `imgsz`."""
    height, width = image.shape[:2]
    ratio = imgsz / max(height, width)
    return geometry.translation((imgsz - width * ratio) / 2, (imgsz - height * ratio) / 2) @ geometry.scaling(
        ratio, ratio
    )


def random_motion(settings: AugmentSettings, rng: np.random.Generator) -> Matrix:
    """A random map from coordinates about the middle of a canvas to pixels of the sample."""
    imgsz = settings.imgsz
    x_depth, y_depth, turn, zoom, x_shear, y_shear, x_shift, y_shift = rng.uniform(-1, 1, 8).tolist()
    flips = rng.random(2)
    gain = 1 + zoom * settings.scale
    motion = geometry.scaling(gain, gain)
    if settings.perspective:
        motion = motion @ geometry.foreshortening(x_depth * settings.perspective, y_depth * settings.perspective)
    if settings.degrees:
        motion = geometry.rotation(turn * settings.degrees) @ motion
    if settings.shear:
        motion = geometry.shearing(x_shear * settings.shear, y_shear * settings.shear) @ motion
    x_middle, y_middle = ((0.5 + shift * settings.translate) * imgsz for shift in (x_shift, y_shift))
    is_sideways, is_upside_down = bool(flips[0] < settings.fliplr), bool(flips[1] < settings.flipud)
    flip = geometry.flipping(imgsz, imgsz, sideways=is_sideways, upside_down=is_upside_down)
    return flip @ geometry.translation(x_middle, y_middle) @ motion


def is_worth_keeping(moved: NDArray[np.floating], clipped: NDArray[np.floating]) -> NDArray[np.bool_]:
    """Which boxes are still objects after they were moved and clipped.

    Args:
        moved: (N, 4) xyxy, pixels, before clipping.
        clipped: (N, 4) the same boxes, clipped to the image.

    Returns:
        (N,) bool.
    """
    width, height = (moved[:, 2:] - moved[:, :2]).T
    visible_width, visible_height = (clipped[:, 2:] - clipped[:, :2]).T
    is_large = (visible_width >= MIN_BOX_SIDE) & (visible_height >= MIN_BOX_SIDE)
    is_visible = visible_width * visible_height >= MIN_BOX_VISIBLE * width * height
    is_slim = np.maximum(visible_width, visible_height) >= MAX_BOX_ASPECT * np.minimum(visible_width, visible_height)
    return is_large & is_visible & ~is_slim


def _move_boxes(
    records: list[Record], tiles: list[Tile], matrices: list[Matrix], imgsz: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The boxes of all tiles in pixels of the sample: (N, 4) xyxy and (N,)."""
    moved = []
    for record, tile, matrix in zip(records, tiles, matrices, strict=True):
        height, width = tile.image.shape[:2]
        moved.append(geometry.move_boxes(record.boxes, matrix @ geometry.scaling(width, height)))
    boxes = np.concatenate(moved)
    classes = np.concatenate([record.classes for record in records])
    clipped = clip_boxes(boxes, imgsz, imgsz)
    keep = is_worth_keeping(boxes, clipped)
    return clipped[keep].astype(np.float32), classes[keep]


def _readable_partners(key: SampleKey, images: ImageSource, rng: np.random.Generator, count: int) -> list[int]:
    """Partners that can be decoded; the key's own image stands in where none is found in a few tries."""
    found: list[int] = []
    for _ in range(MAX_PARTNER_TRIES):
        for index in images.partners(key, rng, count - len(found)):
            try:
                images.load(index)
            except DataError:
                continue  # it is reported where it stands itself in the epoch
            found.append(index)
        if len(found) == count:
            return found
    return found + [key.index] * (count - len(found))


def _blend(first: _Layer, second: _Layer, ratio: float) -> _Layer:
    """Both pictures, weighted, with the boxes of both."""
    image = cv2.addWeighted(first.image, ratio, second.image, 1 - ratio, 0.0)
    return _Layer(
        np.asarray(image, np.uint8),
        np.concatenate([first.boxes, second.boxes]),
        np.concatenate([first.classes, second.classes]),
        first.matrix,
    )
