"""Draw the bundled sample sets: colored circles, squares, triangles and stars on cluttered ground.

    python data/make_shapes.py [FOLDER]

`shapes` is for detection. `shapes_classify` holds one shape to a picture, in a folder of its class.

Every picture is a function of (seed, split, index) and, in `shapes_classify`, its class, so the same versions of numpy
and OpenCV write the same bytes.
A picture is a ground, a pile of layers from bottom to top, and the light and noise of a camera. A layer is an object
of a class or clutter of none (bars, crosses, rings); one that would hide too much of another is placed anew. Boxes
are tight around the pixels of an object that remain visible, and every object in sight has one.

Shapes are outlined in pixels of the picture and filled on a canvas `OVERSAMPLING` times as fine.
"""

from __future__ import annotations

import argparse
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

Image = NDArray[np.uint8]
Plane = NDArray[np.float32]
Outline = NDArray[np.float64]
"""(P, 2) corners x, y of a polygon, pixels of the picture."""

NAMES = ("circle", "square", "triangle", "star")
SPLITS = {"train": 512, "val": 128}
SIZE = 128
EPOCHS = 10
CLASSIFY_SPLITS = {"train": 128, "val": 32}
"""Pictures of each class."""
CLASSIFY_SIZE = 64
"""Pixels; drawn at `SIZE` and reduced."""
CLASSIFY_EPOCHS = 15
SEED = 20240601
OVERSAMPLING = 4
LEAST_SIZE, MOST_SIZE = 22.0, 64.0
MOST_OBJECTS = 5
CLASSIFY_LEAST_SIZE, CLASSIFY_MOST_SIZE = 44.0, 96.0
CLASSIFY_PLACES = (0.35 * SIZE, 0.65 * SIZE)
"""Where the middle of the one shape lies: it is hardly cut off."""
LEAST_VISIBLE = 0.7
"""Share of a shape's area that stays in sight; with less of it in sight classes could not be told apart."""
LEAST_SIDE = 9
"""Pixels of the shorter side of a box."""
LEAST_CONTRAST = 90.0
"""Distance in RGB between a layer and what it is painted on."""
HUES = {"circle": 0.0, "square": 0.33, "triangle": 0.61, "star": 0.14}
"""The hue that most objects of a class are near, as a share of the color circle: red, green, blue, yellow. As with
fruit or traffic signs, color tells most of the class; what color alone cannot tell is left to the shape."""
HUE_SPREAD = 0.03
LEAST_SATURATION, LEAST_VALUE = 0.6, 0.55
ODD_COLORED = 0.04
"""Share of objects that have any color."""
TRIES = 60
JPEG_QUALITY = 85


@dataclass(frozen=True)
class Layer:
    """A shape in place."""

    label: int | None
    """Index into `NAMES`; None for clutter."""
    coverage: Plane
    """(SIZE, SIZE) share of each pixel that the shape covers, in [0, 1]."""
    area: float
    """Pixels of the whole shape, also beyond the picture's edge."""
    color: Plane
    """(3,) BGR, 0 to 255."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw the bundled sample sets again.")
    parser.add_argument("folder", nargs="?", type=Path, default=Path(__file__).parent, help="where both are written")
    folder = parser.parse_args().folder
    draw_data_set(folder / "shapes")
    draw_classify_set(folder / "shapes_classify")


def draw_data_set(folder: Path, splits: dict[str, int] = SPLITS) -> None:
    """Write `data.yaml`, `images/` and `labels/` of all splits below `folder`; `splits` holds pictures per split."""
    for split, count in splits.items():
        (folder / "images" / split).mkdir(parents=True, exist_ok=True)
        (folder / "labels" / split).mkdir(parents=True, exist_ok=True)
        for index in range(count):
            image, rows = draw_picture(split, index)
            _write_jpeg(folder / "images" / split / f"{index:04d}.jpg", image)
            _write_text(folder / "labels" / split / f"{index:04d}.txt", "".join(f"{row}\n" for row in rows))
    names = "".join(f"  {index}: {name}\n" for index, name in enumerate(NAMES))
    _write_text(
        folder / "data.yaml",
        "# Drawn by make_shapes.py in the folder above; MIT.\n"
        "path: .\ntrain: images/train\nval: images/val\n"
        f"names:\n{names}"
        "# Used where nothing else is typed.\n"
        f"suggested:\n  imgsz: {SIZE}\n  epochs: {EPOCHS}\n",
    )


def draw_classify_set(folder: Path, splits: dict[str, int] = CLASSIFY_SPLITS) -> None:
    """Write `data.yaml` and a folder for each split and class; `splits` holds pictures per split and class."""
    for split, count in splits.items():
        for label, name in enumerate(NAMES):
            (folder / split / name).mkdir(parents=True, exist_ok=True)
            for index in range(count):
                image = draw_classify_picture(split, label, index)
                _write_jpeg(folder / split / name / f"{index:04d}.jpg", image)
    _write_text(
        folder / "data.yaml",
        "# Drawn by make_shapes.py in the folder above; MIT.\n"
        "path: .\ntrain: train\nval: val\n"
        "# Used where nothing else is typed.\n"
        f"suggested:\n  imgsz: {CLASSIFY_SIZE}\n  epochs: {CLASSIFY_EPOCHS}\n",
    )


def draw_picture(split: str, index: int) -> tuple[Image, list[str]]:
    """Draw one picture.

    Returns:
        (SIZE, SIZE, 3) BGR, and its label rows `class cx cy w h` in fractions of the picture.
    """
    rng = np.random.default_rng([SEED, zlib.crc32(split.encode()), index])
    canvas = _draw_ground(rng)
    layers = _pile_layers(rng, canvas)
    for layer in layers:
        _paint_(canvas, layer, rng)
    rows = [
        _label_row(layer.label, visible)
        for layer, visible in zip(layers, _visible_masks(layers), strict=True)
        if layer.label is not None
    ]
    return _photograph(canvas, rng), rows


def draw_classify_picture(split: str, label: int, index: int) -> Image:
    """Draw one picture of a class, over clutter: (CLASSIFY_SIZE, CLASSIFY_SIZE, 3) BGR."""
    rng = np.random.default_rng([SEED, zlib.crc32(split.encode()), label, index])
    canvas = _draw_ground(rng)
    layers: list[Layer] = []
    for _ in range(int(rng.integers(0, 5))):
        layers.append(_propose_clutter(rng, canvas, layers))
    size = float(rng.uniform(CLASSIFY_LEAST_SIZE, CLASSIFY_MOST_SIZE))
    layers.append(_make_layer(rng, label, size, CLASSIFY_PLACES, canvas, layers))
    for layer in layers:
        _paint_(canvas, layer, rng)
    picture = cv2.resize(_photograph(canvas, rng), (CLASSIFY_SIZE, CLASSIFY_SIZE), interpolation=cv2.INTER_AREA)
    return np.asarray(picture, np.uint8)


def _pile_layers(rng: Generator, canvas: Plane) -> list[Layer]:
    """Place layers one on the other so that each stays recognizable."""
    num_objects = int(rng.integers(1, MOST_OBJECTS + 1))
    num_clutter = int(rng.integers(0, 5))
    is_object = rng.permutation([True] * num_objects + [False] * num_clutter)
    is_object[np.argmax(is_object)], is_object[0] = is_object[0], True  # a first object always finds its place
    layers: list[Layer] = []
    for wanted in is_object:
        for _ in range(TRIES):
            layer = _propose_layer(rng, canvas, layers) if wanted else _propose_clutter(rng, canvas, layers)
            if _is_fair([*layers, layer]):
                layers.append(layer)
                break
    return layers


def _is_fair(layers: list[Layer]) -> bool:
    for layer, visible in zip(layers, _visible_masks(layers), strict=True):
        if layer.label is None:
            continue
        x1, y1, x2, y2 = _tight_box(visible)
        if visible.sum() < LEAST_VISIBLE * layer.area or min(x2 - x1, y2 - y1) < LEAST_SIDE:
            return False
    return True


def _visible_masks(layers: list[Layer]) -> list[NDArray[np.bool_]]:
    """(SIZE, SIZE) for each layer: the pixels in which no later layer hides it."""
    hidden = np.zeros((SIZE, SIZE), np.bool_)
    masks = []
    for layer in reversed(layers):
        covered = layer.coverage >= 0.5
        masks.append(covered & ~hidden)
        hidden |= covered
    return masks[::-1]


def _tight_box(mask: NDArray[np.bool_]) -> tuple[int, int, int, int]:
    """Edges x1, y1, x2, y2 of the pixels set; all 0 where none is."""
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    if not len(rows):
        return 0, 0, 0, 0
    return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1


def _label_row(label: int, visible: NDArray[np.bool_]) -> str:
    x1, y1, x2, y2 = (edge / SIZE for edge in _tight_box(visible))
    return f"{label} {(x1 + x2) / 2:.6f} {(y1 + y2) / 2:.6f} {x2 - x1:.6f} {y2 - y1:.6f}"


# --- shapes -----------------------------------------------------------------------------------------------------------


def _propose_layer(rng: Generator, canvas: Plane, layers: list[Layer]) -> Layer:
    label = int(rng.integers(len(NAMES)))
    size = LEAST_SIZE + (MOST_SIZE - LEAST_SIZE) * float(rng.random()) ** 1.5  # more small ones than large
    # A star's points are the first to get lost in few pixels, and a triangle fills little of its circle.
    size = max(size, LEAST_SIZE + 4.0) if NAMES[label] in ("triangle", "star") else size
    return _make_layer(rng, label, size, (0, SIZE), canvas, layers)


def _make_layer(
    rng: Generator, label: int, size: float, places: tuple[float, float], canvas: Plane, layers: list[Layer]
) -> Layer:
    """An object of a class, at any angle, whose middle's coordinates are both within `places`."""
    outline = _OUTLINES[NAMES[label]](rng) * size / 2
    outline = outline @ _rotation(rng.uniform(0, 2 * np.pi)) + rng.uniform(*places, 2)
    coverage = _fill([outline])
    colors = _any_colors(rng) if rng.random() < ODD_COLORED else _colors_near(rng, HUES[NAMES[label]])
    return Layer(label, coverage, _area(outline), _contrasting_color(colors, canvas, layers, coverage))


def _propose_clutter(rng: Generator, canvas: Plane, layers: list[Layer]) -> Layer:
    kind = rng.choice(["bar", "cross", "ring"])
    turn, place = _rotation(rng.uniform(0, 2 * np.pi)), rng.uniform(0, SIZE, 2)
    if kind == "ring":
        radius = rng.uniform(8, 22)
        coverage = np.maximum(_fill([_circle() * radius + place]) - _fill([_circle() * radius * 0.72 + place]), 0)
    else:
        length, thickness = rng.uniform(20, 90) if kind == "bar" else rng.uniform(10, 36), rng.uniform(2, 5)
        bar = np.array([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]]) * [length / 2, thickness / 2]
        parts = [bar] if kind == "bar" else [bar, bar[:, ::-1]]
        coverage = np.maximum.reduce([_fill([part @ turn + place]) for part in parts])
    color = _contrasting_color(_any_colors(rng), canvas, layers, coverage)
    return Layer(None, coverage, float(coverage.sum()), color)


def _circle(rng: Generator | None = None) -> Outline:
    angles = np.arange(64) * (2 * np.pi / 64)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def _square(rng: Generator) -> Outline:
    aspect = rng.uniform(0.85, 1.18)
    corners = np.array([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]]) * [aspect, 1 / aspect]
    return corners * 0.8


def _triangle(rng: Generator) -> Outline:
    angles = np.deg2rad(np.array([90.0, 210.0, 330.0]) + rng.uniform(-12, 12, 3))
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def _star(rng: Generator) -> Outline:
    angles = np.arange(10) * (np.pi / 5)
    radii = np.where(np.arange(10) % 2, rng.uniform(0.38, 0.5), 1.0)
    return np.stack([np.cos(angles) * radii, np.sin(angles) * radii], axis=1)


_OUTLINES: dict[str, Callable[[Generator], Outline]] = {
    "circle": _circle,
    "square": _square,
    "triangle": _triangle,
    "star": _star,
}
"""Outlines around 0 that fit a circle of radius about 1."""


def _rotation(angle: float) -> NDArray[np.float64]:
    return np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])


def _area(outline: Outline) -> float:
    """Area of a polygon by the shoelace formula."""
    x, y = outline.T
    return float(abs(np.dot(x, np.roll(y, 1)) - np.dot(y, np.roll(x, 1))) / 2)


def _fill(outlines: list[Outline]) -> Plane:
    """(SIZE, SIZE) share of each pixel that polygons cover."""
    fine = np.zeros((SIZE * OVERSAMPLING, SIZE * OVERSAMPLING), np.uint8)
    # OpenCV counts from the center of the first pixel, pictures from its edge.
    corners = [np.round(outline * OVERSAMPLING - 0.5).astype(np.int32) for outline in outlines]
    cv2.fillPoly(fine, corners, 255)
    coarse = cv2.resize(fine, (SIZE, SIZE), interpolation=cv2.INTER_AREA)
    return (coarse / 255).astype(np.float32)


# --- paint and light --------------------------------------------------------------------------------------------------


def _draw_ground(rng: Generator) -> Plane:
    """(SIZE, SIZE, 3) BGR, 0 to 255: a gradient with soft blobs and fine lines."""
    first = np.clip(rng.uniform(40, 215) + rng.normal(0, 22, 3), 20, 235)  # rather grey: objects are colorful
    second = np.clip(first + rng.normal(0, 30, 3), 20, 235)
    ramp = _ramp(rng)[..., None]
    ground = (first * (1 - ramp) + second * ramp).astype(np.float32)
    blobs = np.zeros_like(ground)
    for _ in range(int(rng.integers(0, 7))):
        center = [int(value) for value in rng.integers(0, SIZE, 2)]
        shift = [float(value) for value in rng.normal(0, 22, 3)]
        cv2.circle(blobs, center, int(rng.integers(5, 26)), shift, cv2.FILLED)
    ground += cv2.GaussianBlur(blobs, (0, 0), float(rng.uniform(2, 7)))
    for _ in range(int(rng.integers(0, 6))):
        ends = [int(value) for value in rng.integers(0, SIZE, 4)]
        shade = [float(value) for value in np.clip(first + rng.normal(0, 35, 3), 0, 255)]
        cv2.line(ground, ends[:2], ends[2:], shade, 1, cv2.LINE_AA)
    return np.clip(ground, 0, 255)


def _any_colors(rng: Generator) -> Plane:
    """(24, 3) BGR."""
    return rng.uniform(10, 245, (24, 3)).astype(np.float32)


def _colors_near(rng: Generator, hue: float) -> Plane:
    """(24, 3) BGR of about one hue, of any strength and brightness."""
    hues = (hue + rng.normal(0, HUE_SPREAD, 24)) % 1 * 360
    hsv = np.stack([hues, rng.uniform(LEAST_SATURATION, 1, 24), rng.uniform(LEAST_VALUE, 1, 24)], axis=1)
    return cv2.cvtColor(hsv[None].astype(np.float32), cv2.COLOR_HSV2BGR)[0] * np.float32(255)


def _contrasting_color(colors: Plane, canvas: Plane, layers: list[Layer], coverage: Plane) -> Plane:
    """The first of `colors` that is distant enough from all that lies under or beside a layer, or the most distant."""
    near = cv2.dilate(coverage, np.ones((5, 5), np.uint8)) > 0
    grounds = [canvas[near].mean(axis=0)] if near.any() else []
    grounds += [layer.color for layer in layers if (layer.coverage[near] >= 0.5).any()]
    if not grounds:
        return colors[0]
    distances = np.linalg.norm(colors[:, None] - np.stack(grounds)[None], axis=2).min(axis=1)
    enough = np.flatnonzero(distances >= LEAST_CONTRAST)
    return colors[enough[0] if len(enough) else int(distances.argmax())]


def _paint_(canvas: Plane, layer: Layer, rng: Generator) -> None:
    """Blend a softly shaded layer into `canvas`, sometimes with a darker rim."""
    shade = rng.uniform(0, 0.25) * (_ramp(rng) - 0.5) + 1
    if rng.random() < 0.3:
        inner = cv2.erode(layer.coverage, np.ones((3, 3), np.uint8))
        shade = shade * np.where(inner < 0.5, 0.75, 1.0)
    paint = np.clip(layer.color * shade[..., None], 0, 255)
    alpha = layer.coverage[..., None]
    canvas += alpha * (paint - canvas)


def _photograph(canvas: Plane, rng: Generator) -> Image:
    """Uneven light, a little blur and noise, 8 bits."""
    light = rng.uniform(0.75, 1.15) + rng.uniform(0, 0.35) * (_ramp(rng) - 0.5)
    picture = canvas * light[..., None]
    if rng.random() < 0.5:
        picture = cv2.GaussianBlur(picture, (0, 0), float(rng.uniform(0.3, 0.8)))
    picture = picture + rng.normal(0, rng.uniform(0, 6), picture.shape)
    return np.clip(np.round(picture), 0, 255).astype(np.uint8)


def _ramp(rng: Generator) -> Plane:
    """(SIZE, SIZE) rising from 0 to 1 in a random direction."""
    angle = rng.uniform(0, 2 * np.pi)
    y, x = np.mgrid[0:SIZE, 0:SIZE] / (SIZE - 1) - 0.5
    along = np.cos(angle) * x + np.sin(angle) * y
    return ((along - along.min()) / (along.max() - along.min())).astype(np.float32)


def _write_jpeg(path: Path, image: Image) -> None:
    encoded = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])[1]
    path.write_bytes(encoded.tobytes())


def _write_text(path: Path, text: str) -> None:
    # Not `write_text`, which would write other line ends on Windows.
    path.write_bytes(text.encode("utf-8"))


if __name__ == "__main__":
    main()
