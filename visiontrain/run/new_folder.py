"""A run folder that is whole, or is not there: for modes whose results cannot be gone on with."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from visiontrain.config.schema import Config
from visiontrain.errors import UserError
from visiontrain.run.prepare import make_folder


@contextmanager
def new_folder(config: Config) -> Iterator[Path]:
    """Make the run folder that `config` asks for; where the user breaks off, or it cannot be filled, it is taken away.

    A folder that was there before stays, with all that it holds.

    Raises:
        ConfigError: If the folder cannot be made.
    """
    was_there = _place(config).exists()
    folder = make_folder(config)
    is_own = not was_there or folder != _place(config).resolve()  # without exist_ok a number makes it a new one
    try:
        yield folder
    except (KeyboardInterrupt, UserError):
        if is_own:
            shutil.rmtree(folder, ignore_errors=True)
        raise


def _place(config: Config) -> Path:
    """Where the folder comes to lie, if nothing lies there yet."""
    if config.save_dir is not None:
        return Path(config.save_dir)
    parent = Path(config.project) if config.project else Path("runs") / config.task
    return parent / (config.name or config.mode)
