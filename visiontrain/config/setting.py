"""One setting: what a key takes, and how a typed value is read.

The same rules hold for the command line, for cfg files and for Python: a text is read by the declared type of its key,
a native value must already be of that type. A key's type is its annotation in `Config`, so it is stated only once.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, dataclass, field
from numbers import Integral, Real
from typing import Any

_TRUE = frozenset({"true", "yes", "on", "1"})
_FALSE = frozenset({"false", "no", "off", "0"})
_NONE = frozenset({"none", "null"})
_LONGEST_SHOWN = 60
_LONGEST_NAME = 255  # bytes; no common file system takes more, and asking one raises


@dataclass(frozen=True)
class Rules:
    """What `setting` declares of a key, apart from name, type and default."""

    help: str
    """A noun phrase ("the images ...", "whether ..."), so that messages can say "it is ..."."""
    group: str
    modes: tuple[str, ...]
    tasks: tuple[str, ...] = ()
    """Tasks on which the key has an effect; none stands for all."""
    unit: str = ""
    least: float | None = None
    most: float | None = None
    above: float | None = None
    """Exclusive lower end."""
    below: float | None = None
    """Exclusive upper end."""
    choices: tuple[str, ...] = ()
    """The texts allowed, matched case-blind and stored as spelled here."""
    pattern: str = ""
    """What a text must match as a whole."""
    is_list: bool = False
    """Whether the text may be of several parts, which are also taken as a list."""
    noun: str = "a text"
    """What a text without choices is called in messages."""
    brief: str = ""
    """The same for a table; without it, the noun's last word."""
    later: Mapping[str, str] = field(default_factory=dict)
    """Values that are understood but have no effect yet, each with what to do instead."""
    words: Mapping[str, Any] = field(default_factory=dict)
    """Texts that stand for a value of their own, whatever the range; the first is shown."""


def setting(default: Any, **rules: Any) -> Any:
    """A field of `Config` that is a key. `rules` are the fields of `Rules`."""
    return field(default=default, metadata={"rules": Rules(**rules)})


@dataclass(frozen=True)
class Setting:
    """A key of `Config`."""

    key: str
    types: tuple[str, ...]
    """The alternatives of its annotation, such as `("int", "None")`."""
    default: Any
    rules: Rules

    @staticmethod
    def of(declared: Field[Any]) -> Setting:
        types = tuple(part.strip() for part in str(declared.type).split("|"))
        return Setting(declared.name, types, declared.default, declared.metadata["rules"])

    def read(self, raw: object) -> Any:
        """The value that `raw` stands for.

        Raises:
            ValueError: If `raw` is not what the key takes; the message is a whole fault.
        """
        instead = self.rules.later.get((raw.strip() if isinstance(raw, str) else shown(raw)).lower())
        if instead is not None:
            raise ValueError(f"{self.key} = {shown(raw)}: {instead}")
        if self.rules.is_list:
            raw = _as_parts(raw)
        word = shown(raw).strip().lower()
        if word in self.rules.words:
            return self.rules.words[word]
        for name, reader in _READERS.items():
            if name not in self.types:
                continue
            try:
                return self._checked(reader(raw))
            except ValueError:
                continue
        raise ValueError(f"{self.key} = {shown(raw)} is not {self.describe()}; it is {self.rules.help}")

    def describe(self) -> str:
        """What the key takes, as a phrase: "a whole number from 1 to 1000, or None"."""
        phrases = [_PHRASES[name](self) for name in _READERS if name in self.types and name != "None"]
        words = [next(iter(self.rules.words))] if self.rules.words else []
        return ", or ".join([*phrases, *words, *(["None"] if "None" in self.types else [])])

    def explained(self) -> str:
        """What the key is, and for which task alone, if it is."""
        return self.rules.help + (f" [{', '.join(self.rules.tasks)}]" if self.rules.tasks else "")

    def takes(self) -> str:
        """What the key takes, for a table: "int 1..1000 images"."""
        words = {
            "bool": "True|False",
            "int": "int",
            "float": "float",
            "tuple[int, ...]": "list of int",
            "tuple[float, ...]": "list of float",
        }
        parts = [next(iter(self.rules.words))] if self.rules.words else []
        for name in _READERS:
            if name not in self.types or name == "None":
                continue
            if name == "str":
                parts.append("|".join(self.rules.choices) or self.rules.brief or self.rules.noun.rpartition(" ")[2])
            elif name == "bool":
                parts.append(words[name] if len(self.types) > 1 else "bool")
            else:
                parts.append(f"{words[name]} {self._interval()}".rstrip())
        return f"{'|'.join(parts)} {self.rules.unit}".rstrip()

    def _checked(self, value: Any) -> Any:
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return self._checked_text(value)
        for number in value if isinstance(value, tuple) else (value,):
            self._check_number(number)
        return value

    def _checked_text(self, value: str) -> str:
        if self.rules.choices:
            spelled = {choice.lower(): choice for choice in self.rules.choices}
            if value.strip().lower() not in spelled:
                raise ValueError
            return spelled[value.strip().lower()]
        if self.rules.pattern:
            if not re.fullmatch(self.rules.pattern, value.strip()):
                raise ValueError
            return value.strip()
        is_too_long = any(len(os.fsencode(part)) > _LONGEST_NAME for part in re.split(r"[/\\]", value))
        if not value.strip() or "\0" in value or is_too_long:
            raise ValueError
        return value

    def _check_number(self, number: float) -> None:
        low, high, above, below = self.rules.least, self.rules.most, self.rules.above, self.rules.below
        is_inside = (
            abs(number) < math.inf  # false for nan too; math.isfinite overflows on large integers
            and (low is None or number >= low)
            and (high is None or number <= high)
            and (above is None or number > above)
            and (below is None or number < below)
        )
        if not is_inside:
            raise ValueError

    def text_phrase(self) -> str:
        """What a text may be: "one of a, b"."""
        choices = self.rules.choices
        return f"{'one of ' if len(choices) > 1 else ''}{', '.join(choices)}" if choices else self.rules.noun

    def range_phrase(self) -> str:
        """Where a number may lie: " from 1 to 1000", with a blank before it, or nothing."""
        rules = self.rules
        low = "" if rules.least is None else f" from {rules.least:.15g}"
        low = low if rules.above is None else f" above {rules.above:.15g}"
        high = "" if rules.most is None else f" to {rules.most:.15g}"
        high = high if rules.below is None else f" and below {rules.below:.15g}"
        return low + high

    def _interval(self) -> str:
        rules = self.rules
        low = "" if rules.least is None else f"{rules.least:.15g}"
        low = low if rules.above is None else f">{rules.above:.15g}"
        high = "" if rules.most is None else f"{rules.most:.15g}"
        high = high if rules.below is None else f"<{rules.below:.15g}"
        return f"{low}..{high}" if low or high else ""


def shown(raw: object) -> str:
    """`raw` as a message shows it: short, on one line, in quotes only where it would be misread without."""
    if isinstance(raw, Mapping):
        return "a mapping"
    if isinstance(raw, (list, tuple)):
        if any(isinstance(item, (list, tuple, Mapping)) for item in raw):
            return "a nested list"
        text = f"[{', '.join(shown(item) for item in raw[:_LONGEST_SHOWN])}]"
    elif isinstance(raw, int):
        # repr() of an integer above 4300 digits raises.
        text = str(raw) if raw.bit_length() < 256 else f"an integer of {raw.bit_length()} bits"
    elif isinstance(raw, (str, os.PathLike)):
        text = os.fspath(raw) if isinstance(raw, os.PathLike) else raw
        text = text if isinstance(text, str) and text.isprintable() and text.strip() == text != "" else repr(text)
    else:
        text = repr(raw) if isinstance(raw, (float, type(None))) else f"a value of type {type(raw).__name__}"
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}... ({len(text)} characters)"


def _read_none(raw: object) -> None:
    if raw is not None and not (isinstance(raw, str) and raw.strip().lower() in _NONE):
        raise ValueError


def _read_bool(raw: object) -> bool:
    is_native = isinstance(raw, Integral) and raw in (0, 1)  # bool is an Integral
    word = str(raw).strip().lower() if is_native or isinstance(raw, str) else ""
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise ValueError


def _read_int(raw: object) -> int:
    if isinstance(raw, str):
        return int(raw)
    if isinstance(raw, bool) or not isinstance(raw, Integral):
        raise ValueError
    return int(raw)


def _read_float(raw: object) -> float:
    if isinstance(raw, str):
        return float(raw)
    if isinstance(raw, bool) or not isinstance(raw, Real):
        raise ValueError
    try:
        return float(raw)
    except OverflowError:
        raise ValueError from None


def _read_ints(raw: object) -> tuple[int, ...]:
    return tuple(map(_read_int, _items(raw)))


def _read_floats(raw: object) -> tuple[float, ...]:
    return tuple(map(_read_float, _items(raw)))


def _items(raw: object) -> Sequence[object]:
    """What a list holds; a text is cut at its commas, anything else stands for itself."""
    if isinstance(raw, str):
        text = raw.strip()
        raw = (text[1:-1] if text[:1] + text[-1:] in ("[]", "()") else text).split(",")
    items = raw if isinstance(raw, (list, tuple)) else (raw,)
    if not items:
        raise ValueError
    return items


def _read_text(raw: object) -> str:
    if isinstance(raw, os.PathLike):
        raw = os.fspath(raw)
    if isinstance(raw, str):
        return raw
    if isinstance(raw, bool) or not isinstance(raw, (int, float)):
        raise ValueError
    return str(raw)


def _as_parts(raw: object) -> object:
    """A list, or the text of one, as text with commas between its parts; anything else as it is."""
    if isinstance(raw, str) and re.fullmatch(r"\s*\[.*\]\s*|\s*\(.*\)\s*", raw):
        raw = raw.strip()[1:-1].split(",")
    if isinstance(raw, list | tuple) and raw and all(type(part) in (int, str) for part in raw):
        return ",".join(str(part).strip(" '\"") for part in raw)
    return re.sub(r"\s*,\s*", ",", raw) if isinstance(raw, str) else raw


# In the order in which a value is tried against the alternatives of a key's type.
_READERS: dict[str, Callable[[object], Any]] = {
    "None": _read_none,
    "bool": _read_bool,
    "int": _read_int,
    "float": _read_float,
    "tuple[int, ...]": _read_ints,
    "tuple[float, ...]": _read_floats,
    "str": _read_text,
}
_PHRASES: dict[str, Callable[[Setting], str]] = {
    "bool": lambda _: "true or false",
    "int": lambda setting: f"a whole number{setting.range_phrase()}",
    "float": lambda setting: f"a number{setting.range_phrase()}",
    "tuple[int, ...]": lambda setting: f"a list of whole numbers{setting.range_phrase()}",
    "tuple[float, ...]": lambda setting: f"a list of numbers{setting.range_phrase()}",
    "str": lambda setting: setting.text_phrase(),
}
