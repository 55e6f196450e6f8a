"""Texts made from the table of keys: help, `cfg/default.yaml` and `docs/settings.md`.

`python -m visiontrain.config.document` writes the two files anew; a test holds them equal to the table.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

from visiontrain.config.schema import MODES, SETTINGS, WORDS, settings_of
from visiontrain.config.setting import Setting

_WIDTH = 118
_KEY_WIDTH = 2 + max(len(key) for key in SETTINGS)


def overview() -> str:
    """The answer to `visiontrain help`."""
    return "\n".join(
        [
            "usage: visiontrain MODE [key=value ...]",
            "",
            "modes",
            *(f"  {name:<9} {purpose}" for name, purpose in MODES.items()),
            "  help      this page; visiontrain help MODE lists the keys of a mode",
            "  version   the version",
            "",
            "examples",
            "  visiontrain train batch=8 nbs=64",
            "  visiontrain train data=my/data.yaml model=det-n epochs=50 imgsz=320",
            "  visiontrain val model=runs/detect/train/weights/best.pt data=my/data.yaml",
            "  visiontrain compare first/weights/best.pt second/weights/best.pt data=my/data.yaml",
            "  visiontrain predict model=runs/detect/train/weights/best.pt source=my/images",
            "  visiontrain plan batch=8 nbs=64 data=my/data.yaml",
            "",
            "key=value, key = value, --key value and --key=value mean the same; a bare --key is key=True.",
            "cfg=FILE.yaml gives many keys at once; what is typed beside it wins.",
            "exit codes: 0 done, 1 internal error, 2 wrong input, 3 a check failed, 130 and 143 stopped by a signal.",
        ]
    )


def mode_help(mode: str) -> str:
    """The answer to `visiontrain help MODE`: every key with what it takes, its default and what it is."""
    words = "".join(f" {key.upper()}" for key in WORDS.get(mode, ()))
    lines = [f"usage: visiontrain {mode}{words} [key=value ...]", "", f"{mode}: {MODES[mode]}"]
    for group, members in _by_group(settings_of(mode).values()):
        lines += ["", group, *(line for setting in members for line in _help_lines(setting))]
    return "\n".join(lines)


def default_yaml() -> str:
    """The text of `cfg/default.yaml`: every key at its default."""
    lines = [
        "# Every key at its default. Made from the table of keys by `python -m visiontrain.config.document`.",
        "# A copy of it is a cfg file: visiontrain train cfg=copy.yaml. Keep only the lines that you change: every key",
        "# in a cfg file counts as typed, and what is typed is never up to an automatic choice.",
    ]
    for group, members in _by_group(SETTINGS.values()):
        lines += ["", f"# --- {group} ---"]
        for setting in members:
            comment = f"{setting.explained()} ({setting.takes()})"
            lines += textwrap.wrap(comment, _WIDTH, initial_indent="# ", subsequent_indent="#   ")
            lines.append(f"{setting.key}: {_yaml_value(setting.default)}")
    return "\n".join(lines) + "\n"


def settings_markdown() -> str:
    """The text of `docs/settings.md`."""
    lines = [
        "# Settings",
        "",
        "Every key of the command line, of cfg files and of the Python interface. Made from the table of keys by",
        "`python -m visiontrain.config.document`.",
        "",
        "* `key=value`, `key = value`, `--key value` and `--key=value` mean the same; a bare `--key` is `key=True`.",
        "* Numbers may be written `1e-3`, `.001`, `1_000`; truth as `true yes on 1` or `false no off 0`; lists as",
        "  `0,1,2` or `[0,1,2]`; nothing as `None`.",
        "* What is typed is never overridden by an automatic choice: a conflict is an error.",
        "* All faults are reported at once, with exit code 2, before anything is created on disk.",
    ]
    for group, members in _by_group(SETTINGS.values()):
        lines += [
            "",
            f"## {group}",
            "",
            "| key | takes | default | modes | what it is |",
            "| --- | --- | --- | --- | --- |",
        ]
        lines += [_markdown_row(setting) for setting in members]
    return "\n".join(lines) + "\n"


def _by_group(settings: Iterable[Setting]) -> Iterator[tuple[str, list[Setting]]]:
    for group, members in groupby(settings, key=lambda setting: setting.rules.group):
        yield group, list(members)


def _help_lines(setting: Setting) -> list[str]:
    # With a blank of their own, so that what is too long for its column does not touch the next.
    takes, default = f"{setting.takes()} ", f"{setting.default} "
    left = f"  {setting.key:<{_KEY_WIDTH}}{takes:<31}{default:<9}"
    first, *more = textwrap.wrap(setting.explained(), _WIDTH - len(left))
    return [left + first, *(" " * len(left) + line for line in more)]


def _markdown_row(setting: Setting) -> str:
    modes = ", ".join(mode for mode in MODES if mode in setting.rules.modes)
    cells = (
        f"`{setting.key}`",
        f"{setting.takes()}",
        f"`{setting.default}`",
        modes,
        setting.explained(),
    )
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _yaml_value(value: object) -> str:
    return {"None": "null", "True": "true", "False": "false"}.get(str(value), str(value))


def main() -> None:
    root = Path(__file__).resolve().parents[2]
    (root / "cfg" / "default.yaml").write_text(default_yaml(), encoding="utf-8", newline="\n")
    (root / "docs" / "settings.md").write_text(settings_markdown(), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
