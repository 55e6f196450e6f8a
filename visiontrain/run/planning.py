"""The plan as a document: what `plan` prints, `json=True` gives and `plan.json` keeps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from visiontrain.engine.ema import horizon_after
from visiontrain.engine.memory import Fit
from visiontrain.models.info import training_bytes
from visiontrain.plan import Plan, micro_batch_sizes
from visiontrain.run.auto_batch import fit_text
from visiontrain.run.freezing import freezing_warnings
from visiontrain.run.normalization import normalization_line, normalization_warnings
from visiontrain.run.prepare import Recipe
from visiontrain.run.samples import largest_size
from visiontrain.run.session import Session

FEW_UPDATES = 100


def plan_document(session: Session) -> dict[str, Any]:
    """Every number of the updates to come; keys as in the documentation of `plan json=True`."""
    config, recipe, plan, fit = session.config, session.recipe, session.recipe.plan, session.fit
    largest = largest_size(config, max(session.network.strides))
    together, on_processor = -(-plan.batch // config.processes), session.setup.device.type == "cpu"
    memory = training_bytes(session.network, largest, together, in_one_step=on_processor)
    return {
        "images": plan.num_images,
        "batch": plan.batch,
        "batch_auto": None if fit is None else {"needed": fit.needed, "available": fit.available},
        "nbs": plan.nbs,
        "processes": config.processes,
        "epochs": plan.epochs,
        "accumulate": plan.accumulate,
        "updates": plan.num_updates,
        "images_per_update": _images_per_update(plan),
        "warmup_images": plan.warmup_images,
        "tail": plan.tail,
        "optimizer": recipe.optimizer.name,
        "weight_decay": recipe.weight_decay,
        "weight_decay_factor": recipe.decay_factor,
        "lr_factor": recipe.lr_factor,
        "norm": config.norm,
        "ema": _ema_horizon(plan) if config.ema else None,
        "windows": list(_spans(plan)),
        "lr": list(_rates(recipe)),
        "warnings": plan_warnings(session),
        "memory_mb": round(memory / 2**20),
    }


def _images_per_update(plan: Plan) -> dict[str, float]:
    sizes = [size for epoch in plan.window_sizes for size in epoch]
    return {"min": min(sizes), "mean": sum(sizes) / len(sizes), "max": max(sizes)}


def _ema_horizon(plan: Plan) -> dict[str, float]:
    """How much of the run's end the average of the weights holds."""
    updates = horizon_after(plan.num_updates)
    return {"updates": updates, "images": updates * plan.total_images / plan.num_updates}


def _spans(plan: Plan) -> Iterator[dict[str, Any]]:
    """Runs of epochs with equal windows; epochs count from 1."""
    for sizes, members in groupby(range(plan.epochs), key=lambda epoch: plan.window_sizes[epoch]):
        epochs = list(members)
        yield {
            "first_epoch": epochs[0] + 1,
            "last_epoch": epochs[-1] + 1,
            "images": list(sizes),
            "micro_batches": [list(micro_batch_sizes(size, plan.batch)) for size in sizes],
        }


def _rates(recipe: Recipe) -> Iterator[dict[str, float | int]]:
    """Five updates (all, if there are fewer): the first, the end of warmup, two between, the last; epochs from 1."""
    plan = recipe.plan
    last = plan.num_updates - 1
    warm = next((window.index for window in plan.all_windows() if window.stop >= plan.warmup_images), 0)
    warm = warm or last // 4  # without warmup the points are spread evenly
    points = sorted({0, warm, (2 * warm + last) // 3, (warm + 2 * last) // 3, last})
    windows = {window.index: window for window in plan.all_windows() if window.index in points}
    for index in points:
        rates = recipe.schedule.at(windows[index].stop)
        yield {"update": index + 1, "epoch": windows[index].epoch + 1, "lr": rates.lr, "momentum": rates.momentum}


def plan_warnings(session: Session) -> list[str]:
    """What a user would want to know before he starts, each with what to turn."""
    recipe, plan, texts = session.recipe, session.recipe.plan, []
    if plan.num_updates < FEW_UPDATES:
        texts.append(
            f"only {plan.num_updates} updates in all, fewer than {FEW_UPDATES}: raise epochs, or lower nbs "
            f"(now {plan.nbs})"
        )
    if plan.nbs > plan.num_images and plan.tail != "carry":
        texts.append(
            f"effective batch {plan.num_images} of nbs {plan.nbs}: an epoch holds fewer images than a window; "
            f"lower nbs to {plan.num_images} or less"
        )
    is_fresh = session.checkpoint is None and session.transfer is None
    texts += normalization_warnings(session.config, session.network, plan, is_fresh=is_fresh)
    texts += freezing_warnings(session.config, is_fresh=is_fresh)
    if plan.batch < session.config.processes:
        texts.append(
            f"batch {plan.batch} is smaller than processes = {session.config.processes}: "
            f"{session.config.processes - plan.batch} of them have no image; raise batch, or start fewer"
        )
    if plan.batch > plan.nbs:
        texts.append(
            f"batch {plan.batch} is larger than nbs {plan.nbs}: an update sees "
            f"{min(plan.full_window, plan.num_images)} images; lower batch or raise nbs"
        )
    if recipe.decay_factor != 1:
        texts.append(
            f"a full window holds {plan.full_window} images, not nbs = {plan.nbs}: weight decay is multiplied by "
            f"{recipe.decay_factor:g}; choose a batch that divides nbs to keep it"
        )
    if recipe.lr_factor != 1 and recipe.gain != 1:
        texts.append(
            f"lr_scaling multiplies the learning rate by {recipe.lr_factor:g} on top of the loss, which is already "
            f"multiplied by the {recipe.gain:g} images of a window; lr_scaling=none keeps to one of the two"
        )
    return texts


def batch_line(plan: Plan, fit: Fit | None, processes: int) -> str:
    """The sentence that says what an update sees, and how the micro-batch was found, where it was measured."""
    settled = {len(sizes) for sizes in plan.window_sizes[-(-plan.warmup_images // plan.num_images) :]}
    per_epoch = f"{settled.pop()}" if len(settled) == 1 else f"about {plan.num_images / plan.full_window:.2g}"
    found = f" ({fit_text(fit)})" if fit else ""
    if processes > 1:
        least, most = plan.batch // processes, -(-plan.batch // processes)
        found = f" ({processes} processes × {most if least == most else f'{least} to {most}'})"
    return (
        f"batch {plan.batch}{found} × accumulate {plan.accumulate} = {plan.full_window} images per update, "
        f"{per_epoch} updates per epoch, {plan.num_updates} in all"
    )


def plan_lines(session: Session) -> list[str]:
    """The plan in words and a table."""
    plan, document = session.recipe.plan, plan_document(session)
    images, ema = document["images_per_update"], document["ema"]
    lines = [
        batch_line(plan, session.fit, session.config.processes),
        f"images per update: least {images['min']}, mean {images['mean']:.1f}, most {images['max']}",
        *update_lines(session),
        *([ema_line(ema)] if ema else []),
        f"memory: about {document['memory_mb']} MB for tensors at batch {plan.batch}, imgsz {session.config.imgsz}"
        f"{', in each process' if document['processes'] > 1 else ''}",
        "",
        "epochs       windows (images, micro-batches)",
        *(_span_line(span) for span in document["windows"]),
        "",
        "update   epoch         lr   momentum",
        *(f"{p['update']:>6}  {p['epoch']:>6}  {p['lr']:>9.3g}  {p['momentum']:>9.4g}" for p in document["lr"]),
    ]
    return lines + [f"warning: {text}" for text in document["warnings"]]


def ema_line(horizon: Mapping[str, float]) -> str:
    """What the average of the weights holds at the end."""
    return (
        f"ema: at the end it averages over about the last {horizon['updates']:,.0f} updates, "
        f"{horizon['images']:,.0f} images"
    )


def update_lines(session: Session) -> list[str]:
    """Warmup, optimizer and normalization: the numbers of an update beside its images."""
    plan = session.recipe.plan
    normalization = normalization_line(session.config, session.network, plan)
    return [
        f"warmup: {plan.warmup_images} images ({plan.warmup_images / plan.num_images:g} epochs), tail={plan.tail}",
        optimizer_line(session.recipe),
        *([normalization] if normalization else []),
    ]


def optimizer_line(recipe: Recipe) -> str:
    """Optimizer, its rates, and the weight decay with why it is not what was asked."""
    choice, plan = recipe.optimizer, recipe.plan
    window = f"{plan.full_window} images of nbs {plan.nbs}"
    factor = "" if recipe.decay_factor == 1 else f" (× {recipe.decay_factor:g}: {window})"
    lr_factor = "" if recipe.lr_factor == 1 else f" (× {recipe.lr_factor:g} by lr_scaling: {window})"
    why = f" (auto: {choice.reason})" if choice.reason else ""
    return (
        f"optimizer {choice.name}{why}: lr0 {recipe.schedule.lr0:g}{lr_factor}, momentum {choice.momentum:g}, "
        f"weight decay {recipe.weight_decay:g}{factor}"
    )


def _span_line(span: Mapping[str, Any]) -> str:
    first, last = span["first_epoch"], span["last_epoch"]
    name = str(first) if first == last else f"{first}-{last}"
    parts = []
    for (images, cuts), members in groupby(zip(span["images"], map(len, span["micro_batches"]), strict=True)):
        count = len(list(members))
        parts.append(f"{f'{count} × ' if count > 1 else ''}{images} in {cuts}")
    return f"{name:<12} {', '.join(parts)}"
