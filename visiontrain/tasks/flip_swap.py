"""The key `flip_swap`: classes that a flip left to right turns into each other, as any task may have them."""

from __future__ import annotations

from visiontrain.errors import ConfigError


def pairs_of(indices: tuple[int, ...] | None) -> tuple[tuple[int, int], ...]:
    """Indices two by two.

    Raises:
        ConfigError: If one is left over.
    """
    if indices is None:
        return ()
    if len(indices) % 2:
        raise ConfigError(
            f"flip_swap = {','.join(map(str, indices))}: holds {len(indices)} indices; they are pairs, such as 0,1"
        )
    return tuple(zip(indices[::2], indices[1::2], strict=True))


def check_pairs(indices: tuple[int, ...] | None, num_classes: int) -> None:
    """Raises ConfigError for an index that is no class."""
    unknown = [index for index in indices or () if index >= num_classes]
    if unknown:
        raise ConfigError(
            f"flip_swap: holds {unknown[0]}, and the last of the {num_classes} classes is {num_classes - 1}"
        )
