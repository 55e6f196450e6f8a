"""The Pascal VOC format: one XML file of boxes for each image, and lists of the images of each split.

This file finds the XML files and images of each split; `voc_file` reads one file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from visiontrain.data.formats.description import (
    LIST_FOLDER,
    SPLIT_KEYS,
    described_entries,
    described_format,
    download_notes,
    given_names,
    load_yaml,
    yaml_of,
)
from visiontrain.data.formats.files import Remarks, folder_listing, visible_files
from visiontrain.data.formats.pixels import LabelledImage, class_list, left_out, make_splits, missing_fault
from visiontrain.data.formats.voc_file import VocFile, read_voc
from visiontrain.data.images import IMAGE_SUFFIXES
from visiontrain.errors import DataError
from visiontrain.sample import DataSet

XML_FOLDERS = ("Annotations", "annotations")
IMAGE_FOLDERS = ("JPEGImages", "images", "Images")


@dataclass(frozen=True)
class Part:
    """XML files and the images they belong to."""

    xml_folder: Path
    image_folder: Path
    list_file: Path | None = None
    """Names the images, one a line without suffix; None takes all of the folders."""


@dataclass(frozen=True)
class Layout:
    """What each split is made of, and the class list if one was given."""

    parts: Mapping[str, Sequence[Part]]
    names: tuple[str, ...] | None = None
    messages: Sequence[str] = ()


class VocReader:
    """Reads the Pascal VOC format. A `Reader`."""

    def recognizes(self, source: Path) -> bool:
        described = described_format(source)
        if described is not None:
            return described == "voc"
        return source.is_dir() and bool(_found_parts(source.absolute()))

    def read(self, source: Path, splits: Sequence[str]) -> DataSet:
        """Read those of `splits` that there are files for.

        The class list is what the objects of train (of the first split there is) are called, by the alphabet; the
        other splits are matched to it by name.

        Args:
            source: A folder: `Annotations/` with images in `JPEGImages/` and lists in `ImageSets/Main/`, or
                `train/`, `valid/`, `test/`, or XML files beside images; or a YAML whose splits name such lists or
                folders, which may give the class list as `names` and the images as `train_images`.
            splits: Of `train`, `val`, `test`.

        Raises:
            DataError: If a file or folder is wrong; all faults at once.
        """
        layout = _find_layout(source)
        wanted = [split for split in SPLIT_KEYS if split in splits and split in layout.parts]
        if not wanted:
            raise DataError(
                f"{source}: has {' and '.join(layout.parts)}, but no {' or '.join(splits)}; choose another split, or "
                f"list its images in {LIST_FOLDER}/Main"
            )
        leading = next(split for split in SPLIT_KEYS if split in layout.parts)
        needed = [split for split in SPLIT_KEYS if split in wanted or (split == leading and layout.names is None)]
        messages = [*layout.messages]
        faults: list[str] = []
        remarks_of = {split: Remarks() for split in needed}
        images_of: dict[str, list[LabelledImage]] = {}
        for split in needed:
            told = messages if split in wanted else []
            images_of[split], found_faults = _label_images(split, layout.parts[split], remarks_of[split], told)
            faults += found_faults
        if faults:
            raise DataError(faults)
        names_of = {
            split: sorted({box.name for image in images for box in image.boxes}) for split, images in images_of.items()
        }
        names = class_list(names_of, layout.names, source, word="classes")
        wanted_images = {split: images_of[split] for split in wanted}
        found = make_splits(wanted_images, names, messages, remarks_of, are_sizes=False)
        return DataSet(source, names, found, tuple(messages), left_out(wanted_images, found))


def _find_layout(source: Path) -> Layout:
    if described_format(source) == "voc" or source.is_file():
        return _described_layout(yaml_of(source))
    parts = _found_parts(source.absolute())
    if not parts:
        raise DataError(
            f"{source}: holds no XML files, neither itself nor in {XML_FOLDERS[0]}/, train/, valid/ or test/; "
            f"{folder_listing(source)}"
        )
    return Layout({split: [part] for split, part in parts.items()})


def _described_layout(path: Path) -> Layout:
    """What a YAML names."""
    description = load_yaml(path)
    names = given_names(description, path)
    entries, faults = described_entries(description, path)
    parts: dict[str, list[Part]] = {}
    for split, what, entry, folder in entries:
        try:
            parts.setdefault(split, []).append(_described_part(what, entry, folder))
        except DataError as error:
            faults.extend(error.faults)
    if faults:
        raise DataError(faults)
    if not parts:
        raise DataError(f"{path}: names no split; `train: {LIST_FOLDER}/Main/train.txt` would name one")
    return Layout(parts, names, download_notes(description, path))


def _described_part(what: str, entry: Path, image_folder: Path | None) -> Part:
    """The part of a split that an entry of the YAML stands for: a list file, or a folder."""
    if not entry.exists():
        raise DataError(f"{what}: there is no {entry}; {folder_listing(entry.parent)}")
    bases = [entry] if entry.is_dir() else list(entry.absolute().parents)[:3]  # root/ImageSets/Main/train.txt
    part = next((part for part in map(_part_of, bases) if part), None)
    if part is None:
        raise DataError(
            f"{what}: {bases[-1]} holds no XML files, neither itself nor in {XML_FOLDERS[0]}/; "
            f"{folder_listing(bases[-1])}"
        )
    return Part(part.xml_folder, image_folder or part.image_folder, None if entry.is_dir() else entry)


def _found_parts(root: Path) -> dict[str, Part]:
    """What each split of a folder without YAML is made of, by its lists or else by its subfolders."""
    whole = _part_of(root)
    if whole is not None:
        listed: dict[str, Part] = {}
        for split, words in SPLIT_KEYS.items():
            files = [root / LIST_FOLDER / "Main" / f"{word}.txt" for word in words]
            file = next(filter(Path.is_file, files), None)
            if file is not None:
                listed[split] = Part(whole.xml_folder, whole.image_folder, file)
        if listed:
            return listed
    parts: dict[str, Part] = {}
    for split, words in SPLIT_KEYS.items():
        part = next((part for part in (_part_of(root / word) for word in words) if part), None)
        if part is not None:
            parts[split] = part
    return parts or ({"train": whole} if whole else {})


def _part_of(folder: Path) -> Part | None:
    """The XML files and images of one folder; None where it has no XML files."""
    xml_folder = next((place for place in (*(folder / name for name in XML_FOLDERS), folder) if _has_xml(place)), None)
    if xml_folder is None:
        return None
    places = [*(folder / name for name in IMAGE_FOLDERS), folder, xml_folder]
    image_folder = next((place for place in places if place.is_dir() and _images_by_stem(place)), places[0])
    return Part(xml_folder, image_folder)


def _has_xml(folder: Path) -> bool:
    return bool(visible_files(folder, ".xml"))


def _images_by_stem(folder: Path) -> dict[str, list[Path]]:
    found: dict[str, list[Path]] = {}
    for path in visible_files(folder, *IMAGE_SUFFIXES):
        found.setdefault(path.stem, []).append(path)
    return found


def _label_images(
    split: str, parts: Sequence[Part], remarks: Remarks, messages: list[str]
) -> tuple[list[LabelledImage], list[str]]:
    """The images of a split with their boxes, and what is wrong with it."""
    labelled: list[LabelledImage] = []
    faults: list[str] = []
    without: list[Path] = []
    for part in parts:
        try:
            images, unlabelled = _label_part(split, part, remarks)
        except DataError as error:
            faults.extend(error.faults)
            continue
        labelled += images
        without += unlabelled
    if without and len(without) == len(labelled) and split == "train" and not faults:
        faults.append(
            f"{split}: none of its {len(without)} images has an XML file; for {without[0].name} {without[0].stem}.xml "
            f"was looked for in {parts[0].xml_folder}; put it there; {folder_listing(parts[0].xml_folder)}"
        )
    elif without:
        messages.append(
            f"{split}: {parts[0].xml_folder}: {len(without)} of {len(labelled)} images have no XML file and count as "
            "background"
        )
    return labelled, faults


def _label_part(split: str, part: Part, remarks: Remarks) -> tuple[list[LabelledImage], list[Path]]:
    """The images of a part with their boxes, and those of them that have no XML file."""
    images = _images_by_stem(part.image_folder)
    xml_of = {path.stem: path for path in visible_files(part.xml_folder, ".xml")}
    stems = _listed(part.list_file) if part.list_file else sorted(xml_of)
    labelled: list[LabelledImage] = []
    without: list[Path] = []
    missing: list[str] = []
    faults: list[str] = []
    for stem in stems:
        try:
            file = read_voc(xml_of[stem], remarks) if stem in xml_of else None
        except DataError as error:
            faults.extend(error.faults)
            continue
        path = _image_of(stem, file, images, part.image_folder)
        if path is None:
            is_elsewhere = file is not None and file.file_name and Path(file.file_name).stem != stem
            missing.append(f"{stem} (or {file.file_name})" if file and is_elsewhere else stem)
            continue
        labelled.append(LabelledImage(path, file.boxes if file else (), file.told_size if file else None))
        if file is None:
            without.append(path)
    if part.list_file is None:
        claimed = {image.path for image in labelled}
        without = [path for paths in images.values() for path in paths if path not in claimed]
        labelled += [LabelledImage(path, (), None) for path in without]
        labelled.sort(key=lambda image: image.path)
    if missing:
        where = part.list_file or part.xml_folder
        remedy = (
            f"they were looked for in {part.image_folder}; fetch them, take them out of {where.name}, or give their "
            f"folder as `{split}_images` in a YAML"
        )
        faults.append(f"{where}: {missing_fault(split, missing, len(stems), remedy)}")
    if not labelled and not faults:
        faults.append(f"{part.list_file or part.image_folder}: {split} has no images; list or put at least one there")
    if faults:
        raise DataError(faults)
    return labelled, without


def _image_of(stem: str, file: VocFile | None, images: Mapping[str, list[Path]], folder: Path) -> Path | None:
    """The image of an XML file: the one of the same name, or else the one that it names."""
    candidates = images.get(stem, [])
    named = folder / file.file_name if file and file.file_name else None
    if named is not None and (named in candidates or not candidates):
        return named if named.is_file() and named.suffix.lower() in IMAGE_SUFFIXES else None
    return candidates[0] if candidates else None


def _listed(path: Path) -> list[str]:
    """The images that a list file names, without suffix."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read ({error}); save it as UTF-8 text") from error
    names = [Path(line.strip().replace("\\", "/")) for line in lines if line.strip()]
    return [name.stem if name.suffix.lower() in {*IMAGE_SUFFIXES, ".xml"} else name.name for name in names]
