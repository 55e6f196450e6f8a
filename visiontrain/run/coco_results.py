"""`predictions.json`: the detections of a split in the form that COCO's tools read as results."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from visiontrain.config.schema import Config
from visiontrain.data.formats import recognized
from visiontrain.data.formats.coco import CocoIds, coco_ids
from visiontrain.errors import ConfigError
from visiontrain.folders import with_home
from visiontrain.metrics.detections import Detections
from visiontrain.run.class_names import places_of
from visiontrain.run.files import write_whole
from visiontrain.sample import Records

FILE_NAME = "predictions.json"


@dataclass(frozen=True)
class ResultIds:
    """The ids that images and classes have in the file."""

    images: Sequence[Any]
    """In the order of the records."""
    categories: Mapping[int, Any]
    """By the index in the weights' names; a class that the data do not have has none."""


def result_ids(config: Config, records: Records, *, data_names: tuple[str, ...], names: tuple[str, ...]) -> ResultIds:
    """The ids of COCO data are their own; else an image has the stem of its name, as a number where it is one, and a
    class its index in the weights.

    Args:
        config: The settings, by which the records were read.
        records: The split.
        data_names: Class names of the data.
        names: Class names of the weights.

    Raises:
        ConfigError: If two images would have the same id.
        DataError: If a file of the data cannot be read.
    """
    source = with_home(str(config.data))
    found = recognized(source, data_format=config.data_format)
    paths = [record.path for record in records]
    if found is None or found[1] != "coco":
        ids = ResultIds(list(map(_id_of, paths)), {index: index for index in range(len(names))})
    else:
        own = coco_ids(source, config.split)
        categories = _own_categories(own, places_of(data_names, names, config.map_names), data_names)
        ids = ResultIds([own.images[path] for path in paths], {0: 0} if config.single_cls else categories)
    _check_unique(ids.images, paths)
    return ids


def write_results(path: Path, detections: Mapping[int, Detections], ids: ResultIds) -> int:
    """Write the detections of all images, one a line.

    Args:
        path: The file.
        detections: By the place of their image in the records.
        ids: Of the records and classes.

    Returns:
        How many were left out, as their class is none of the data.

    Raises:
        ConfigError: If the file cannot be written.
    """
    rows = [row for place in sorted(detections) for row in _rows(detections[place], ids.images[place], ids.categories)]
    write_whole(path, "[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n")
    return sum(len(found.scores) for found in detections.values()) - len(rows)


def _rows(found: Detections, image: Any, categories: Mapping[int, Any]) -> Iterator[dict[str, Any]]:
    columns = (found.boxes.tolist(), found.scores.tolist(), found.classes.tolist())
    for (x1, y1, x2, y2), score, label in zip(*columns, strict=True):
        if label in categories:
            box = [x1, y1, x2 - x1, y2 - y1]
            yield {"image_id": image, "category_id": categories[label], "bbox": box, "score": score}


def _id_of(path: Path) -> int | str:
    return int(path.stem) if path.stem.isdecimal() else path.stem


def _own_categories(own: CocoIds, places: Sequence[int], data_names: Sequence[str]) -> dict[int, Any]:
    """By the index in the weights' names. Of classes that are one in the weights the first stands for all."""
    categories: dict[int, Any] = {}
    for name, place in zip(data_names, places, strict=True):
        if name in own.categories:
            categories.setdefault(place, own.categories[name])
    return categories


def _check_unique(identifiers: Sequence[Any], paths: Sequence[Path]) -> None:
    first: dict[Any, Path] = {}
    for identifier, path in zip(identifiers, paths, strict=True):
        if first.setdefault(identifier, path) != path:
            raise ConfigError(
                f"save_json: {first[identifier]} and {path} would both be image {identifier!r}; rename one, or "
                "describe the data by a COCO JSON with an id for each"
            )
