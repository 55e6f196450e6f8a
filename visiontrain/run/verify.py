"""`visiontrain verify`: proves on the user's data and model that accumulation equals the full batch; writes nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from visiontrain.config.schema import Config
from visiontrain.data.dataset import TrainDataset
from visiontrain.data.loader import TrainLoader
from visiontrain.data.sampler import key_at
from visiontrain.engine.device import free_memory
from visiontrain.engine.equivalence import (
    TOLERANCE,
    Setting,
    Settings,
    compare_cuts,
    plain_gradient,
    settings_of,
)
from visiontrain.errors import DataError
from visiontrain.models.info import training_bytes
from visiontrain.plan import Plan, Window
from visiontrain.run.files import as_json
from visiontrain.run.prepare import WEIGHTS_SUFFIXES, load_model, place, task_of
from visiontrain.run.process import own_random_state, process_settings
from visiontrain.run.session import Session, open_session
from visiontrain.run.val import with_training_args
from visiontrain.run.verdict import FULL_BATCH, SINGLE_IMAGES, verdict_document, verdict_lines
from visiontrain.sample import Batch

CHECK_FAILED = 3
"""Exit code."""
MOST_OF_MEMORY = 0.6
"""Part of the free memory that a full batch may take; estimates and other programs need the rest."""
DOUBLE = 8  # bytes of a float64

# What the weights' own training tells where it is not typed.
TAKEN_OVER = ("data", "data_format", "single_cls", "imgsz", "norm", "amp")

# How often the images of the window pass through the network in each precision.
EXACT_PASSES, TRAINING_PASSES = 3, 4


@dataclass(frozen=True)
class LoadedImages:
    """The images of one window, twice: as training is given them, and all in one batch."""

    window: Window
    micro_batches: tuple[Batch, ...]
    whole: Batch


@dataclass(frozen=True)
class Reach:
    """What memory allows."""

    free: int | None
    """Bytes; None where the system does not tell."""
    exact: int
    """Bytes for the full batch in float64."""
    live: int
    """The same, in training."""

    def fits(self, needed: int) -> bool:
        return self.free is None or needed <= MOST_OF_MEMORY * self.free


def verify(config: Config) -> int | None:
    """The command; returns 3 if accumulation does not equal the full batch."""
    return None if verify_run(config)["passed"] else CHECK_FAILED


def verify_run(config: Config) -> dict[str, Any]:
    """Compare the window's gradient as `train` would cut it with that of a full batch, and print what was found.

    Returns:
        The document of `json=True`.

    Raises:
        UserError: If the input is wrong.
    """
    started = time.perf_counter()
    session, is_trained = _open(config)
    say = _speaker(config)
    with (
        process_settings(session.setup, is_deterministic=config.deterministic),
        own_random_state(session.setup, config.seed),
    ):
        images = _load(session, choose_window(session.recipe.plan))
        for line in (*session.changes, *_opening_lines(session, images)):
            say(line)
        settings = settings_of(
            place(session.network, session.setup),
            lambda network: session.task.criterion(network, session.config),
            images.micro_batches,
            gain=session.recipe.gain,
            precision=session.precision,
            device=session.setup.device,
            is_trained=is_trained,
        )
        reach = _reach(session, len(images.whole))
        for line in _expectations(settings, images, reach):
            say(line)
        found = compare_cuts(
            settings,
            images.micro_batches,
            images.whole,
            whole_fits=reach.fits(reach.exact),
            live_fits=reach.fits(reach.live),
        )
    document = {
        **verdict_document(found),
        "images": len(images.whole),
        "micro_batches": [len(batch) for batch in images.micro_batches],
        "epoch": images.window.epoch + 1,
        "window": images.window.index,
        "reference": FULL_BATCH if reach.fits(reach.exact) else SINGLE_IMAGES,
        "precision_name": session.precision.name,
        "seconds": time.perf_counter() - started,
        "tolerance": TOLERANCE,
    }
    lines = verdict_lines(found, document, norm=session.config.norm, is_trained=is_trained)
    print(as_json(document) if config.json else "\n".join(["", *lines]))
    return document


def choose_window(plan: Plan) -> Window:
    """The first full window behind the ramp; where there is none, the largest, behind the ramp if there is one."""

    def behind() -> Iterator[Window]:
        return (window for window in plan.all_windows() if window.start >= plan.warmup_images)

    full = next((window for window in behind() if window.size >= plan.full_window), None)
    if full is not None:
        return full
    return max(behind(), key=_size_of, default=None) or max(plan.all_windows(), key=_size_of)


def _size_of(window: Window) -> int:
    return window.size


def _open(config: Config) -> tuple[Session, bool]:
    """What training would start from, and whether its weights have been trained."""
    if config.model is None or Path(config.model).suffix not in WEIGHTS_SUFFIXES:
        return open_session(config), False
    loaded = load_model(config, task_of(config))
    return open_session(with_training_args(config, loaded, TAKEN_OVER), trained=loaded), True


def _load(session: Session, window: Window) -> LoadedImages:
    """Load the window by training's own loader, and once more image by image: a sample is a function of its key.

    Raises:
        DataError: If none of its images can be read.
    """
    config, task, plan = session.config, session.task, session.recipe.plan
    assert config.imgsz is not None
    dataset = TrainDataset(session.train, task.train_transform(config), seed=config.seed, imgsz=config.imgsz)
    loader = TrainLoader(dataset, plan, task.collate, seed=config.seed, workers=session.setup.workers)
    try:
        micro_batches = tuple(next(loader.windows(window.index)))
    finally:
        loader.close()
    places = range(window.start, window.stop)
    keys = [key_at(x, num_images=plan.num_images, seed=config.seed) for x in places]
    whole = task.collate([dataset[key] for key in keys])
    for path in whole.unreadable:
        print(f"warning: {path}: cannot be read; it is left out of its window", file=sys.stderr)
    if not len(whole):
        raise DataError(f"{config.data}: none of the {window.size} images of window {window.index} can be read")
    return LoadedImages(window, micro_batches, whole)


def _reach(session: Session, num_images: int) -> Reach:
    imgsz, network = session.config.imgsz, session.network
    assert imgsz is not None
    keeping = deepcopy(network)
    keeping.checkpoint_activations = False  # that is for training; the passes in float64 are in evaluation mode
    return Reach(
        free=free_memory(session.setup.device),
        exact=training_bytes(keeping, imgsz, num_images, bytes_per_value=DOUBLE),
        live=training_bytes(network, imgsz, num_images),
    )


def _opening_lines(session: Session, images: LoadedImages) -> list[str]:
    window, config = images.window, session.config
    sizes = sorted({len(batch) for batch in images.micro_batches}, reverse=True)
    count = len(images.micro_batches)
    cut = f"in {count} micro-batches of {' and '.join(map(str, sizes))}" if count > 1 else "in one batch"
    lines = [
        f"verify {config.model} on {config.data}",
        f"window {window.index} (epoch {window.epoch + 1}): {len(images.whole)} images {cut}",
    ]
    if count == 1:
        lines.append(f"batch {config.batch}: nothing is accumulated; the cut into single images is the one to look at")
    return lines


def _expectations(settings: Settings, images: LoadedImages, reach: Reach) -> list[str]:
    """The seconds and the memory that are to be expected."""
    # On a processor an image takes as long alone as among others; a GPU must be kept busy.
    is_gpu = settings.exact.device.type == "cuda"
    probe = next(batch for batch in images.micro_batches if len(batch)) if is_gpu else images.whole.split(1)[0]
    seconds = len(images.whole) * (
        EXACT_PASSES * _seconds_per_image(settings.exact, probe)
        + TRAINING_PASSES * _seconds_per_image(settings.precision, probe)
    )
    free = "" if reach.free is None else f" of {_size(reach.free)} free"
    needed = f"about {_size(reach.exact)}{free} for a full batch in float64"
    if reach.fits(reach.exact):
        return [f"expected: about {seconds:.0f} s; {needed}"]
    return [
        f"expected: about {seconds:.0f} s",
        f"memory: {needed} is more than {MOST_OF_MEMORY:.0%}: single images are compared with instead",
    ]


def _seconds_per_image(setting: Setting, batch: Batch) -> float:
    plain_gradient(setting, [batch])  # the first pass of a shape takes longer
    started = time.perf_counter()
    plain_gradient(setting, [batch])
    return (time.perf_counter() - started) / len(batch)


def _size(count: int) -> str:
    return f"{count / 2**30:.1f} GB" if count >= 2**30 else f"{count / 2**20:.0f} MB"


def _speaker(config: Config) -> Callable[[str], None]:
    """Prints what comes before the result: nowhere if quiet, and not where the JSON document goes."""
    if config.quiet:
        return lambda line: None
    return lambda line: print(line, file=sys.stderr if config.json else sys.stdout, flush=True)
