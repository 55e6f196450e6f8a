"""`visiontrain check`: reads a whole data set as training does and tells every fault; writes nothing into it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from visiontrain.config.schema import Config
from visiontrain.data.check.labels import label_findings
from visiontrain.data.check.looks import Look, image_paths, look_at_all, look_findings
from visiontrain.data.check.statistics import statistics_of
from visiontrain.data.check.twins import twin_findings
from visiontrain.engine.device import MAX_AUTO_WORKERS, available_cores
from visiontrain.errors import ConfigError
from visiontrain.findings import Findings
from visiontrain.report.check_page import write_check_page
from visiontrain.run.check_report import check_document, check_lines, page_of
from visiontrain.run.choose_task import with_task
from visiontrain.run.files import as_json
from visiontrain.run.prepare import make_folder, task_of, with_bundled_data
from visiontrain.sample import DataSet

CHECK_FAILED = 3
"""Exit code."""
SPLITS = ("train", "val", "test")
STRIDE = 8
"""The smallest of our detectors', pixels."""
IMAGES_PER_WORKER = 200
"""A process takes as long to start as to read about so many images."""
PAGE = "check.html"


@dataclass(frozen=True)
class CheckResult:
    """What was found."""

    findings: Findings
    document: Mapping[str, Any]
    """That of `json=True`."""
    save_dir: Path
    """Holds check.html."""
    passed: bool
    """Whether nothing is lost or wrong; there may be warnings."""


def check(config: Config) -> int | None:
    """The command; returns 3 if the data set has errors."""
    return None if check_run(config).passed else CHECK_FAILED


def check_run(config: Config, *, is_silent: bool = False) -> CheckResult:
    """Read every image and label of `data`, print what was found and write the page.

    Args:
        config: The settings.
        is_silent: Whether nothing is printed at all.

    Raises:
        UserError: If there is nothing that can be read, or no place for the page; no folder was made then.
    """
    config = with_task(config)
    task = task_of(config)
    config = with_bundled_data(config, task)
    if config.imgsz is None:
        config = config.decide(imgsz=task.default_imgsz)
    assert config.imgsz is not None
    data = task.read(config, SPLITS)
    _keep_outside(config, data)
    looks = _look(config, data, task.stored_size(config.imgsz), is_silent=is_silent)
    findings = Findings()
    for found in (
        data.findings,
        look_findings(data, looks),
        twin_findings(data, looks),
        label_findings(data, imgsz=config.imgsz, stride=STRIDE),
    ):
        findings.update(found)
    statistics = statistics_of(data, imgsz=config.imgsz)
    passed = not findings.has_errors and not data.faults
    folder = make_folder(config)
    document = check_document(data, findings, statistics, passed=passed, page=folder / PAGE)
    write_check_page(folder / PAGE, page_of(data, findings, document, config, stride=STRIDE))
    if not is_silent:
        lines = check_lines(data, findings, statistics, document, is_short=config.quiet)
        print(as_json(document) if config.json else "\n".join(lines))
    return CheckResult(findings, document, folder, passed)


def _look(config: Config, data: DataSet, long_side: int, *, is_silent: bool) -> dict[str, Look]:
    """Every image, read as training reads it: reduced to `long_side` pixels."""
    paths = list(dict.fromkeys(path for records in data.splits.values() for path in image_paths(records)))
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    is_hidden = config.quiet or config.json or is_silent or not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=is_hidden) as bar:
        shown = bar.add_task("reading images", total=len(paths))
        return look_at_all(
            paths,
            imgsz=long_side,
            workers=_num_workers(config, len(paths)),
            max_pixels=config.max_pixels,
            progress=lambda done, total: bar.update(shown, completed=done),
        )


def _num_workers(config: Config, num_images: int) -> int:
    """Processes that read images: all cores, as far as it is worth starting them."""
    if config.workers != "auto":
        return int(config.workers)
    workers = min(available_cores(), MAX_AUTO_WORKERS, num_images // IMAGES_PER_WORKER)
    return workers if workers > 1 else 0


def _keep_outside(config: Config, data: DataSet) -> None:
    """Raises ConfigError if the run folder would lie among the images of the data set."""
    asked = config.save_dir or config.project or str(Path("runs") / config.task)
    place = Path(asked).resolve()
    folders = {Path(path).parent for records in data.splits.values() for path in image_paths(records)}
    real = {folder.resolve() for folder in folders}
    within = next((folder for folder in (place, *place.parents) if folder in real), None)
    if within is not None:
        raise ConfigError(
            f"{place}: lies in {within}, a folder of the data set, which check never writes into; choose another "
            "place with project= or save_dir="
        )
