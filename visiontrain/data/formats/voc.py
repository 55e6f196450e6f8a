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
    given_names,
    key_notes,
    load_yaml,
    yaml_of,
)
from visiontrain.data.formats.files import Remarks, exists, folder_listing, is_file, visible_files
from visiontrain.data.formats.pixels import LabelledImage, class_list, make_splits, missing_fault
from visiontrain.data.formats.voc_file import VocFile, read_voc
from visiontrain.data.images import IMAGE_SUFFIXES, MAX_PIXELS
from visiontrain.errors import DataError
from visiontrain.findings import Findings
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
    notes: Sequence[str] = ()


class VocReader:
    """Reads the Pascal VOC format. A `Reader`."""

    def recognizes(self, source: Path) -> bool:
        described = described_format(source)
        if described is not None:
            return described == "voc"
        return source.is_dir() and bool(_found_parts(source.absolute()))

    def read(self, source: Path, splits: Sequence[str], *, max_pixels: int = MAX_PIXELS) -> DataSet:
        """Read those of `splits` that there are files for.

        The class list is what the objects of train (of the first split there is) are called, by the alphabet; the
        other splits are matched to it by name.

        Args:
            source: A folder: `Annotations/` with images in `JPEGImages/` and lists in `ImageSets/Main/`, or
                `train/`, `valid/`, `test/`, or XML files beside images; or a YAML whose splits name such lists or
                folders, which may give the class list as `names` and the images as `train_images`.
            splits: Of `train`, `val`, `test`.
            max_pixels: A larger image is left out.

        Raises:
            DataError: If no split can be read, or their classes differ; all faults at once.
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
        findings = Findings()
        faults: list[str] = []
        remarks_of = {split: Remarks(split, findings if split in wanted else Findings(), faults) for split in needed}
        images_of = {split: _label_images(layout.parts[split], remarks_of[split]) for split in needed}
        if not any(images_of.values()):
            raise DataError(faults)
        names_of = {
            split: sorted({box.name for image in images for box in image.boxes}) for split, images in images_of.items()
        }
        try:
            names = class_list(names_of, layout.names, source, word="classes")
        except DataError as error:
            raise DataError([*faults, *error.faults]) from error
        wanted_images = {split: images_of[split] for split in wanted if images_of[split]}
        found = make_splits(wanted_images, names, remarks_of, are_sizes=False, max_pixels=max_pixels)
        if not found:
            raise DataError(faults)
        return DataSet(source, names, found, tuple(layout.notes), findings, tuple(faults))


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
    return Layout(parts, names, key_notes(description, path))


def _described_part(what: str, entry: Path, image_folder: Path | None) -> Part:
    """The part of a split that an entry of the YAML stands for: a list file, or a folder."""
    if not exists(entry):
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


def _label_images(parts: Sequence[Part], remarks: Remarks) -> list[LabelledImage]:
    """The images of a split with their boxes."""
    labelled: list[LabelledImage] = []
    without: list[Path] = []
    for part in parts:
        try:
            images, unlabelled = _label_part(part, remarks)
        except DataError as error:
            remarks.faults.extend(error.faults)
            continue
        labelled += images
        without += unlabelled
    folder = parts[0].xml_folder
    if without and len(without) == len(labelled) and remarks.split == "train":
        first = without[0]
        remarks.add("label-missing-all", first, text=f"looked for in {folder}", count=len(without))
        remarks.refuse(
            f"none of its {len(without)} images has an XML file; for {first.name} {first.stem}.xml was looked for in "
            f"{folder}; put it there; {folder_listing(folder)}"
        )
    elif without:
        told = f"{len(without)} of {len(labelled)}, such as {without[0].name}"
        remarks.add("label-missing", folder, text=told, count=len(without))
    return labelled


def _label_part(part: Part, remarks: Remarks) -> tuple[list[LabelledImage], list[Path]]:
    """The images of a part with their boxes, and those of them that have no XML file."""
    images = _images_by_stem(part.image_folder)
    xml_of = {path.stem: path for path in visible_files(part.xml_folder, ".xml")}
    stems = _listed(part.list_file) if part.list_file else [(stem, None) for stem in sorted(xml_of)]
    labelled: list[LabelledImage] = []
    without: list[Path] = []
    missing: list[str] = []
    unreadable: set[Path] = set()
    num_faults = len(remarks.faults)
    for stem, line in stems:
        try:
            file = read_voc(xml_of[stem], remarks, next(iter(images.get(stem, ())), None)) if stem in xml_of else None
        except DataError as error:
            unreadable.update(images.get(stem, ()))
            remarks.add("label-unreadable", xml_of[stem], text=str(error).removeprefix(f"{xml_of[stem]}: "))
            remarks.faults.extend(error.faults)
            continue
        path = _image_of(stem, file, images, part.image_folder)
        if path is None:
            is_elsewhere = file is not None and file.file_name and Path(file.file_name).stem != stem
            missing.append(f"{stem} (or {file.file_name})" if file and is_elsewhere else stem)
            where = (xml_of[stem], None) if stem in xml_of else (part.list_file, line)
            remarks.add("image-missing", *where, text=missing[-1])
            continue
        labelled.append(LabelledImage(path, file.boxes if file else (), file.told_size if file else None))
        if file is None:
            without.append(path)
    if part.list_file is None:
        claimed = {image.path for image in labelled} | unreadable
        without = [path for paths in images.values() for path in paths if path not in claimed]
        labelled += [LabelledImage(path, (), None) for path in without]
        labelled.sort(key=lambda image: image.path)
    if missing:
        place = part.list_file or part.xml_folder
        remedy = (
            f"they were looked for in {part.image_folder}; fetch them, take them out of {place.name}, or give their "
            f"folder as `{remarks.split}_images` in a YAML"
        )
        remarks.faults.append(f"{place}: {remarks.split}: {missing_fault(missing, len(stems), remedy)}")
    if not labelled and len(remarks.faults) == num_faults:
        place = part.list_file or part.image_folder
        remarks.faults.append(f"{place}: {remarks.split} has no images; list or put at least one there")
    return labelled, without


def _image_of(stem: str, file: VocFile | None, images: Mapping[str, list[Path]], folder: Path) -> Path | None:
    """The image of an XML file: the one of the same name, or else the one that it names."""
    candidates = images.get(stem, [])
    named = folder / file.file_name if file and file.file_name else None
    if named is not None and (named in candidates or not candidates):
        return named if is_file(named) and named.suffix.lower() in IMAGE_SUFFIXES else None
    return candidates[0] if candidates else None


def _listed(path: Path) -> list[tuple[str, int | None]]:
    """The images that a list file names, without suffix, each with its line."""
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read ({error}); save it as UTF-8 text") from error
    names = [(Path(line.strip().replace("\\", "/")), number) for number, line in enumerate(lines, 1) if line.strip()]
    suffixes = {*IMAGE_SUFFIXES, ".xml"}
    return [(name.stem if name.suffix.lower() in suffixes else name.name, number) for name, number in names]
