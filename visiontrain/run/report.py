"""`visiontrain report`: (re)writes the page of a run from what its folder holds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from visiontrain.config.schema import Config
from visiontrain.errors import ConfigError
from visiontrain.report.curves import Columns
from visiontrain.report.gallery import LONG_SIDE, MOST_SHOTS
from visiontrain.report.review import Review, Shot
from visiontrain.report.run_page import Argument, RunPage, write_run_page
from visiontrain.report.thumbnails import as_jpeg
from visiontrain.run.run_folder import PIECES, RunFolder, read_shot

PAGE = "report.html"
_MOST_NAMED = 5  # runs in a message


def report(config: Config) -> None:
    """The command."""
    report_run(config)


def report_run(config: Config) -> Path:
    """Write the page of `run`, or of the newest run, and say where it is and what it lacks.

    Returns:
        The page.

    Raises:
        ConfigError: If there is no such run, or its folder cannot be written into.
    """
    folder = _named(config.run) if config.run is not None else _newest(config)
    page, missing = write_report(folder)
    print("\n".join([f"report in {page}", *(f"  not in it: {line}" for line in missing)]))
    return page


def run_of_weights(path: Path) -> Path | None:
    """The folder of the run that a weights file lies in; None where it is not in one."""
    folder = path.parent.parent
    return folder if path.parent.name == "weights" and _is_run(folder) else None


def write_report(folder: Path) -> tuple[Path, list[str]]:
    """Write the page of the run in `folder`.

    Returns:
        The page, and what it lacks, one line each.

    Raises:
        ConfigError: If the folder cannot be written into.
    """
    run = RunFolder(folder)
    page = _page_of(run)
    path = folder / PAGE
    try:
        write_run_page(path, page)
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be written ({error.strerror or error}); make room, mend its rights or move away what is "
            "there"
        ) from error
    return path, run.missing


def _page_of(run: RunFolder) -> RunPage:
    results, columns, review = run.results(), run.columns(), run.review()
    plan, windows, planned_warnings = run.plan()
    arguments = run.arguments()
    gallery = () if review is None else review.gallery[:MOST_SHOTS]
    state, is_done = _state(results, columns, arguments)
    return RunPage(
        title=str(run.path),
        state=state,
        is_done=is_done,
        missing=run.missing,
        facts=_facts(results, columns, arguments, review),
        warnings=list(dict.fromkeys([*planned_warnings, *run.warnings()])),
        columns=columns,
        review=review,
        shots=[_jpeg(shot) for shot in gallery],
        plan=plan,
        windows=windows,
        arguments=arguments,
        environment=run.environment(),
        pictures=run.pictures(),
    )


def _jpeg(shot: Shot) -> bytes | None:
    image = read_shot(shot.path, LONG_SIDE)
    return None if image is None else as_jpeg(image)


def _state(results: Mapping[str, Any], columns: Columns | None, arguments: Sequence[Argument]) -> tuple[str, bool]:
    """How far the run has come, and whether that is all it will."""
    asked = next((one.value for one in arguments if one.key == "epochs"), "?")
    if "split" in results:
        return f"scored on the {results['split']} split", True
    if "epochs" in results and not _has_gone_on(results["epochs"], columns):
        return f"trained {results['epochs']} of {asked} epochs; the best is {results.get('best_epoch', '?')}", True
    if columns is None:
        return "no epoch has ended", False
    return f"{columns['epoch'][-1]:.0f} of {asked} epochs: the run still goes on, or was interrupted", False


def _has_gone_on(epochs: Any, columns: Columns | None) -> bool:
    """Whether there are epochs behind those that the run once ended with."""
    return isinstance(epochs, int) and columns is not None and columns["epoch"][-1] > epochs


def _facts(
    results: Mapping[str, Any], columns: Columns | None, arguments: Sequence[Argument], review: Review | None
) -> list[tuple[str, str]]:
    given = {one.key: one.value for one in arguments}
    facts: list[tuple[str, str]] = [(key, given[key]) for key in ("model", "data", "imgsz") if key in given]
    if columns is not None:
        facts += [
            (says, f"{columns[name][-1]:,.0f}{unit}")
            for says, name, unit in (("updates", "updates", ""), ("images seen", "images", ""), ("time", "time", " s"))
            if name in columns and math.isfinite(columns[name][-1])
        ]
    counts = (("windows left out", "skipped_windows"), ("calibration windows", "calibration_windows"))
    facts += [(says, str(results[name])) for says, name in counts if results.get(name)]
    if review is not None and review.num_capped:
        facts.append(("images with too many candidates", str(review.num_capped)))
    return facts


def _named(run: str) -> Path:
    """The run folder that the user named.

    Raises:
        ConfigError: If it is none.
    """
    folder = Path(run)
    if _is_run(folder):
        return folder
    if folder.is_dir():
        inside = _runs_in(folder)
        found = (
            f"it holds the runs {', '.join(inside[:_MOST_NAMED])}"
            if inside
            else f"it holds none of {', '.join(PIECES)}"
        )
        raise ConfigError(f"run = {run!r}: is not the folder of a run; {found}; name a run's own folder")
    if folder.exists():
        parent = next((path for path in folder.absolute().parents[:2] if _is_run(path)), None)
        raise ConfigError(
            f"run = {run!r}: is a file; name the folder of a run" + ("" if parent is None else f", here {parent}")
        )
    raise ConfigError(f"run = {run!r}: does not exist; name the folder of a run, such as runs/detect/train")


def _runs_in(folder: Path) -> list[str]:
    try:
        return sorted(path.name for path in folder.iterdir() if _is_run(path))
    except OSError:  # the folder may not be looked into
        return []


def _newest(config: Config) -> Path:
    """The run that was touched last, of `project` or of all tasks or the one that was typed.

    Raises:
        ConfigError: If there is none.
    """
    if config.project is not None:
        place, runs = config.project, Path(config.project).glob("*")
    elif config.is_typed("task"):
        place, runs = f"runs/{config.task}", Path("runs", config.task).glob("*")
    else:
        place, runs = "runs", Path("runs").glob("*/*")
    found = [path for path in runs if _is_run(path)]
    if not found:
        raise ConfigError(f"run: is not given, and there is no run in {place}; name the folder of a run, run=FOLDER")
    return max(found, key=_last_touched)


def _is_run(folder: Path) -> bool:
    return any(_is_there(folder / name) for name in PIECES)


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # the folder may not be looked into
        return False


def _last_touched(folder: Path) -> float:
    return max((folder / name).stat().st_mtime for name in PIECES if _is_there(folder / name))
