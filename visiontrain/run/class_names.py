"""Names of classes where nobody gives any, and where weights and data give different ones or in another order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visiontrain.config.schema import Config
from visiontrain.errors import ConfigError
from visiontrain.sample import DataSet, Record, Records

Names = tuple[str, ...]
USUAL_COUNTS = {"detect": 80, "classify": 1000}
"""Of classes, by task: those of COCO and ImageNet, by which networks are compared."""


def numbered_names(count: int) -> Names:
    """Names for classes of which only the number is known."""
    return tuple(f"class{index}" for index in range(count))


def with_names_of_weights(data: DataSet, names: Names, map_names: str | None) -> DataSet:
    """The data set with the classes of weights, in their order; says what was done.

    Args:
        data: What is to be scored.
        names: Class names of the weights.
        map_names: `name of the data:name of the weights`, with commas between such pairs. Classes of the data that are
            not in it keep their names. Two may become one; some of the weights may then be left over.

    Raises:
        ConfigError: If a class of the data is none of the weights', or, where nothing is mapped, the other way round.
    """
    pairs = _pairs(map_names)
    if data.names == names and not pairs:
        return data
    faults = [
        f"map_names: {whose} have no class {name!r}; they have {', '.join(known)}"
        for whose, known, typed in (("the data", data.names, pairs), ("the weights", names, pairs.values()))
        for name in typed
        if name not in known
    ]
    if faults:
        raise ConfigError(faults)
    meant = [pairs.get(name, name) for name in data.names]
    unknown = [name for name in meant if name not in names]
    left = [] if pairs else [name for name in names if name not in meant]
    if unknown or left:
        raise ConfigError(
            f"data: its classes are {', '.join(data.names)}; those of the weights are {', '.join(names)}: "
            + _remedy(unknown, left)
        )
    notes = [f"classes: {_mapped(pairs)}"] if pairs else []
    if meant != [name for name in names if name in meant]:
        notes.append("classes: the data count them in another order than the weights; they are matched by name")
    unused = [name for name in names if name not in meant]
    if unused:
        notes.append(f"classes: no class of the data is {', '.join(unused)} of the weights")
    places = np.array([names.index(name) for name in meant], dtype=np.int64)
    splits = {split: _renumbered(records, places) for split, records in data.splits.items()}
    return replace(data, names=names, splits=splits, notes=(*data.notes, *notes))


def maps_of_both(first: Names, second: Names, map_names: str | None) -> tuple[str | None, str | None]:
    """What of `map_names` is for each of two weights that are scored on the same data: the names that they have.

    Raises:
        ConfigError: If their classes differ and nothing is mapped, or a name is of neither.
    """
    if map_names is None:
        if set(first) != set(second):
            raise ConfigError(
                f"weights: the classes of the two models differ: {', '.join(first)}; and {', '.join(second)}. Give "
                "map_names=NAME OF THE DATA:NAME OF THE WEIGHTS for each that is called otherwise in one of them"
            )
        return None, None
    pairs = _pairs(map_names)
    faults = [
        f"map_names: neither model has a class {name!r}; they have {', '.join(dict.fromkeys((*first, *second)))}"
        for name in pairs.values()
        if name not in (*first, *second)
    ]
    if faults:
        raise ConfigError(faults)
    kept = (
        ",".join(f"{theirs}:{ours}" for theirs, ours in pairs.items() if ours in names) for names in (first, second)
    )
    for_first, for_second = (text or None for text in kept)
    return for_first, for_second


def places_of(data_names: Names, names: Names, map_names: str | None) -> tuple[int, ...]:
    """The index in the weights' classes of each class of the data; `map_names` is in order."""
    pairs = _pairs(map_names)
    return tuple(names.index(pairs.get(name, name)) for name in data_names)


def with_indices_of_weights(config: Config, data_names: Names, names: Names) -> Config:
    """`config`, in which the classes that were typed by number are those numbers of the weights.

    What the weights' own training tells counts as the weights do already.

    Args:
        config: The settings; its `map_names` is in order.
        data_names: As the data list them, which is how a user counts.
        names: As the weights do.

    Raises:
        ConfigError: If there are not as many class weights as classes, or two of them would become one.
    """
    pairs = _pairs(config.map_names)
    places = [names.index(pairs.get(name, name)) for name in data_names]
    changed: dict[str, Any] = {}
    if config.flip_swap and config.is_typed("flip_swap"):
        changed["flip_swap"] = tuple(places[index] for index in config.flip_swap)
    if isinstance(config.class_weights, tuple) and config.is_typed("class_weights"):
        changed["class_weights"] = _replaced(config.class_weights, places, data_names, names)
    return replace(config, **changed)


def _replaced(weights: tuple[float, ...], places: Sequence[int], data_names: Names, names: Names) -> tuple[float, ...]:
    """Class weights in the order of the weights' classes; 1 for those that the data do not have."""
    if len(weights) != len(data_names):
        raise ConfigError(
            f"class_weights: {len(weights)} are given for {len(data_names)} classes; give one for each of "
            f"{', '.join(data_names)}"
        )
    found: dict[int, float] = {}
    for place, weight in zip(places, weights, strict=True):
        if found.setdefault(place, weight) != weight:
            raise ConfigError(
                f"class_weights: {found[place]:g} and {weight:g} are for classes that map_names makes {names[place]} "
                "of the weights; give them the same"
            )
    return tuple(found.get(place, 1.0) for place in range(len(names)))


def _pairs(text: str | None) -> Mapping[str, str]:
    """From names of the data to names of the weights."""
    pairs: dict[str, str] = {}
    for pair in (text or "").split(",") if text else ():
        theirs, colon, ours = (part.strip() for part in pair.partition(":"))
        if not (theirs and colon and ours):
            raise ConfigError(
                f"map_names = {text}: {pair.strip()!r} is not two names; write name of the data:name of the weights, "
                "with commas between such pairs"
            )
        if theirs in pairs:
            raise ConfigError(f"map_names = {text}: {theirs!r} stands on the left twice; map it once")
        pairs[theirs] = ours
    return pairs


def _renumbered(records: Records, places: NDArray[np.int64]) -> Records:
    def renumbered(record: Record) -> Record:
        record = record.with_classes(lambda classes: places[classes])
        return record if len(record.boxes) else replace(record, classes=np.unique(record.classes))  # of a class once

    return Records([renumbered(record) for record in records])


def _remedy(unknown: Sequence[str], left: Sequence[str]) -> str:
    if unknown:
        return (
            f"{', '.join(unknown)} must be told of which class of the weights it is, such as "
            f"map_names={unknown[0]}:{(left or ['NAME'])[0]}; to learn new classes, train with model=WEIGHTS"
        )
    return (
        f"no class of the data is {', '.join(left)}; a data set of fewer classes is scored with map_names=NAME:NAME "
        "for one of its classes"
    )


def _mapped(pairs: Mapping[str, str]) -> str:
    return ", ".join(f"{theirs} of the data is {ours} of the weights" for theirs, ours in pairs.items())
