"""`cache`: the images of a training run, decoded and reduced once for all epochs and workers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, cast

import torch
from rich.console import Console
from rich.progress import Progress

from visiontrain.data.cache import ImageCache, open_image_cache
from visiontrain.engine.device import available_cores, free_memory
from visiontrain.run.samples import stored_size
from visiontrain.run.session import Session


@contextmanager
def open_cache(session: Session) -> Iterator[ImageCache | None]:
    """The cache that the settings ask for, filled; None where they ask for none. Let go of at the end.

    The processes of a machine share one.

    Raises:
        ConfigError: If there is no room for it.
    """
    config = session.config
    if not config.cache:
        yield None
        return
    where = "ram" if config.cache is True else cast(Literal["ram", "disk"], config.cache)
    cache = session.group.machine_gives(lambda: _filled(session, where))
    try:
        yield cache
    finally:
        cache.close()


def _filled(session: Session, where: Literal["ram", "disk"]) -> ImageCache:
    config = session.config
    with Progress(console=Console(stderr=True), transient=True, disable=config.quiet) as bar:
        task = bar.add_task("caching images", total=None)
        return open_image_cache(
            session.train,
            where,
            imgsz=stored_size(config, session.task, max(session.network.strides)),
            max_pixels=config.max_pixels,
            free_memory=free_memory(torch.device("cpu")),
            threads=available_cores(),
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
