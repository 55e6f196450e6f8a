"""The YAML file that describes a data set: its class names, and what each split is made of.

All formats share it. A split that names JSON files is COCO, one that names lists of a folder `ImageSets` is Pascal
VOC, anything else is YOLO.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import yaml

from visiontrain.data.formats.files import SHOWN, folder_listing, is_folder
from visiontrain.errors import DataError
from visiontrain.folders import with_home

YAML_NAMES = ("data.yaml", "data.yml", "dataset.yaml", "dataset.yml")
YAML_SUFFIXES = (".yaml", ".yml")
SPLIT_KEYS = {"train": ("train",), "val": ("val", "valid", "validation"), "test": ("test",)}
"""Each split and the keys it goes by."""
LIST_FOLDER = "ImageSets"
"""Where Pascal VOC keeps its lists of images."""


def described_format(source: Path) -> Literal["yolo", "coco", "voc"] | None:
    """The format that a YAML, or the folder that holds one, describes; None without a YAML."""
    if source.is_dir():
        if not any((source / name).is_file() for name in YAML_NAMES):
            return None
    elif source.suffix.lower() not in YAML_SUFFIXES:
        return None
    try:
        description = load_yaml(yaml_of(source))
    except DataError:
        return "yolo"  # whose reader tells what is wrong
    entries = [entry for keys in SPLIT_KEYS.values() for key in keys for entry in _texts(description.get(key))]
    if any(entry.lower().endswith(".json") for entry in entries):
        return "coco"
    if any(LIST_FOLDER in Path(entry).parts and entry.lower().endswith(".txt") for entry in entries):
        return "voc"
    return "yolo"


def _texts(value: Any) -> Sequence[str]:
    values = value if isinstance(value, list) else [value]
    return [entry for entry in values if isinstance(entry, str)]


def yaml_of(source: Path) -> Path:
    """The YAML that describes a data set: `source` itself, or the one that the folder `source` holds.

    Raises:
        DataError: If the folder holds none.
    """
    if not source.is_dir():
        return source
    for name in YAML_NAMES:
        if (source / name).is_file():
            return source / name
    raise DataError(f"{source}: holds no {YAML_NAMES[0]}; {folder_listing(source)}")


def load_yaml(path: Path) -> Mapping[str, Any]:
    """The keys and values of a YAML file.

    Raises:
        DataError: If it cannot be read, or holds something else.
    """
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
    return with_home(filled)


def root_of(description: Mapping[str, Any], path: Path) -> Path:
    """The folder that splits are relative to: `path`, itself relative to the YAML's own folder.

    Raises:
        DataError: If there is no such folder.
    """
    folder = path.absolute().parent
    text = description.get("path")
    if text is None or text == "":
        return folder
    if not isinstance(text, str):
        raise DataError(f"{path}: path = {text!r} is not a text; it is the folder that holds the data set")
    root = Path(os.path.normpath(folder / _expanded(text, path)))
    if not is_folder(root):
        raise DataError(
            f"{path}: path = {text!r}: there is no folder {root}; "
            f"it is relative to the folder of the YAML; {folder_listing(root.parent)}"
        )
    return root


def entries_of(description: Mapping[str, Any], split: str, path: Path) -> list[tuple[str, Path]]:
    """What a split is made of, as written and as a path; none where the split is left out.

    Raises:
        DataError: If the split has two keys, or an entry is not a text.
    """
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


class Entry(NamedTuple):
    """One entry of a split."""

    split: str
    what: str
    """As it stands in the YAML, for messages."""
    path: Path
    """Absolute."""
    image_folder: Path | None
    """Where its images lie, if the YAML says so."""


def described_entries(description: Mapping[str, Any], path: Path) -> tuple[list[Entry], list[str]]:
    """Every entry of every split that names label files, and what is wrong with the others.

    Raises:
        DataError: If the folder of the data set does not exist.
    """
    root = root_of(description, path)
    found: list[Entry] = []
    faults: list[str] = []
    for split in SPLIT_KEYS:
        try:
            entries = entries_of(description, split, path)
            folders = image_folders_of(description, split, root, path, len(entries))
        except DataError as error:
            faults.extend(error.faults)
            continue
        for (what, entry), folder in zip(entries, folders, strict=True):
            found.append(Entry(split, what, Path(os.path.normpath(root / entry)), folder))
    return found, faults


def given_names(description: Mapping[str, Any], path: Path) -> tuple[str, ...] | None:
    """The class list of a format whose labels hold the names themselves; None where the YAML gives none.

    Raises:
        DataError: If there is a number of classes without their names, or `read_names` finds a fault.
    """
    if description.get("names") is not None:
        return read_names(description, path)
    if description.get("nc") is not None:
        raise DataError(f"{path}: nc = {description['nc']!r} has no effect without names; give names, or leave out nc")
    return None


def key_notes(description: Mapping[str, Any], path: Path) -> list[str]:
    """What is told of keys without effect: one that says how to fetch the data, and those that are unknown."""
    known = [*SPLIT_KEYS, "path", "names", "nc"]
    splits = [word for words in SPLIT_KEYS.values() for word in words]
    silent = {*known, *splits, *(f"{word}_images" for word in splits), "download", "suggested"}
    unknown = [str(key) for key in description if key not in silent]
    notes = [f"{path}: keys {', '.join(unknown)}: not used; it may have {', '.join(known)}"] if unknown else []
    if description.get("download"):
        notes.append(f"{path}: `download` is never run; fetch the data yourself where they are missing")
    return notes


def refuse_image_folders(description: Mapping[str, Any], path: Path) -> None:
    """Raises DataError if a YAML that names the images themselves gives folders of images besides."""
    keys = [f"{key}_images" for words in SPLIT_KEYS.values() for key in words if f"{key}_images" in description]
    if keys:
        raise DataError(
            f"{path}: {' and '.join(keys)} would have no effect, because no split names a JSON file (COCO) or a list "
            f"of {LIST_FOLDER} (Pascal VOC); leave out the key, or name such a file"
        )


def image_folders_of(
    description: Mapping[str, Any], split: str, root: Path, path: Path, num_entries: int
) -> list[Path | None]:
    """The folder of images of each entry of a split, from `<split>_images`; None where the YAML names none.

    One folder serves all entries, several are for one entry each.

    Raises:
        DataError: If a folder does not exist, there are neither one nor `num_entries`, or the split is left out.
    """
    keys = [f"{key}_images" for key in SPLIT_KEYS.get(split, (split,))]
    key = next((key for key in keys if description.get(key) is not None), None)
    if key is None:
        return [None] * num_entries
    if not num_entries:
        raise DataError(f"{path}: {key} is given, but no {split}; name its label files, or leave out {key}")
    value = description[key]
    texts = _texts(value)
    if len(texts) not in (1, num_entries) or len(texts) != (len(value) if isinstance(value, list) else 1):
        raise DataError(
            f"{path}: {key} = {value!r}; it should be one folder, or a list of {num_entries}: one for each entry of "
            f"{split}"
        )
    folders = [Path(os.path.normpath(root / _expanded(text, path))) for text in texts]
    faults = [
        f"{path}: {key} = {text!r}: there is no folder {folder}; it is relative to `path` or else to the folder of the "
        f"YAML; {folder_listing(folder.parent)}"
        for text, folder in zip(texts, folders, strict=True)
        if not is_folder(folder)
    ]
    if faults:
        raise DataError(faults)
    return [*folders] if len(folders) == num_entries else [folders[0]] * num_entries
