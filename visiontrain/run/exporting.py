"""Write a file in another format under a temporary name, compare it, and only then give it its name."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from visiontrain.config.schema import Config
from visiontrain.decode import decode_detections
from visiontrain.errors import ConfigError
from visiontrain.export.formats import FORMATS, Format
from visiontrain.export.onnx_file import add_suppression
from visiontrain.export.onnx_network import OnnxNetwork
from visiontrain.export.parity import Difference, compare_detections, compare_runs
from visiontrain.export.program import Program
from visiontrain.export.suppression import DETECTIONS, Suppression
from visiontrain.loggers.tables import align
from visiontrain.models.network import Network
from visiontrain.protocols import Task
from visiontrain.run.choose_task import with_task
from visiontrain.run.export_metadata import metadata_of
from visiontrain.run.files import as_json
from visiontrain.run.parity_images import RealImages, batches_of, real_images
from visiontrain.run.prepare import check_image_size, load_model, task_of
from visiontrain.run.val import with_training_args
from visiontrain.tasks.detect import VISIBLE_CONF

TAKEN_OVER = ("data", "data_format", "imgsz", "single_cls", "max_pixels")
"""Arguments of training that are taken over where they are not typed."""
BATCHES = (1, 4)
"""Images at once, in turn."""
# Keys that have an effect on some formats only.
_OF_FORMATS: Mapping[str, tuple[str, ...]] = {
    "opset": ("onnx",),
    "simplify": ("onnx",),
    "nms": ("onnx",),
    "dynamic": ("onnx", "torchscript", "exported_program"),
}
_OF_SUPPRESSION = ("conf", "iou", "max_det")


@dataclass(frozen=True)
class Exported:
    """What became of an export."""

    path: Path
    """The file, which is there only if the check was passed."""
    differences: tuple[Difference, ...]

    @property
    def is_passed(self) -> bool:
        return all(difference.is_passed for difference in self.differences)


def write_checked(config: Config) -> Exported:
    """Export `config.model` beside itself, unless what the file gives is not what the network gives.

    Raises:
        UserError: If the input is wrong; no file was written then.
    """
    config = with_task(config)
    task = task_of(config)
    loaded = load_model(config, task)
    config = with_training_args(config, loaded, TAKEN_OVER)
    check_image_size(config, loaded.network)
    _check_keys(config, loaded.network)
    program = _program_of(config, task, loaded.network)
    images = real_images(config, task, loaded.network)
    for note in images.notes:
        print(f"warning: {note}", file=sys.stderr)
    target = Path(str(config.model)).with_suffix(FORMATS[config.format].suffix)
    if not os.access(target.parent, os.W_OK):
        raise ConfigError(f"{target}: its folder cannot be written to; copy the weights to one that can")
    temporary = target.with_name(f".{target.stem}.tmp{target.suffix}")
    metadata = partial(metadata_of, config, program, loaded.args.get("values", {}))
    try:
        FORMATS[config.format].write(program, temporary, metadata(None))
        differences = _compare(FORMATS[config.format], program, temporary, images)
        if config.nms and all(difference.is_passed for difference in differences):
            suppression = _suppression_of(config)
            add_suppression(temporary, suppression, metadata(suppression))
            differences += _compare_suppressed(program, temporary, images, suppression)
        exported = Exported(target, tuple(differences))
        if exported.is_passed:
            temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    _report(config, exported, images)
    return exported


def _check_keys(config: Config, network: Network) -> None:
    """Raises ConfigError for every key that was typed and has no effect, or cannot have it."""
    faults = [
        f"{key}: has no effect on format={config.format}, only on {', '.join(formats)}; leave it out"
        for key, formats in _OF_FORMATS.items()
        if config.is_typed(key) and config.format not in formats
    ]
    if not config.nms:
        faults += [
            f"{key}: has an effect only with nms=True; leave it out" for key in _OF_SUPPRESSION if config.is_typed(key)
        ]
    if config.dynamic and network.fixed_size is not None:
        faults.append(f"dynamic = True: this network takes images of {network.fixed_size} pixels only; leave it out")
    if faults:
        raise ConfigError(faults)


def _program_of(config: Config, task: Task, network: Network) -> Program:
    assert config.imgsz is not None
    is_dynamic = config.task == "detect" if config.dynamic is None else config.dynamic
    return Program(
        network=network.cpu().float().eval(),
        finish=partial(task.finish, network),
        imgsz=config.imgsz,
        is_dynamic=is_dynamic and network.fixed_size is None,
        opset=config.opset,
        simplify=config.simplify,
    )


def _suppression_of(config: Config) -> Suppression:
    conf = VISIBLE_CONF if config.conf is None else config.conf
    return Suppression(conf=conf, iou=config.iou, max_det=config.max_det)


@torch.inference_mode()
def _compare(fmt: Format, program: Program, path: Path, images: RealImages) -> list[Difference]:
    """Against the network itself, which is given the bytes of the images as in prediction."""
    run = fmt.open(program, path)
    return [
        difference
        for size in BATCHES
        for difference in compare_runs(partial(_outputs, program), run, batches_of(images, size, program))
    ]


@torch.inference_mode()
def _compare_suppressed(program: Program, path: Path, images: RealImages, suppression: Suppression) -> list[Difference]:
    run = OnnxNetwork(path)
    differences = []
    for size in BATCHES:
        expected: list[dict[str, Tensor]] = []
        found: list[Tensor] = []
        for batch in batches_of(images, size, program):
            outputs = _outputs(program, batch)
            expected += decode_detections(outputs["boxes"], outputs["scores"], multi_label=False, **asdict(suppression))
            found += [*run(batch)[DETECTIONS]]
        differences.append(
            compare_detections(expected, torch.stack(found), batch=size, conf=suppression.conf, imgsz=program.imgsz)
        )
    return differences


def _outputs(program: Program, images: Tensor) -> Mapping[str, Tensor]:
    return program.finish(program.network(images))


def _report(config: Config, exported: Exported, images: RealImages) -> None:
    differences, is_passed = exported.differences, exported.is_passed
    for output in sorted({difference.output for difference in differences if difference.is_blind}):
        print(
            f"warning: {output}: hardly depend on the colors of the images, so their comparison tells little; "
            "are these weights trained?",
            file=sys.stderr,
        )
    if config.json:
        document = {
            "passed": is_passed,
            "file": str(exported.path) if is_passed else None,
            "format": config.format,
            "images": len(images.images),
            "differences": [{**asdict(each), "passed": each.is_passed} for each in differences],
        }
        print(as_json(document))
        return
    if not config.quiet or not is_passed:
        print("\n".join(_table(differences)))
        print(f"relative to the largest value, on {len(images.images)} images of {images.source}")
    if is_passed:
        print(f"{exported.path} ({exported.path.stat().st_size / 2**20:.1f} MB)")
    else:
        print(f"FAILED: the file does not give what the network gives; {exported.path.name} was not written")


def _table(differences: Sequence[Difference]) -> list[str]:
    rows: list[tuple[str, ...]] = [("output", "images at once", "off by", "relative", "allowed", "")]
    rows += [
        (
            each.output,
            str(each.batch),
            f"{each.largest:.2g}",
            f"{each.relative:.1e}",
            f"{each.limit:.0e}",
            "ok" if each.is_passed else "FAILED",
        )
        for each in differences
    ]
    return [align(rows)]
