"""The YOLO text format: a `data.yaml`, folders of images, and one text file of boxes for each image.

This file reads the YAML and finds the images of each split; `yolo_labels` finds and reads the label files.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from visiontrain.data.formats.files import SHOWN, Remarks, find_images, folder_listing, read_sizes
from visiontrain.data.formats.yolo_labels import LabelFinder, LabelReader
from visiontrain.errors import DataError
from visiontrain.sample import DataSet, Record, Records

YAML_NAMES = ("data.yaml", "data.yml", "dataset.yaml", "dataset.yml")
YAML_SUFFIXES = (".yaml", ".yml")
SPLIT_KEYS = {"train": ("train",), "val": ("val", "valid", "validation"), "test": ("test",)}
"""Each split and the keys it goes by."""


class YoloReader:
    """Reads the YOLO text format. A `Reader`."""

    def recognizes(self, source: Path) -> bool:
        if source.is_dir():
            return any((source / name).is_file() for name in YAML_NAMES)
        return source.suffix.lower() in YAML_SUFFIXES

    def read(self, source: Path, splits: Sequence[str]) -> DataSet:
        """Read those of `splits` that the YAML names.

        Args:
            source: The YAML, or a folder that holds it under one of `YAML_NAMES`.
            splits: Of `train`, `val`, `test`.

        Raises:
            DataError: If the YAML, a folder or a label is wrong; all faults at once.
        """
        yaml_path = _yaml_of(source)
        description = _load_yaml(yaml_path)
        names = read_names(description, yaml_path)
        root, messages = _root_of(description, yaml_path), list[str]()
        if description.get("download"):
            messages.append(f"{yaml_path}: `download` is never run; fetch the data yourself where they are missing")
        found: dict[str, Records] = {}
        faults: list[str] = []
        for split in splits:
            try:
                entries = _entries_of(description, split, yaml_path)
                records = _read_split(split, entries, root, names, messages) if entries else None
            except DataError as error:
                faults.extend(error.faults)
                continue
            if records is not None:
                found[split] = records
        if faults:
            raise DataError(faults)
        if not found:
            raise DataError(
                f"{yaml_path}: names no images for {' or '.join(splits)}; give the key a folder that holds images"
            )
        return DataSet(source, names, found, tuple(messages))


def _yaml_of(source: Path) -> Path:
    if not source.is_dir():
        return source
    for name in YAML_NAMES:
        if (source / name).is_file():
            return source / name
    raise DataError(f"{source}: holds no {YAML_NAMES[0]}; {folder_listing(source)}")


def _load_yaml(path: Path) -> Mapping[str, Any]:
    try:
        description = yaml.safe_load(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise DataError(f"{path}: cannot be read as YAML ({' '.join(str(error).split())}); mend the file") from error
    if not isinstance(description, dict):
        raise DataError(f"{path}: holds {type(description).__name__}, not keys with values; it needs train and names")
    return description


def read_names(description: Mapping[str, Any], path: Path) -> tuple[str, ...]:
    """Class names in the order of their indices, from `names` (list or mapping) and `nc` (a number).

    Raises:
        DataError: If names are missing, have gaps, occur twice, are not texts, or do not agree with `nc`.
    """
    names, count = description.get("names"), description.get("nc")
    if count is not None and (not isinstance(count, int) or isinstance(count, bool) or count < 1):
        raise DataError(f"{path}: nc = {count!r} is not a positive integer; it is the number of classes")
    if names is None and count is not None:
        return tuple(f"class{index}" for index in range(count))
    if isinstance(names, dict):
        names = _names_in_order(names, path)
    if not isinstance(names, list) or not names:
        raise DataError(f"{path}: names = {names!r}; it should be a list of class names, or a mapping 0: name, 1: name")
    odd = [name for name in names if isinstance(name, bool) or not isinstance(name, (str, int, float))]
    if odd:
        raise DataError(f"{path}: names holds {odd[0]!r}, which YAML does not read as a text; put the name in quotes")
    texts = tuple(str(name) for name in names)
    twice = sorted({text for text in texts if texts.count(text) > 1})
    if twice:
        raise DataError(f"{path}: names holds {', '.join(map(repr, twice))} more than once; each class needs its own")
    if count is not None and count != len(texts):
        raise DataError(
            f"{path}: nc = {count}, but names has {len(texts)} entries; correct one of them or leave out nc"
        )
    return texts


def _names_in_order(names: Mapping[Any, Any], path: Path) -> list[Any]:
    try:
        by_index = {int(index): name for index, name in names.items()}
    except (TypeError, ValueError) as error:
        raise DataError(f"{path}: names has the keys {list(names)[:SHOWN]}; they should be 0, 1, 2, …") from error
    missing = sorted(set(range(len(names))) - set(by_index))
    if missing:
        raise DataError(
            f"{path}: names has the keys {sorted(by_index)}; they should run from 0 to {len(names) - 1} without gaps"
        )
    return [by_index[index] for index in range(len(names))]


def _expanded(text: str, path: Path) -> Path:
    """A path of the YAML with `~` and `${VARIABLE}` filled in."""
    filled = os.path.expandvars(text)
    if "$" in filled:
        raise DataError(f"{path}: {text!r} names an environment variable that is not set; set it or write the path")
    return Path(filled).expanduser()


def _root_of(description: Mapping[str, Any], path: Path) -> Path:
    """The folder that splits are relative to: `path`, itself relative to the YAML's own folder."""
    folder = path.absolute().parent
    text = description.get("path")
    if text is None or text == "":
        return folder
    if not isinstance(text, str):
        raise DataError(f"{path}: path = {text!r} is not a text; it is the folder that holds the data set")
    root = Path(os.path.normpath(folder / _expanded(text, path)))
    if not root.is_dir():
        raise DataError(
            f"{path}: path = {text!r}: there is no folder {root}; "
            f"it is relative to the folder of the YAML; {folder_listing(root.parent)}"
        )
    return root


def _entries_of(description: Mapping[str, Any], split: str, path: Path) -> list[tuple[str, Path]]:
    """The folders and list files of a split, as written and expanded; none where the split is left out."""
    given = [(key, description[key]) for key in SPLIT_KEYS.get(split, (split,)) if key in description]
    given = [(key, value) for key, value in given if value is not None and value is not False and value != ""]
    if not given:
        return []
    if len(given) > 1:
        raise DataError(f"{path}: {' and '.join(key for key, _ in given)} mean the same split; keep one of them")
    key, value = given[0]
    values = value if isinstance(value, list) else [value]
    odd = [entry for entry in values if not isinstance(entry, str)]
    if odd:
        raise DataError(
            f"{path}: {key} = {odd[0]!r}; it should be a folder, a list of folders or a text file of image paths "
            "(false or nothing leaves the split out)"
        )
    return [(f"{path}: {key} = {entry!r}", _expanded(entry, path)) for entry in values]


def _read_split(
    split: str, entries: list[tuple[str, Path]], root: Path, names: tuple[str, ...], messages: list[str]
) -> Records | None:
    """Read the images and labels of one split. None where it is empty and may be (not `train`)."""
    remarks = Remarks()
    faults: list[str] = []
    paths: list[Path] = []
    for what, entry in entries:
        try:
            images = _images_of(what, entry, root, remarks)
        except DataError as error:
            faults.extend(error.faults)
            continue
        if not images:
            messages.append(f"{what}: holds no images")
        paths.extend(images)
    if faults:
        raise DataError(faults)
    if not paths:
        if split == "train":
            raise DataError([f"{what}: holds no images; name a folder that does" for what, _ in entries])
        return None
    twice = len(paths) - len(set(paths))
    if twice:
        messages.append(f"{split}: {twice} images are listed more than once; each is used as often as it is listed")
    finder, reader = LabelFinder(paths), LabelReader(len(names), remarks)
    finder.check(split, messages)
    records: list[Record] = []
    sizes = read_sizes(paths, remarks)
    for path, size in zip(paths, sizes, strict=True):
        if size is None:
            continue
        label_path = finder.find(path)
        boxes, classes = reader.read(label_path) if label_path else reader.nothing()
        records.append(Record(path, *size, boxes, classes))
    reader.check(split)
    messages.extend(remarks.lines(split))
    if not records:
        raise DataError(f"{split}: none of the {len(paths)} images can be read; the first is {paths[0]}")
    return Records(records)


def _images_of(what: str, entry: Path, root: Path, remarks: Remarks) -> list[Path]:
    """The images that one entry of a split stands for."""
    tried = [Path(os.path.normpath(root / entry))]
    inside = [part for part in entry.parts if part != ".."]
    if entry.parts[:1] == ("..",) and inside:  # written by exporters for a reader that starts one folder deeper
        tried.append(root.joinpath(*inside))
    for path in tried:
        if path.is_dir():
            return find_images(path, remarks)
        if path.suffix.lower() == ".txt" and path.is_file():
            return _listed_images(what, path, root)
        if path.is_file():
            raise DataError(f"{what}: {path} is a file; it should be a folder or a .txt file of image paths")
    raise DataError(
        f"{what}: there is no {' and no '.join(map(str, tried))}; "
        f"it is relative to `path` or else to the folder of the YAML; {folder_listing(tried[0].parent)}"
    )


def _listed_images(what: str, list_file: Path, root: Path) -> list[Path]:
    """The images that a list file names, one a line, relative to its own folder or to the root."""
    try:
        lines = list_file.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{what}: {list_file} cannot be read ({error}); save it as UTF-8 text") from error
    found: list[Path] = []
    missing: list[str] = []
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text:
            continue
        places = [Path(os.path.normpath(folder / text)) for folder in (list_file.parent, root)]
        path = next((place for place in places if place.is_file()), None)
        if path is None:
            missing.append(f"{list_file}:{number}: {text!r}, looked for as {' and '.join(map(str, places))}")
        else:
            found.append(path)
    if missing:
        shown = "; ".join(missing[:SHOWN]) + ("; …" if len(missing) > SHOWN else "")
        raise DataError(f"{what}: {len(missing)} of the images listed do not exist: {shown}; correct the list")
    return found
