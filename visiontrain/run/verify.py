"""`visiontrain verify`: proves on the user's data and model that accumulation equals the full batch; writes nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

from visiontrain.config.schema import Config
from visiontrain.data.dataset import TrainDataset
from visiontrain.data.loader import TrainLoader
from visiontrain.engine.device import free_memory
from visiontrain.engine.equivalence import (
    TOLERANCE,
    Setting,
    Settings,
    compare_cuts,
    plain_gradient,
    settings_of,
)
from visiontrain.errors import ConfigError, DataError
from visiontrain.models.info import training_bytes
from visiontrain.plan import Plan, Window
from visiontrain.run.choose_task import with_task
from visiontrain.run.files import as_json
from visiontrain.run.normalization import normalization_warnings
from visiontrain.run.prepare import is_weights_file, load_model, place, task_of
from visiontrain.run.process import own_random_state, process_settings
from visiontrain.run.samples import largest_size, open_samples
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
TAKEN_OVER = (
    "data",
    "data_format",
    "val_fraction",
    "seed",
    "single_cls",
    "multi_label",
    "loss",
    "label_smoothing",
    "class_weights",
    "focal_gamma",
    "max_pixels",
    "imgsz",
    "batch",
    "nbs",
    "tail",
    "norm",
    "amp",
)

PROBED_SIDE = 256
"""Pixels of an image that are timed."""
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


def verify_run(config: Config, *, is_silent: bool = False) -> dict[str, Any]:
    """Compare the window's gradient as `train` would cut it with that of a full batch, and print what was found.

    Args:
        config: The settings.
        is_silent: Whether nothing is printed at all.

    Returns:
        The document of `json=True`.

    Raises:
        UserError: If the input is wrong.
    """
    started = time.perf_counter()
    session, is_trained = _open(config)
    say = _speaker(config, is_silent=is_silent)
    window = choose_window(session.recipe.plan)
    reach = _reach(session, window.size)
    for line in (*session.changes, *_opening_lines(session, window, is_trained=is_trained), *_memory_lines(reach)):
        say(line)
    with (
        process_settings(session.setup, is_deterministic=config.deterministic),
        own_random_state(session.setup, config.seed),
    ):
        images = _load(session, window)
        say(_seconds_line(session, images))
        found = compare_cuts(
            _settings(session, images, is_trained=is_trained),
            images.micro_batches,
            images.whole,
            whole_fits=reach.fits(reach.exact),
            live_fits=reach.fits(reach.live),
        )
    if found.is_about_nothing:
        raise DataError(
            f"{session.config.data}: the gradient of window {window.number} is 0, so there is nothing to compare; "
            "check the weights of the loss (box, cls, dfl)"
        )
    document = {
        **verdict_document(found),
        "images": len(images.whole),
        "micro_batches": [len(batch) for batch in images.micro_batches],
        "epoch": window.epoch + 1,
        "window": window.number,
        "reference": FULL_BATCH if reach.fits(reach.exact) else SINGLE_IMAGES,
        "precision_name": session.precision.name,
        "seconds": time.perf_counter() - started,
        "tolerance": TOLERANCE,
    }
    lines = verdict_lines(found, document, norm=session.config.norm, is_trained=is_trained)
    if not is_silent:
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
    if not is_weights_file(config.model):
        if config.map_names is not None:
            raise ConfigError("map_names: has no effect on a network that is made for the data; leave it out")
        session = open_session(config)
        return session, session.transfer is not None
    config = with_task(config)
    loaded = load_model(config, task_of(config))
    return open_session(with_training_args(config, loaded, TAKEN_OVER), trained=loaded), True


def _load(session: Session, window: Window) -> LoadedImages:
    """Load the window by training's own loader, and once more image by image: a sample is a function of its key.

    Raises:
        DataError: If none of its images can be read.
    """
    config, task, plan = session.config, session.task, session.recipe.plan
    dataset = _samples(session)
    loader = TrainLoader(dataset, plan, task.collate, workers=session.setup.workers)
    try:
        micro_batches = tuple(next(loader.windows(window.index)))
    finally:
        loader.close()
    whole = task.collate([dataset[key] for key in dataset.sampler.keys(window)])
    for path in whole.unreadable:
        print(f"warning: {path}: cannot be read; it is left out of its window", file=sys.stderr)
    if not len(whole):
        raise DataError(f"{config.data}: none of the {window.size} images of window {window.number} can be read")
    return LoadedImages(window, micro_batches, whole)


def _samples(session: Session) -> TrainDataset:
    stride = max(session.network.strides)
    return open_samples(session.config, session.task, session.train, stride=stride)


def _reach(session: Session, num_images: int) -> Reach:
    network = session.network
    imgsz = largest_size(session.config, max(network.strides))
    keeping = deepcopy(network)
    keeping.checkpoint_activations = False  # that is for training; the passes in float64 are in evaluation mode
    return Reach(
        free=free_memory(session.setup.device),
        exact=training_bytes(keeping, imgsz, num_images, bytes_per_value=DOUBLE, in_one_step=False),
        live=training_bytes(network, imgsz, num_images, in_one_step=session.setup.device.type == "cpu"),
    )


def _settings(session: Session, images: LoadedImages, *, is_trained: bool) -> Settings:
    return settings_of(
        place(session.network, session.setup),
        lambda network: session.task.criterion(network, session.config),
        images.micro_batches,
        gain=session.recipe.gain,
        precision=session.precision,
        device=session.setup.device,
        is_trained=is_trained,
    )


def _opening_lines(session: Session, window: Window, *, is_trained: bool) -> list[str]:
    """What is compared, and what the user should know of it."""
    config, plan, count = session.config, session.recipe.plan, len(window.sizes)
    cut = f"in {count} micro-batches of at most {max(window.sizes)}" if count > 1 else "in one batch"
    which = "the first full one after warmup" if window.size >= plan.full_window else "the largest"
    lines = [
        f"verify {config.model} on {config.data}: imgsz {config.imgsz}, norm {config.norm}, {session.precision.name}",
        f"window {window.number} ({which}, epoch {window.epoch + 1}): {_images(window.size)} {cut}",
    ]
    if count == 1:
        lines.append("nothing is accumulated in it" + ("; see the cut into single images" if window.size > 1 else ""))
    sampler = _samples(session).sampler
    if not any(len(session.train[key.index].classes) for key in sampler.keys(window)):
        lines.append("warning: none of its images has a label, so it is background alone that is compared")
    warnings = normalization_warnings(config, session.network, plan, is_fresh=not is_trained)
    return [*lines, *(f"warning: {text}" for text in warnings)]


def _images(count: int) -> str:
    return f"{count} image" if count == 1 else f"{count} images"


def _memory_lines(reach: Reach) -> list[str]:
    free = "" if reach.free is None else f" of {_size(reach.free)} free"
    needed = f"expected memory: about {_size(reach.exact)}{free}, for a full batch in float64"
    if reach.fits(reach.exact):
        return [needed]
    return [needed, f"that is more than {MOST_OF_MEMORY:.0%}: single images are compared with instead"]


def _seconds_line(session: Session, images: LoadedImages) -> str:
    """The time to be expected, from a corner of one image: it grows with the area."""
    settings = _settings(session, images, is_trained=True)  # as if: statistics take a pass over all images
    probe = next(batch for batch in images.micro_batches if len(batch)).split(1)[0]
    stride = max(session.network.strides)
    side = min(*probe.images.shape[2:], -(-PROBED_SIDE // stride) * stride)
    corner = replace(probe, images=probe.images[:, :, :side, :side])
    areas = len(images.whole) * probe.images[0, 0].numel() / side**2
    exact, training = _seconds(settings.exact, corner), _seconds(settings.precision, corner)
    return f"expected time: about {areas * (EXACT_PASSES * exact + TRAINING_PASSES * training):.0f} s"


def _seconds(setting: Setting, batch: Batch) -> float:
    plain_gradient(setting, [batch])  # the first pass of a shape takes longer
    started = time.perf_counter()
    plain_gradient(setting, [batch])
    return time.perf_counter() - started


def _size(count: int) -> str:
    return f"{count / 2**30:.1f} GB" if count >= 2**30 else f"{count / 2**20:.0f} MB"


def _speaker(config: Config, *, is_silent: bool) -> Callable[[str], None]:
    """Prints what comes before the result: nowhere if quiet, and not where the JSON document goes."""
    if config.quiet or is_silent:
        return lambda line: None
    return lambda line: print(line, file=sys.stderr if config.json else sys.stdout, flush=True)
