"""The command line: words → `Config` → the mode's function.

What the user got wrong becomes lines on standard error and exit code 2, without a traceback. Nothing heavy is imported
before the settings are known to be right: help, version and errors answer at once.
"""

from __future__ import annotations

import difflib
import importlib
import io
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType

from visiontrain.config.document import mode_help, overview
from visiontrain.config.load import load_config, wants_json
from visiontrain.config.schema import MODES, SETTINGS, Config
from visiontrain.errors import ConfigError, Ended, Stopped, UserError

DONE, WRONG_INPUT, PIPE_CLOSED = 0, 2, 141
SIGNALED = 128
"""To which the number of the signal is added, as shells do: 130 and 143."""

# Each is `f(config) -> exit code or None` and prints its own output.
COMMANDS: Mapping[str, str] = {
    "train": "visiontrain.run.train:train",
    "val": "visiontrain.run.val:val",
    "compare": "visiontrain.run.compare:compare",
    "predict": "visiontrain.run.predict:predict",
    "export": "visiontrain.run.export:export",
    "plan": "visiontrain.run.plan:plan",
    "show": "visiontrain.run.show:show",
    "verify": "visiontrain.run.verify:verify",
    "check": "visiontrain.run.check:check",
    "convert": "visiontrain.run.convert:convert",
    "report": "visiontrain.run.report:report",
    "env": "visiontrain.run.env:env",
}
_TASKS = (*SETTINGS["task"].rules.choices, *SETTINGS["task"].rules.later)
_HELP = ("help", "--help", "-h")
_VERSION = ("version", "--version")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    _make_output_safe()
    try:
        with _termination_clears_away():
            code = _dispatch(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()  # here, where a closed pipe can still be handled
    except BrokenPipeError:
        # The reader has gone (`visiontrain help | head`): no message, and none from Python when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except Stopped as stop:
        return SIGNALED + stop.signum
    return code


def _dispatch(words: list[str]) -> int:
    name = "visiontrain"
    try:
        task, rest = (words[0], words[1:]) if words and words[0] in _TASKS else (None, words)
        if not rest or rest[0] in (*_HELP, *_VERSION):
            print(_answer(rest))
            return DONE
        mode, rest = _known_mode(rest[0]), rest[1:]
        name = f"visiontrain {mode}"
        if "--help" in rest or "-h" in rest or rest[:1] == ["help"]:
            print(mode_help(mode))
            return DONE
        config = load_config(mode, command_line=[f"task={task}", *rest] if task else rest)
    except ConfigError as error:
        _report(name, error, as_json=wants_json(words), nothing_done=True)
        return WRONG_INPUT
    return _run(name, config)


def _run(name: str, config: Config) -> int:
    try:
        _check_named(config)
        code = _command(config.mode)(config)
    except UserError as error:
        _report(name, error, as_json=config.json)
        return WRONG_INPUT
    except Stopped:  # known to main
        raise
    except Ended as end:
        return end.code
    except KeyboardInterrupt:
        print(f"{name}: stopped", file=sys.stderr)
        return SIGNALED + signal.SIGINT
    return DONE if code is None else code


def _check_named(config: Config) -> None:
    """Raises ConfigError where what is named is missing, before torch is loaded for seconds."""
    if config.model is not None or config.data is not None or config.pretrained is True:
        from visiontrain.run.preflight import check_named

        check_named(config)


def _command(mode: str) -> Callable[[Config], int | None]:
    module, _, function = COMMANDS[mode].partition(":")
    command: Callable[[Config], int | None] = getattr(importlib.import_module(module), function)
    return command


def _answer(words: Sequence[str]) -> str:
    """The text for `help`, `help MODE`, `version` or no words at all."""
    if words and words[0] in _VERSION:
        from visiontrain import __version__

        return f"visiontrain {__version__}"
    asked = [word for word in words[1:] if word not in _TASKS]
    return mode_help(_known_mode(asked[0])) if asked else overview()


def _known_mode(word: str) -> str:
    """The mode that `word` names.

    Raises:
        ConfigError: If it is not a mode of this version.
    """
    if word in MODES:
        return word
    modes = ", ".join(MODES)
    if "=" in word or word.startswith("-"):
        raise ConfigError(f"{word}: comes before the mode; the first word is one of {modes}")
    nearest = difflib.get_close_matches(word.lower(), MODES, n=1)
    hint = f"the nearest is {nearest[0]}" if nearest else f"choose one of {modes}"
    raise ConfigError(f"{word}: is not a mode; {hint}")


def _report(name: str, error: UserError, *, as_json: bool, nothing_done: bool = False) -> None:
    if as_json:
        print(json.dumps({"errors": list(error.faults)}, ensure_ascii=False))
        return
    for fault in error.faults:
        print(fault if fault.startswith("visiontrain ") else f"{name}: {fault}", file=sys.stderr)
    count = f"{len(error.faults)} fault{'s' if len(error.faults) != 1 else ''}"
    if nothing_done:
        print(f"{name}: {count}; nothing was done (visiontrain help lists modes and keys)", file=sys.stderr)
    elif len(error.faults) > 1:
        print(f"{name}: {count}", file=sys.stderr)


@contextmanager
def _termination_clears_away() -> Iterator[None]:
    """Inside, SIGTERM ends a command as Ctrl-C does: what is half-made goes.

    Not under torchrun, which ends by it whoever is left of a group and means to start again.
    """
    if threading.current_thread() is not threading.main_thread() or "RANK" in os.environ:
        yield
        return
    before = signal.signal(signal.SIGTERM, _stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


def _stop(signum: int, frame: FrameType | None) -> None:
    raise Stopped(signum)


def _make_output_safe() -> None:
    """Replace what a terminal's encoding cannot show, instead of failing on it."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
