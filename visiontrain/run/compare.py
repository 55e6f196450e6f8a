"""`visiontrain compare`: scores two models on one split, and tells whether they differ by more than chance.

Both see the same images, and their difference is resampled with them: what makes an image hard for both cancels.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from visiontrain.config.schema import Config
from visiontrain.errors import ConfigError, UserError
from visiontrain.protocols import Judged
from visiontrain.run.class_names import maps_of_both, places_of, with_names_of_weights
from visiontrain.run.comparison import Comparison, compare_metrics
from visiontrain.run.files import as_json, write_json
from visiontrain.run.new_folder import new_folder
from visiontrain.run.prepare import read_data, split_of
from visiontrain.run.val import ScoredModel, load_for_scoring, scoring

# What decides which images there are and how they are labelled: for both models as in the first one's training.
_OF_THE_DATA = ("data", "data_format", "val_fraction", "seed", "single_cls", "multi_label", "max_pixels")
FILE_NAME = "compare.json"


def compare(config: Config) -> None:
    """The command."""
    compare_run(config)


def compare_run(config: Config, *, is_silent: bool = False) -> Comparison:
    """Score `model` (a) and `weights` (b) on `split` of `data`, and print what they differ in unless `is_silent`.

    What is not typed is for each as in its own training; the data are those of a.

    Raises:
        UserError: If the input is wrong; no folder was made then.
    """
    a, b = _load_both(config)
    data = read_data(a.config, a.task, (config.split,))
    maps = maps_of_both(a.names, b.names, config.map_names)
    records_a, records_b = (
        split_of(with_names_of_weights(data, model.names, mapped), config.split)
        for model, mapped in zip((a, b), maps, strict=True)
    )
    classes = _classes_of_both(data.names, (a.names, b.names), maps)
    with (
        scoring(a, records_a) as scorer_a,
        scoring(b, records_b) as scorer_b,
        new_folder(a.config) as folder,
    ):
        found_a, _ = scorer_a.score(a.network)
        found_b, _ = scorer_b.score(b.network)
        comparison = compare_metrics(
            cast(Judged, found_a),
            cast(Judged, found_b),
            called=(str(config.model), str(config.weights)),
            split=config.split,
            ranking=a.task.ranking,
            classes=classes,
        )
        write_json(folder / FILE_NAME, comparison.document())
    if not is_silent:
        ending = f"{config.split} split of {a.config.data}, {comparison.images} images; run {folder}"
        lines = [*data.messages, *comparison.lines(), ending]
        print(as_json(comparison.document()) if config.json else "\n".join(lines))
    return comparison


def _load_both(config: Config) -> tuple[ScoredModel, ScoredModel]:
    """Both models, with the settings that each is scored by.

    Raises:
        UserError: If one cannot be used, or they are for different tasks; all faults at once.
    """
    missing = [
        f"{key}: is not given; type both weights files, such as visiontrain compare first.pt second.pt"
        for key in ("model", "weights")
        if getattr(config, key) is None
    ]
    if missing:
        raise ConfigError(missing)
    loaded: list[ScoredModel] = []
    faults: list[str] = []
    for key in ("model", "weights"):
        path = getattr(config, key)
        try:
            of_data = {key: getattr(loaded[0].config, key) for key in _OF_THE_DATA} if loaded else {}
            one = load_for_scoring(replace(config, model=path).decide(**of_data))
            loaded.append(replace(one, config=one.config.decide(**of_data)))
        except UserError as error:
            # What loads a model calls it `model`; here that may be the other file.
            faults += [re.sub(r"^model\b", key, fault) for fault in error.faults]
    if faults:
        raise ConfigError(dict.fromkeys(faults))
    a, b = loaded
    if a.task.name != b.task.name:
        raise ConfigError(
            f"weights = {config.weights!r}: is for {b.task.name}, and model = {config.model!r} for {a.task.name}; "
            "compare two of one task"
        )
    return a, b


def _classes_of_both(
    data_names: tuple[str, ...], names: Sequence[tuple[str, ...]], maps: Sequence[str | None]
) -> dict[str, tuple[int, int]]:
    """The index in both weights of each class of the data; of those that are one there, the first gives the name.

    Raises:
        ConfigError: If two of them are one class in one model and two in the other.
    """
    in_a, in_b = (places_of(data_names, each, mapped) for each, mapped in zip(names, maps, strict=True))
    places: dict[tuple[int, int], str] = {}
    for name, pair in zip(data_names, zip(in_a, in_b, strict=True), strict=True):
        places.setdefault(pair, name)
    if not len(places) == len(set(in_a)) == len(set(in_b)):
        raise ConfigError(
            f"map_names: the data's classes {', '.join(data_names)} become {len(set(in_a))} in one model and "
            f"{len(set(in_b))} in the other, whose scores tell different things; map them alike"
        )
    return {name: pair for pair, name in places.items()}
