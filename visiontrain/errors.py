"""What the user can get wrong, as exceptions that carry every fault found.

The command line turns these into lines on standard error and exit code 2; anything else is an internal error.
"""

from __future__ import annotations

from collections.abc import Iterable


class UserError(Exception):
    """The user's input is wrong; `faults` holds one line for each thing to mend.

    A fault reads *where: what was found; what it should be and what to turn*.
    """

    def __init__(self, faults: str | Iterable[str]) -> None:
        self.faults: tuple[str, ...] = (faults,) if isinstance(faults, str) else tuple(faults)
        super().__init__("\n".join(self.faults))

    def __reduce__(self) -> tuple[type[UserError], tuple[tuple[str, ...]]]:
        return type(self), (self.faults,)


class ConfigError(UserError):
    """A key, a value or a combination of settings is wrong."""


class DataError(UserError):
    """A data set, an image or a label file cannot be used."""


class CheckpointError(UserError):
    """A weights file is missing, damaged, unsafe or does not fit."""


class Stopped(KeyboardInterrupt):
    """A signal ended the run."""

    def __init__(self, signum: int, *, is_agreed: bool = False) -> None:
        """
        Args:
            signum: The signal.
            is_agreed: Whether all processes of the run end by it, at the same place.
        """
        self.signum = signum
        self.is_agreed = is_agreed
        super().__init__(signum)


class Ended(SystemExit):
    """This process is to end with an exit code; what there is to say is said by another of its group."""

    code: int

    def __init__(self, code: int) -> None:
        super().__init__(code)
