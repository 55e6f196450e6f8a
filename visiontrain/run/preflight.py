"""What can be told of a command before torch is loaded, which takes seconds: slips of the keyboard among them."""

from __future__ import annotations

from pathlib import Path

from visiontrain.config.schema import WORDS, Config
from visiontrain.errors import ConfigError, UserError
from visiontrain.folders import with_home
from visiontrain.models.names import check_model
from visiontrain.models.offered import check_at_hand, hub_folder


def check_named(config: Config) -> None:
    """Raise an error where a network, a data set or weights are named that are not there.

    Of a run that goes on nothing is said here: its own settings are not read yet.

    Raises:
        ConfigError: If so; all faults at once.
    """
    if config.resume:
        return
    keys = WORDS.get(config.mode, ("model",))
    faults = [*(fault for key in keys for fault in _faults_of_model(config, key)), *_faults_of_data(config)]
    if faults:
        raise ConfigError(faults)
    if config.pretrained is True:
        check_at_hand(config.model or "", config.task if config.is_typed("task") else None, hub=hub_folder())


def _faults_of_model(config: Config, key: str) -> tuple[str, ...]:
    """The faults of a network's name or YAML file."""
    try:
        if getattr(config, key) is not None:
            check_model(getattr(config, key), key=key)
    except UserError as error:
        return error.faults
    return ()


def _faults_of_data(config: Config) -> tuple[str, ...]:
    """The fault of a data set that is not there."""
    if config.data is None or _may_be_there(with_home(config.data)):
        return ()
    from visiontrain.data.formats import read_data_set  # here, since it loads what reads images

    try:
        read_data_set(config.data, splits=())
    except UserError as error:
        return error.faults
    return ()


def _may_be_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # it may not be looked for, of which its reader tells
        return True
