"""Reading a cfg file: one YAML mapping of keys to plain values.

Only the structure of the YAML is used, never its types: `name: no`, `lr0: 1e-3` and `time: 1:30` are the texts that
stand there and are read by the key's declared type, exactly as on the command line.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import yaml

_LARGEST_BYTES = 1_000_000


@dataclass(frozen=True)
class Entry:
    """One line of a cfg file."""

    key: str
    raw: object
    """A text, a list of texts, a mapping, or None."""
    where: str
    """File and line."""


def read_cfg_file(path: str) -> tuple[list[Entry], list[str]]:
    """The entries of the cfg file at `path`, and the faults of its form."""
    try:
        text = _read_text(Path(path))
        return _entries(path, text)
    except OSError as error:
        return [], [f"{path}: cannot be read ({error.strerror or error}); cfg names a YAML file of key: value lines"]
    except ValueError as error:
        return [], [f"{path}: {error}; a cfg file is YAML text in UTF-8 with key: value lines"]


def _read_text(path: Path) -> str:
    with path.open("rb") as file:
        content = file.read(_LARGEST_BYTES + 1)
    if len(content) > _LARGEST_BYTES:
        raise ValueError(f"is larger than {_LARGEST_BYTES} bytes")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"is not text in UTF-8 (byte {error.start})") from None


def _entries(path: str, text: str) -> tuple[list[Entry], list[str]]:
    import yaml  # here, so that a command without a cfg file does not pay for it

    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise ValueError(f"is not YAML ({line}{error.problem})") from None
    except yaml.YAMLError:
        raise ValueError("holds characters that are not text") from None
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    if root is None:
        raise ValueError("is empty")
    if not isinstance(root, yaml.MappingNode):
        raise ValueError("does not hold a mapping")
    entries: dict[str, Entry] = {}
    faults = []
    for key_node, value_node in root.value:
        key = key_node.value if isinstance(key_node, yaml.ScalarNode) else "a key that is not a word"
        where = f"{path}:{key_node.start_mark.line + 1}"
        if key in entries:
            faults.append(f"{where}: {key}: was given before, in {entries[key].where}; give it once")
        else:
            entries[key] = Entry(key, _raw(value_node), where)
    return list(entries.values()), faults


def _raw(node: yaml.Node) -> object:
    import yaml

    if isinstance(node, yaml.SequenceNode):
        return [_scalar(item) for item in node.value]
    return _scalar(node)


def _scalar(node: yaml.Node) -> object:
    import yaml

    if isinstance(node, yaml.ScalarNode):
        return None if node.tag == "tag:yaml.org,2002:null" else node.value
    return {}  # a mapping or list inside, which no key takes
