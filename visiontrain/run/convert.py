"""`visiontrain convert`: weights of other programs, listed and made a checkpoint, without running their code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor

from visiontrain.config.schema import Config
from visiontrain.engine.checkpoint import save_checkpoint, weights_of
from visiontrain.errors import ConfigError
from visiontrain.export.onnx_network import SUFFIX as ONNX_SUFFIX
from visiontrain.loggers.tables import align
from visiontrain.models.anatomy import anatomy_of
from visiontrain.models.matching import UNLEARNED, Form, Matching, described, match_weights
from visiontrain.models.network import Network
from visiontrain.models.pretrained import listed
from visiontrain.models.weights import MOST_CLASSES, SAFETENSORS_SUFFIX, WeightsFile, read_weights_file
from visiontrain.protocols import Task
from visiontrain.run.choose_task import with_task
from visiontrain.run.class_names import USUAL_COUNTS, numbered_names
from visiontrain.run.files import as_json, write_json
from visiontrain.run.prepare import WEIGHTS_SUFFIXES, fresh_network, make_folder, task_of
from visiontrain.run.resuming import stored_args, versions

CONVERTED = "converted.pt"
NO_NETWORKS = (*WEIGHTS_SUFFIXES, ".pkl", SAFETENSORS_SUFFIX, ONNX_SUFFIX)
"""Suffixes of files that hold weights, and so are none of `model`."""
MOST_TRIED = 8
"""Numbers of classes."""
MOST_KINDS_SHOWN = 20


@dataclass(frozen=True)
class ConvertResult:
    """What was found and made."""

    found: WeightsFile
    matching: Matching | None
    """None where the file was only listed."""
    document: Mapping[str, Any]
    """That of `json=True`."""
    weights: Path | None
    """The checkpoint, where a network was named."""


def convert(config: Config) -> None:
    """The command."""
    convert_run(config)


def convert_run(config: Config, *, is_silent: bool = False) -> ConvertResult:
    """List what `weights` holds and, where `model` names a network, write it as a checkpoint of that.

    Args:
        config: The settings.
        is_silent: Whether nothing is printed at all.

    Raises:
        UserError: If the file cannot be read, or does not fill the network; no folder was made then.
    """
    _check_keys(config)
    where = f"weights = {config.weights!r}"
    found = read_weights_file(str(config.weights), where=where)
    lines = _found_lines(found)
    if config.model is None:
        document = {"weights": str(config.weights), **_found_document(found)}
        _tell(config, document, [*lines, "name a network to convert them: model=det-n"], is_silent=is_silent)
        return ConvertResult(found, None, document, None)
    config = with_task(config)
    task = task_of(config)
    if config.imgsz is None:
        config = config.decide(imgsz=task.default_imgsz)
    outlines = _Outlines(config, task)
    names, matching = _best_fit(config, task, found, outlines)
    _check_complete(config, outlines, names, matching, where)
    network = fresh_network(config, task, names)
    _load_(network, matching, found.tensors, where)
    folder = make_folder(config)
    path = folder / "weights" / CONVERTED
    path.parent.mkdir(exist_ok=True)
    document = {
        "weights": str(config.weights),
        **_found_document(found),
        "matches": [match._asdict() for match in matching.matches],
        "missing": list(matching.missing),
        "unused": [_shown(name) for name in matching.unused],
        "names": list(network.names),
        "converted": str(path),
    }
    write_json(folder / "convert.json", document)
    save_checkpoint(path, _checkpoint(config, task, network))
    _tell(config, document, [*lines, *_matching_lines(network, matching, path)], is_silent=is_silent)
    return ConvertResult(found, matching, document, path)


def _check_keys(config: Config) -> None:
    faults = []
    if config.weights is None:
        faults.append("weights: is not given; name the file of weights to read, such as weights=file.pt")
    if config.model is None:
        faults += [
            f"{key}: has no effect without a network; name one, such as model=det-n"
            for key in ("mapping", "data")
            if getattr(config, key) is not None
        ]
    elif Path(config.model).suffix in NO_NETWORKS:
        faults.append(
            f"model = {config.model!r}: is a file of weights; name the network that they are for, such as det-n"
        )
    if faults:
        raise ConfigError(faults)


def _best_fit(config: Config, task: Task, found: WeightsFile, outlines: _Outlines) -> tuple[tuple[str, ...], Matching]:
    """The names of the classes, as many as most of the file fits to, and what fits."""
    mapping = None if config.mapping is None else _read_mapping(Path(config.mapping))
    theirs = {name: _form(tensor) for name, tensor in found.tensors.items()}
    names = _known_names(config, task, found)
    candidates = [names] if names else [numbered_names(count) for count in _likely_counts(outlines, theirs, task)]
    best: tuple[tuple[str, ...], Matching] | None = None
    fault: ConfigError | None = None
    for candidate in candidates:
        try:
            matching = match_weights(outlines.of(len(candidate)), theirs, mapping)
        except ConfigError as error:  # of the mapping, perhaps for another number of classes only
            if fault is None or len(error.faults) < len(fault.faults):
                fault = error
            continue
        if best is None or len(matching.missing) < len(best[1].missing):
            best = candidate, matching
    if best is None:
        assert fault is not None, "there is always a candidate"
        raise fault
    return best


class _Outlines:
    """The tensors of a network for any classes."""

    def __init__(self, config: Config, task: Task) -> None:
        self._config = config
        self._task = task
        self._known: dict[int, dict[str, Form]] = {}

    def of(self, num_classes: int) -> dict[str, Form]:
        """Each tensor's form, by name."""
        if num_classes not in self._known:
            network = fresh_network(self._config, self._task, numbered_names(num_classes))
            self._known[num_classes] = {name: _form(tensor) for name, tensor in network.state_dict().items()}
        return self._known[num_classes]

    def of_classes(self) -> dict[str, Form]:
        """Those tensors whose form depends on the number of classes."""
        return {name: form for name, form in self.of(2).items() if self.of(3).get(name) != form}

    def of_backbone(self) -> frozenset[str]:
        """The names of those that are there before anything of the task."""
        network = fresh_network(self._config, self._task, numbered_names(2))
        anatomy = anatomy_of(network)
        return frozenset(name for name in network.state_dict() if anatomy.layer_of(name) < anatomy.num_backbone)


def _read_mapping(path: Path) -> dict[str, str | None]:
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ConfigError(f"mapping = {str(path)!r}: cannot be read ({reason}); name a YAML file") from error
    is_plain = isinstance(values, dict) and all(
        isinstance(name, str) and (target is None or isinstance(target, str)) for name, target in values.items()
    )
    if not is_plain or not values:
        raise ConfigError(
            f"mapping = {str(path)!r}: should hold one `their name: our name` a line (`their name: null` leaves a "
            "tensor out)"
        )
    return dict(values)


def _known_names(config: Config, task: Task, found: WeightsFile) -> tuple[str, ...] | None:
    """Of the classes, as the file or the data tell.

    Raises:
        ConfigError: If both tell, and differ.
    """
    if config.data is None:
        return found.names
    names = task.read(config, ("train",)).names
    if found.names not in (None, names):
        raise ConfigError(
            f"data: its classes are {listed(list(names))}; those of the weights are {listed(list(found.names or ()))}: "
            "leave data out, and train from what is converted"
        )
    return names


def _likely_counts(outlines: _Outlines, theirs: Mapping[str, Form], task: Task) -> list[int]:
    """Numbers of classes that the file may be for: those for which it holds all the tensors that depend on them.

    The last in the file come first, and at the end the usual number.
    """
    needed = Counter((form[0][1:], form[1]) for form in outlines.of_classes().values())
    given = Counter(theirs.values())
    sizes = dict.fromkeys(form[0][0] for form in list(theirs.values())[::-1] if form[0])
    fitting = [
        size
        for size in sizes
        if all(given[(size, *rest), is_floating] >= count for (rest, is_floating), count in needed.items())
    ]
    likely = [size for size in fitting if 0 < size <= MOST_CLASSES][:MOST_TRIED]
    return [*likely, USUAL_COUNTS[task.name]]


def _check_complete(
    config: Config, outlines: _Outlines, names: tuple[str, ...], matching: Matching, where: str
) -> None:
    """Raises ConfigError if what is missing would leave a network that was not trained.

    Where it is to be trained, on the classes of `data`, rows of classes may be missing; and all but the backbone, if
    that is there as a whole and the file has nothing else of the network.
    """
    if not any(not match.ours.endswith(UNLEARNED) for match in matching.matches):
        raise ConfigError(
            f"{where}: none of its tensors fits {config.model}; name the network that they are for, or pair names with "
            f"mapping=FILE.yaml (visiontrain convert weights={config.weights} lists them)"
        )
    matched, forgiven = {match.ours for match in matching.matches}, set[str]()
    is_backbone = _without_counts(matched) == _without_counts(outlines.of_backbone())
    if config.data is not None:
        forgiven = set(outlines.of(len(names))) - matched if is_backbone else set(outlines.of_classes())
    missing = [name for name in matching.missing if not name.endswith(UNLEARNED) and name not in forgiven]
    if missing:
        forms = outlines.of(len(names))
        count = sum(not name.endswith(UNLEARNED) for name in forms)
        if is_backbone:
            raise ConfigError(
                f"{where}: fills the backbone of {config.model} and nothing else ({count - len(missing)} of {count} "
                "tensors); name the data that the rest is to be trained on, data=my.yaml, or train with "
                f"pretrained={config.weights} at once"
            )
        examples = listed([f"{name} {described(forms[name])}" for name in missing])
        raise ConfigError(
            f"{where}: lacks {len(missing)} of the {count} tensors of {config.model} ({examples}); pair names with "
            f"mapping=FILE.yaml (visiontrain convert weights={config.weights} lists those of the file), or train with "
            "pretrained= to begin with those that fit"
        )


def _without_counts(names: Iterable[str]) -> set[str]:
    return {name for name in names if not name.endswith(UNLEARNED)}


def _load_(network: Network, matching: Matching, tensors: Mapping[str, Tensor], where: str) -> None:
    """Copy what was matched. Raises ConfigError if it holds NaN or infinity."""
    own = network.state_dict()
    with torch.no_grad():
        for match in matching.matches:
            own[match.ours].copy_(tensors[match.theirs])
    spoiled = [match.theirs for match in matching.matches if not bool(torch.isfinite(own[match.ours]).all())]
    if spoiled:
        names = listed([_shown(name) for name in spoiled])
        raise ConfigError(f"{where}: {len(spoiled)} tensors are not finite ({names}); use weights of an earlier epoch")


def _checkpoint(config: Config, task: Task, network: Network) -> dict[str, Any]:
    return {
        "task": task.name,
        "model": weights_of(network),
        "ema": None,
        "metrics": {},
        "args": stored_args(config),
        "names": list(network.names),
        "network": network.description,
        "versions": versions(),
    }


def _form(tensor: Tensor) -> Form:
    return tuple(tensor.shape), tensor.is_floating_point()


def _found_document(found: WeightsFile) -> dict[str, Any]:
    return {
        "form": found.form,
        "found": [
            {"name": _shown(name), "shape": list(tensor.shape), "dtype": _dtype(tensor)}
            for name, tensor in found.tensors.items()
        ],
        "not_run": {_shown(kind): count for kind, count in found.not_run.items()},
        "class_names": None if found.names is None else list(found.names),
    }


def _found_lines(found: WeightsFile) -> list[str]:
    rows = [
        (_shown(name), "×".join(map(str, tensor.shape)) or "1", _dtype(tensor))
        for name, tensor in found.tensors.items()
    ]
    lines = [align([("tensor", "shape", "type"), *rows])]
    numbers = sum(tensor.numel() for tensor in found.tensors.values())
    lines.append(f"{len(rows)} tensors of {numbers:,} numbers; form: {found.form}")
    if found.names is not None:
        lines.append(f"{len(found.names)} classes: {listed(list(found.names))}")
    if found.not_run:
        kinds = [f"{_shown(kind)} × {count}" for kind, count in list(found.not_run.items())[:MOST_KINDS_SHOWN]]
        more = len(found.not_run) - len(kinds)
        lines.append("not run: " + ", ".join(kinds) + (f" and {more} more classes" if more else ""))
    return lines


def _matching_lines(network: Network, matching: Matching, path: Path) -> list[str]:
    rows = [(match.ours, _shown(match.theirs), match.how) for match in matching.matches]
    lines = ["", align([("tensor", "from", "by"), *rows])]
    for kind, names in (("left fresh", matching.missing), ("unused", matching.unused)):
        named = [_shown(name) for name in names if not name.endswith(UNLEARNED)]
        if named:
            lines.append(f"{len(named)} {kind}: {listed(named)}" + "; train them" * (kind == "left fresh"))
    return [*lines, f"{len(network.names)} classes: {listed(list(network.names))}", f"written: {path}"]


def _tell(config: Config, document: Mapping[str, Any], lines: list[str], *, is_silent: bool) -> None:
    if not is_silent:
        print(as_json(document) if config.json else "\n".join(lines))


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _shown(name: str) -> str:
    """A name from a file, without what a terminal would obey."""
    return name if name.isprintable() else ascii(name)
