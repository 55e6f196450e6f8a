"""Which tensor of another program's weights is which of a network's: by a mapping, by name, or by shape and order.

By order, layers are compared: what stands under one name, such as a convolution's weight and bias. A run of layers that
have the same shapes in both is taken where it stands only once in each; what could be meant twice is left alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import product
from typing import Any, NamedTuple

from visiontrain.errors import ConfigError

UNLEARNED = "num_batches_tracked"
"""BatchNorm's count of batches: it matters to averages without momentum only, and many files leave it out."""
MOST_LAYERS = 2000
"""Of weights that are compared by order; no network has more."""
MOST_ACCIDENTAL = 0.5
"""Part of our tensors whose names may be the same by accident, as numbered layers are; order then tells more."""
MOST_STARS = 2
MOST_NAMED = 5

Form = tuple[tuple[int, ...], bool]
"""A tensor's shape, and whether its numbers are floating."""


class Match(NamedTuple):
    """A tensor that is taken over."""

    ours: str
    theirs: str
    how: str
    """mapping, name or order."""


@dataclass(frozen=True)
class Matching:
    """What became of all tensors."""

    matches: tuple[Match, ...]
    """In the network's order."""
    missing: tuple[str, ...]
    """Of ours."""
    unused: tuple[str, ...]
    """Of theirs."""


def match_weights(
    ours: Mapping[str, Form], theirs: Mapping[str, Form], mapping: Mapping[str, str | None] | None = None
) -> Matching:
    """Find for each of our tensors that of theirs.

    Args:
        ours: The network's, in its order.
        theirs: The file's, in its order.
        mapping: Names of theirs to names of ours, or to None for what is not to be used; see `mapped_pairs`.

    Raises:
        ConfigError: If the mapping names what is not there, or pairs tensors of different shapes.
    """
    pairs, left_out = mapped_pairs(ours, theirs, mapping or {})
    found = {name: Match(name, other, "mapping") for name, other in pairs.items()}
    used = {*pairs.values(), *left_out}
    rest = {name: form for name, form in ours.items() if name not in found}
    offered = {name: form for name, form in theirs.items() if name not in used}
    named = _by_name(rest, offered)
    more = _by_order(
        {name: form for name, form in rest.items() if name not in named},
        {name: form for name, form in offered.items() if name not in named.values()},
    )
    ordered = _by_order(rest, offered)
    is_accident = len(named) < MOST_ACCIDENTAL * len(rest)
    if len(ordered) > len(named) + len(more) - is_accident:
        named, more = {}, ordered
    found |= {name: Match(name, other, "name") for name, other in named.items()}
    found |= {name: Match(name, other, "order") for name, other in more.items()}
    taken = {match.theirs for match in found.values()}
    return Matching(
        matches=tuple(found[name] for name in ours if name in found),
        missing=tuple(name for name in ours if name not in found),
        unused=tuple(name for name in theirs if name not in taken),
    )


def mapped_pairs(
    ours: Mapping[str, Form], theirs: Mapping[str, Form], mapping: Mapping[str, str | None]
) -> tuple[dict[str, str], set[str]]:
    """What a mapping says, as pairs ours → theirs, and which of theirs it leaves out.

    A name stands for itself; `*` stands for any text, which the other side's `*` repeats; a name that ends in a dot
    stands for all that begins with it. Of several lines that fit a name the first counts.

    Raises:
        ConfigError: If a line fits nothing, names none of ours, or pairs tensors of different shapes; all at once.
    """
    pairs: dict[str, str] = {}
    left_out: set[str] = set()
    faults: list[str] = []
    for line, target in mapping.items():
        pattern, goal = _with_stars(line), None if target is None else _with_stars(target)
        if pattern.count("*") > MOST_STARS or (goal is not None and goal.count("*") > pattern.count("*")):
            faults.append(f"mapping: {line!r}: {target!r} has more * than the name before it, or than {MOST_STARS}")
            continue
        form = re.compile("(.*)".join(map(re.escape, pattern.split("*"))), re.DOTALL)
        fitting = [match for match in map(form.fullmatch, theirs) if match is not None]
        if not fitting:
            faults.append(
                f"mapping: {line!r} is no tensor of the file; it should be one that convert lists without a model"
            )
        for match in fitting:
            theirs_name = match[0]
            if theirs_name in left_out or theirs_name in pairs.values():
                continue
            if goal is None:
                left_out.add(theirs_name)
                continue
            name = _filled(goal, match.groups())
            fault = _fault_of_pair(name, theirs_name, ours, theirs, pairs)
            if fault:
                faults.append(f"mapping: {line!r}: {fault}")
            else:
                pairs[name] = theirs_name
    if faults:
        more = len(faults) - MOST_NAMED
        raise ConfigError([*faults[:MOST_NAMED], *([f"mapping: {more} more faults like these"] if more > 0 else [])])
    return pairs, left_out


def _with_stars(name: str) -> str:
    return f"{name}*" if name.endswith(".") else name


def _filled(goal: str, texts: Sequence[str]) -> str:
    parts = goal.split("*")
    return parts[0] + "".join(text + part for text, part in zip(texts, parts[1:], strict=False))


def _fault_of_pair(
    name: str, theirs_name: str, ours: Mapping[str, Form], theirs: Mapping[str, Form], pairs: Mapping[str, str]
) -> str:
    if name not in ours:
        return f"{name!r}, for {theirs_name!r}, is no tensor of the network"
    if name in pairs:
        return f"{theirs_name!r} and {pairs[name]!r} are both for {name!r}"
    if ours[name] != theirs[theirs_name]:
        return f"{theirs_name!r} is {described(theirs[theirs_name])}, and {name!r} is {described(ours[name])}"
    return ""


def described(form: Form) -> str:
    """A tensor's form in words."""
    return f"{'×'.join(map(str, form[0])) or 'a single number'}{'' if form[1] else ' (integers)'}"


def _by_name(ours: Mapping[str, Form], theirs: Mapping[str, Form]) -> dict[str, str]:
    """Tensors of the same name and form, ours → theirs, whatever all names of either begin with."""
    best: dict[str, str] = {}
    for own, other in product(_beginnings(list(ours)), _beginnings(list(theirs))):
        found = {
            name: other + name.removeprefix(own)
            for name, form in ours.items()
            if theirs.get(other + name.removeprefix(own)) == form
        }
        best = found if len(found) > len(best) else best
    return best


def _beginnings(names: Sequence[str]) -> list[str]:
    """The empty one, and each that ends in a dot and that all names have."""
    first = min(names, default="").split(".")
    last = max(names, default="").split(".")  # what the least and the greatest share, all share
    shared = [""]
    for one, other in zip(first[:-1], last[:-1], strict=False):
        if one != other:
            break
        shared.append(f"{shared[-1]}{one}.")
    return shared


def _by_order(ours: Mapping[str, Form], theirs: Mapping[str, Form]) -> dict[str, str]:
    """Tensors of layers in runs that stand only once on either side, ours → theirs."""
    own, other = _layers(ours), _layers(theirs)
    if not own or not other or max(len(own), len(other)) > MOST_LAYERS:
        return {}
    own_forms, other_forms = list(own.values()), list(other.values())
    own_names, other_names = list(own), list(other)
    found: dict[str, str] = {}
    for start, other_start, length in SequenceMatcher(
        None, own_forms, other_forms, autojunk=False
    ).get_matching_blocks():
        run = own_forms[start : start + length]
        if not length or _count(run, own_forms) != 1 or _count(run, other_forms) != 1:
            continue
        for place in range(length):
            own_layer, other_layer = own_names[start + place], other_names[other_start + place]
            leaves = [leaf for leaf, _ in run[place]]
            for leaf in (*leaves, UNLEARNED):
                name, candidate = own_layer + leaf, other_layer + leaf
                if name in ours and ours[name] == theirs.get(candidate):
                    found[name] = candidate
    return found


def _layers(tensors: Mapping[str, Form]) -> dict[str, tuple[tuple[str, Form], ...]]:
    """What stands under one name, with the last part of each tensor's name and its form, in a fixed order."""
    grouped: dict[str, list[tuple[str, Form]]] = {}
    for name, form in tensors.items():
        layer, dot, leaf = name.rpartition(".")
        if leaf != UNLEARNED:
            grouped.setdefault(layer + dot, []).append((leaf, form))
    return {layer: tuple(sorted(parts)) for layer, parts in grouped.items()}


def _count(run: Sequence[Any], among: Sequence[Any]) -> int:
    """How often `run` stands in `among`, as far as it matters: 0, 1 or 2."""
    count = 0
    for start in range(len(among) - len(run) + 1):
        count += all(among[start + place] == item for place, item in enumerate(run))
        if count == 2:
            break
    return count
