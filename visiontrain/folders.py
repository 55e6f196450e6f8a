"""Run folders: found without overwriting any, made in one step; and paths as they are typed."""

from __future__ import annotations

from itertools import count
from pathlib import Path

from visiontrain.errors import ConfigError


def with_home(path: str | Path) -> Path:
    """A path whose `~` is the home folder; one of a user whom the system does not know stays as it is."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def make_run_folder(
    *, task: str, name: str, project: str | None = None, save_dir: str | None = None, exist_ok: bool = False
) -> Path:
    """Make and return the folder of a new run: `runs/<task>/<name>`, or with the first free number from 2 behind it.

    Args:
        task: Task of the run; part of the default place only.
        name: The run's own name.
        project: Folder to make it in, in place of `runs/<task>`.
        save_dir: The folder itself; then it must be new or empty, unless `exist_ok`.
        exist_ok: Use a folder that is there already.

    Raises:
        ConfigError: If the folder cannot be made.
    """
    if save_dir is not None:
        return _make_exactly(Path(save_dir), exist_ok=exist_ok)
    parent = Path(project) if project else Path("runs") / task
    for number in count(1):
        folder = parent / (name if number == 1 else f"{name}{number}")
        try:
            _make_parents(folder)
            folder.mkdir(exist_ok=exist_ok)
        except FileExistsError:
            continue
        except OSError as error:
            raise _cannot_make(folder, error) from error
        return folder
    raise AssertionError("count() does not end")


def _make_parents(folder: Path) -> None:
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:  # also FileExistsError: a file is in the way, and no number would get past it
        raise _cannot_make(folder, error) from error


def _make_exactly(folder: Path, *, exist_ok: bool) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        is_used = any(folder.iterdir())
    except OSError as error:
        raise _cannot_make(folder, error) from error
    if is_used and not exist_ok:
        raise ConfigError(
            f"save_dir = {str(folder)!r}: is not empty; name a new folder, or add exist_ok=True to use it"
        )
    return folder


def _cannot_make(folder: Path, error: OSError) -> ConfigError:
    return ConfigError(
        f"{folder}: the run folder cannot be made ({error.strerror}); choose another place with project= or save_dir="
    )
