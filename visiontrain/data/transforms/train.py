"""Training samples of detection by the sample's key: composed, moved, blended, pasted into and recolored.

All geometry of a sample is one matrix per tile, so each pixel is resampled once from the decoded image; a pasted patch
is one more. All randomness comes from a generator made of (seed, epoch, image, occurrence). What is off draws nothing
from it, and what changes pixels alone is drawn last.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from visiontrain.boxes import clip_boxes
from visiontrain.data.sampler import generator_of
from visiontrain.data.transforms import effects, geometry
from visiontrain.data.transforms.color import recolor_
from visiontrain.data.transforms.crop import Window, draw_crop
from visiontrain.data.transforms.flip_swap import faults_of_flip_swap, swap_classes
from visiontrain.data.transforms.geometry import FILL, Image, Matrix, Tile
from visiontrain.data.transforms.keep import Fate, count_dropped, fate_of_boxes
from visiontrain.data.transforms.mixing import blend
from visiontrain.data.transforms.mosaic import place_in_middle, place_in_mosaic, place_nine
from visiontrain.data.transforms.partners import load, load_partners
from visiontrain.data.transforms.paste import Labels, paste_boxes_
from visiontrain.data.transforms.settings import faults_of_values
from visiontrain.errors import ConfigError
from visiontrain.protocols import ImageSource
from visiontrain.sample import DroppedBoxes, Record, Sample, SampleKey

MIXUP_BETA = 32.0
"""Both parameters of the blend's Beta distribution: nearly equal halves, in which both images stay visible.
Source: the distribution is of Zhang et al. 2018, mixup, section 2; so large a parameter is the use in detection."""

_KEPT = int(Fate.KEPT)  # numpy compares with a plain integer three times as fast
_PROBABILITIES = (
    "mosaic",
    "mosaic9",
    "flipud",
    "fliplr",
    "mixup",
    "copy_paste",
    "crop",
    "gray",
    "blur",
    "clahe",
    "jpeg",
)
_RANGES = ("translate", "hsv_h", "hsv_s", "hsv_v", "degrees", "shear", "perspective")


@dataclass(frozen=True)
class AugmentSettings:
    """What training samples look like. Probabilities and gains; 0 switches each of them off."""

    imgsz: int
    """Side of the square sample, pixels."""
    mosaic_until_epoch: int
    """The first epoch, from 0, in which nothing is composed of several images: no mosaic, mix-up and copy-paste."""
    mosaic: float = 1.0
    """Probability that a sample is composed of four images."""
    mosaic9: float = 0.0
    """Probability that a composed sample has nine images instead."""
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
    copy_paste: float = 0.0
    """Probability that boxes of another image are pasted into a sample."""
    crop: float = 0.0
    """Probability that an image is cropped, to a window that keeps some box in view, before it is placed."""
    gray: float = 0.0
    """Probability that a sample loses its color."""
    blur: float = 0.0
    """Probability of a Gaussian blur."""
    clahe: float = 0.0
    """Probability that contrast is equalized region by region."""
    jpeg: float = 0.0
    """Probability that a sample is compressed with loss."""
    flip_swap: tuple[tuple[int, int], ...] = ()
    """Pairs of classes that a flip sideways turns into each other, such as arrows to the left and to the right."""

    def __post_init__(self) -> None:
        faults = faults_of_values(self, probabilities=_PROBABILITIES, ranges=_RANGES)
        if not 0 <= self.scale < 1:
            faults.append(f"scale = {self.scale} would shrink images to nothing; choose one from 0 to below 1")
        faults += faults_of_flip_swap(self.flip_swap)
        if faults:
            raise ConfigError(faults)


@dataclass(frozen=True)
class _Layer:
    """One composed picture, before color."""

    image: Image
    boxes: NDArray[np.float32]
    classes: NDArray[np.int64]
    first: _Piece
    matrix: Matrix
    """Stored pixels of `first` → pixels of `image`."""
    dropped: DroppedBoxes


class _Piece(NamedTuple):
    """An image, or the part of it that is seen."""

    record: Record
    stored: Image
    window: Window | None = None
    """None is all of it."""

    @property
    def image(self) -> Image:
        if self.window is None:
            return self.stored
        left, top, right, bottom = self.window
        return self.stored[top:bottom, left:right]

    @property
    def boxes(self) -> NDArray[np.float32]:
        """(N, 4) xyxy, pixels of `stored`."""
        height, width = self.stored.shape[:2]
        return self.record.boxes * np.array([width, height] * 2, np.float32)

    def from_stored(self, matrix: Matrix) -> Matrix:
        """A matrix from pixels of `image`, made to one from pixels of `stored`."""
        return matrix if self.window is None else matrix @ geometry.translation(-self.window.left, -self.window.top)


@dataclass(frozen=True)
class TrainTransform:
    """Makes the training sample that a key names. A `Transform`."""

    settings: AugmentSettings
    seed: int

    def __call__(self, key: SampleKey, images: ImageSource) -> Sample:
        settings, rng = self.settings, generator_of(self.seed, key)
        layer = self._compose(_Piece(*load(key.index, images)), key, images, rng)
        may_join = key.epoch < settings.mosaic_until_epoch
        if rng.random() < settings.mixup and may_join:
            partner = _Piece(*load_partners(key, images, rng, 1)[0])
            layer = _blend(layer, self._compose(partner, key, images, rng), float(rng.beta(MIXUP_BETA, MIXUP_BETA)))
        if settings.copy_paste and may_join and rng.random() < settings.copy_paste:
            layer = self._paste(layer, key, images, rng)
        recolor_(layer.image, rng, hue=settings.hsv_h, saturation=settings.hsv_s, value=settings.hsv_v)
        image = self._degrade(layer.image, rng)
        record, stored, _ = layer.first
        from_source = geometry.scaling(stored.shape[1] / record.width, stored.shape[0] / record.height)
        return Sample(
            image=image,
            boxes=layer.boxes,
            classes=layer.classes,
            path=str(record.path),
            index=key.index,
            original_size=(record.height, record.width),
            matrix=(layer.matrix @ from_source).astype(np.float32),
            dropped=layer.dropped,
        )

    def at_size(self, imgsz: int) -> TrainTransform:
        """The same augmentation for samples with sides of `imgsz` pixels."""
        return replace(self, settings=replace(self.settings, imgsz=imgsz))

    def _compose(self, first: _Piece, key: SampleKey, images: ImageSource, rng: np.random.Generator) -> _Layer:
        """Place one, four or nine images on a canvas."""
        settings, imgsz = self.settings, self.settings.imgsz
        is_mosaic = rng.random() < settings.mosaic and key.epoch < settings.mosaic_until_epoch
        is_nine = is_mosaic and settings.mosaic9 > 0 and bool(rng.random() < settings.mosaic9)
        pieces = [first]
        if is_mosaic:
            pieces += [_Piece(*loaded) for loaded in load_partners(key, images, rng, 8 if is_nine else 3)]
        if settings.crop:
            pieces = [self._crop(piece, rng) for piece in pieces]
        shown = [piece.image for piece in pieces]
        if is_nine:
            center_x, center_y = rng.uniform(imgsz * 2 / 3, imgsz * 4 / 3, 2).tolist()
            placed = place_nine(shown, center_x, center_y, imgsz)
        elif is_mosaic:
            center_x, center_y = rng.uniform(0.5 * imgsz, 1.5 * imgsz, 2).tolist()
            placed = [place_in_mosaic(image, k, center_x, center_y, imgsz) for k, image in enumerate(shown)]
        else:
            placed = [place_in_middle(shown[0], imgsz)]
        half = imgsz if is_mosaic else imgsz / 2
        motion = random_motion(settings, rng)
        moved = motion.matrix @ geometry.translation(-half, -half)
        canvas = np.full((imgsz, imgsz, 3), FILL, np.uint8)
        tiles = [Tile(image, moved @ place) for image, place in zip(shown, placed, strict=True)]
        matrices = geometry.warp_tiles(tiles, canvas)
        boxes, classes, dropped = _move_boxes(pieces, matrices, imgsz)
        if motion.is_sideways:
            classes = swap_classes(classes, settings.flip_swap)
        return _Layer(canvas, boxes, classes, pieces[0], pieces[0].from_stored(matrices[0]), dropped)

    def _crop(self, piece: _Piece, rng: np.random.Generator) -> _Piece:
        if rng.random() >= self.settings.crop:
            return piece
        height, width = piece.stored.shape[:2]
        return piece._replace(window=draw_crop(piece.boxes, width, height, rng))

    def _paste(self, layer: _Layer, key: SampleKey, images: ImageSource, rng: np.random.Generator) -> _Layer:
        """Boxes of a partner, at new places of the layer's own picture."""
        settings = self.settings
        piece = _Piece(*load_partners(key, images, rng, 1)[0])
        gain = settings.imgsz / max(piece.stored.shape[:2]) * (1 + settings.scale * float(rng.uniform(-1, 1)))
        present, labels = Labels(layer.boxes, layer.classes), Labels(piece.boxes, piece.record.classes)
        pasted, is_mirrored = paste_boxes_(
            layer.image, present, piece.stored, labels, gain=gain, mirrored=settings.fliplr, rng=rng
        )
        classes = np.where(is_mirrored, swap_classes(pasted.classes, settings.flip_swap), pasted.classes)
        return replace(
            layer,
            boxes=np.concatenate([layer.boxes, pasted.boxes]),
            classes=np.concatenate([layer.classes, classes]),
        )

    def _degrade(self, image: Image, rng: np.random.Generator) -> Image:
        """In the order in which it happens to a picture: taken, worked on, sent."""
        settings = self.settings
        if settings.gray and rng.random() < settings.gray:
            image = effects.to_gray(image)
        if settings.blur and rng.random() < settings.blur:
            image = effects.blur(image, float(rng.uniform(*effects.BLUR_SIGMAS)))
        if settings.clahe and rng.random() < settings.clahe:
            image = effects.equalize(image, float(rng.uniform(*effects.CLAHE_LIMITS)))
        if settings.jpeg and rng.random() < settings.jpeg:
            image = effects.through_jpeg(image, int(rng.integers(*effects.JPEG_QUALITIES, endpoint=True)))
        return image


class Motion(NamedTuple):
    """A map of the whole canvas."""

    matrix: Matrix
    """(3, 3): coordinates about the middle of a canvas → pixels of the sample."""
    is_sideways: bool
    """Whether it was flipped left to right."""


def random_motion(settings: AugmentSettings, rng: np.random.Generator) -> Motion:
    """Perspective, zoom, rotation, shear, shift and flips."""
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
    return Motion(flip @ geometry.translation(x_middle, y_middle) @ motion, is_sideways)


def _move_boxes(
    pieces: list[_Piece], matrices: list[Matrix], imgsz: int
) -> tuple[NDArray[np.float32], NDArray[np.int64], DroppedBoxes]:
    """The boxes of all tiles in pixels of the sample: (N, 4) xyxy and (N,); and what became of the others."""
    whole, moves = [], []
    for piece, matrix in zip(pieces, matrices, strict=True):
        if piece.window is None:
            height, width = piece.stored.shape[:2]
            whole.append(piece.record.boxes)
            moves.append(matrix * np.array([width, height, 1.0]))  # as `matrix @ scaling(width, height)`
        else:
            whole.append(piece.boxes)
            moves.append(piece.from_stored(matrix))
    moved = geometry.move_all_boxes(whole, moves)
    if all(piece.window is None for piece in pieces):
        clipped = clip_boxes(moved, imgsz, imgsz)
        fate = fate_of_boxes(moved, clipped)
    else:
        left, lost = zip(*map(_cut_by_window, pieces, whole), strict=True)
        clipped = clip_boxes(geometry.move_all_boxes(left, moves), imgsz, imgsz)
        cut = np.concatenate(lost)
        fate = np.where(cut == _KEPT, fate_of_boxes(moved, clipped), cut)
    classes = np.concatenate([piece.record.classes for piece in pieces])
    keep = fate == _KEPT
    return clipped[keep].astype(np.float32), classes[keep], count_dropped(fate)


def _cut_by_window(piece: _Piece, boxes: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.intp]]:
    """What is left of (N, 4) boxes of a piece in its window, and the (N,) fate of each.

    What the window cuts off is lost before the move: turned, the hull of a sliver would be large.
    """
    if piece.window is None:
        return boxes, np.full(len(boxes), _KEPT)
    left = boxes.clip(piece.window[:2] * 2, piece.window[2:] * 2).astype(np.float32)
    return left, fate_of_boxes(boxes, left, least_side=0.0)


def _blend(first: _Layer, second: _Layer, ratio: float) -> _Layer:
    """Both pictures, weighted, with the boxes of both."""
    return _Layer(
        blend(first.image, second.image, ratio),
        np.concatenate([first.boxes, second.boxes]),
        np.concatenate([first.classes, second.classes]),
        first.first,
        first.matrix,
        first.dropped + second.dropped,
    )
