"""Parameters that keep their values, for a whole run or its first epochs, in any network.

A frozen parameter has no gradient and is in no optimizer. A BatchNorm whose parameters are all frozen normalizes by its
running statistics and does not move them, whatever mode the network is in: else the layers would change all the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from visiontrain.errors import ConfigError
from visiontrain.models.norm import kind_of, set_norm_
from visiontrain.plan import Window


class Planned(Protocol):
    """What knows its place in the plan."""

    @property
    def planned(self) -> Window: ...


AnyWindow = TypeVar("AnyWindow", bound=Planned)


@dataclass(frozen=True)
class Frozen:
    """What `freeze_` froze."""

    parameters: tuple[str, ...]
    num_values: int
    """Numbers in them."""
    norms: Mapping[str, str]
    """Paths of the BatchNorm layers, and the kinds that they were of."""


def split_patterns(text: str) -> tuple[str, ...]:
    """The patterns of a text with commas between them; commas inside brackets belong to a pattern."""
    patterns, depth = [""], 0
    for letter in text:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth <= 0:
            patterns.append("")
        else:
            patterns[-1] += letter
    return tuple(pattern.strip() for pattern in patterns if pattern.strip())


def matching(names: Collection[str], patterns: Sequence[str]) -> tuple[str, ...]:
    """Those of `names` that a pattern means, in their order.

    Args:
        names: Of parameters, such as `layers.4.conv.weight`.
        patterns: Each the name of a parameter or of a module that holds some (`layers.4`), or a regular expression that
            is to match a parameter's name from its first letter to its last.

    Raises:
        ConfigError: If one is no regular expression, or matches nothing; all faults at once.
    """
    found: set[str] = set()
    faults = []
    for pattern in patterns:
        try:
            expression = re.compile(pattern)
        except re.error as error:
            faults.append(
                f"freeze = {pattern}: is no regular expression ({error}); name layers by their number, by their "
                "parameters' names or by an expression for these"
            )
            continue
        meant = {name for name in names if f"{name}.".startswith(f"{pattern}.") or expression.fullmatch(name)}
        if not meant:
            faults.append(
                f"freeze = {pattern}: matches no parameter; their names are such as {', '.join(_examples(names))}, and "
                "an expression must match the whole name"
            )
        found |= meant
    if faults:
        raise ConfigError(faults)
    return tuple(name for name in names if name in found)


def freeze_(network: nn.Module, names: Collection[str]) -> Frozen:
    """Freeze parameters, and the BatchNorm layers of which nothing else learns.

    Args:
        network: Its parameters stay the very same ones.
        names: Of the parameters.
    """
    chosen = {name: param for name, param in network.named_parameters() if name in names}
    for param in chosen.values():
        param.requires_grad_(False)
        param.grad = None
    norms = {path: kind for path, kind in _batch_norms(network) if _is_frozen(network.get_submodule(path))}
    set_norm_(network, "frozen", only=norms)
    return Frozen(tuple(chosen), sum(param.numel() for param in chosen.values()), norms)


def thaw_(network: nn.Module, frozen: Frozen) -> None:
    """Let learn what `freeze_` froze; BatchNorm layers are again what they were."""
    params = dict(network.named_parameters())
    for name in frozen.parameters:
        params[name].requires_grad_(True)
    for kind in set(frozen.norms.values()):
        set_norm_(network, kind, only=[path for path, before in frozen.norms.items() if before == kind])


class Thaw:
    """Ends the freezing before the first window of an epoch.

    When that is hangs on the plan alone, so nothing of it is in a checkpoint: a run that goes on begins frozen like any
    other, and thaws at once where it had trained on such a window already.
    """

    def __init__(self, network: nn.Module, frozen: Frozen, *, epoch: int, regroup: Callable[[], None]) -> None:
        """
        Args:
            network: What is frozen.
            frozen: What `freeze_` returned.
            epoch: The first epoch that trains all, from 1.
            regroup: Gives the optimizer its groups anew.
        """
        self.is_over = False
        self._network = network
        self._frozen = frozen
        self._epoch = epoch
        self._regroup = regroup

    def watch(self, windows: Iterable[AnyWindow]) -> Iterator[AnyWindow]:
        """The same windows; before one of them is handed out, the freezing ends."""
        for window in windows:
            self.reach(window.planned)
            yield window

    def reach(self, window: Window) -> None:
        """End the freezing if it is over with this window."""
        if not self.is_over and window.epoch + 1 >= self._epoch:
            thaw_(self._network, self._frozen)
            self._regroup()
            self.is_over = True


def _batch_norms(network: nn.Module) -> Iterator[tuple[str, str]]:
    for path, layer in network.named_modules(remove_duplicate=False):
        kind = kind_of(layer)
        if isinstance(layer, _BatchNorm) and kind not in (None, "frozen"):
            yield path, str(kind)


def _is_frozen(layer: nn.Module) -> bool:
    params = list(layer.parameters())
    return bool(params) and not any(param.requires_grad for param in params)


def _examples(names: Collection[str]) -> list[str]:
    every = list(names)
    return list(dict.fromkeys((every[0], every[len(every) // 2], every[-1]))) if every else []
