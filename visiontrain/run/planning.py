"""The plan as a document: what `plan` prints, `json=True` gives and `plan.json` keeps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from visiontrain.config.schema import Config
from visiontrain.plan import Plan, cut_evenly
from visiontrain.run.prepare import Recipe

FEW_UPDATES = 100
SMALL_FOR_BATCH_NORM = 2


def plan_document(config: Config, recipe: Recipe) -> dict[str, Any]:
    """Every number of the updates to come; keys as in the documentation of `plan json=True`."""
    plan = recipe.plan
    return {
        "images": plan.num_images,
        "batch": plan.batch,
        "nbs": plan.nbs,
        "processes": config.processes,
        "epochs": plan.epochs,
        "accumulate": plan.accumulate,
        "updates": plan.num_updates,
        "warmup_images": plan.warmup_images,
        "tail": plan.tail,
        "optimizer": recipe.optimizer.name,
        "weight_decay": recipe.weight_decay,
        "weight_decay_factor": plan.weight_decay_factor,
        "windows": list(_spans(plan)),
        "lr": list(_rates(recipe)),
        "warnings": _warnings(plan),
    }


def _spans(plan: Plan) -> Iterator[dict[str, Any]]:
    """Runs of epochs with equal windows; epochs count from 1."""
    for sizes, members in groupby(range(plan.epochs), key=lambda epoch: plan.window_sizes[epoch]):
        epochs = list(members)
        yield {
            "first_epoch": epochs[0] + 1,
            "last_epoch": epochs[-1] + 1,
            "images": list(sizes),
            "micro_batches": [list(cut_evenly(size, -(-size // plan.batch))) for size in sizes],
        }


def _rates(recipe: Recipe) -> Iterator[dict[str, float | int]]:
    """Five updates: the first, the last of warmup, two between, the last; epochs count from 1."""
    plan = recipe.plan
    after_warmup = next(
        (w.index for epoch in range(plan.epochs) for w in plan.windows(epoch) if w.stop >= plan.warmup_images), 0
    )
    last = plan.num_updates - 1
    points = sorted({0, after_warmup, (2 * after_warmup + last) // 3, (after_warmup + 2 * last) // 3, last})
    windows = {w.index: w for epoch in range(plan.epochs) for w in plan.windows(epoch) if w.index in points}
    for index in points:
        rates = recipe.schedule.at(windows[index].stop)
        yield {"update": index + 1, "epoch": windows[index].epoch + 1, "lr": rates.lr, "momentum": rates.momentum}


def _warnings(plan: Plan) -> list[str]:
    """What a user would want to know before he starts, each with what to turn."""
    texts = []
    if plan.num_updates < FEW_UPDATES:
        texts.append(
            f"only {plan.num_updates} updates in all, fewer than {FEW_UPDATES}: raise epochs, or lower nbs "
            f"(now {plan.nbs})"
        )
    if plan.full_window > plan.num_images and plan.tail != "carry":
        texts.append(
            f"effective batch {plan.num_images} of nbs {plan.nbs}: an epoch holds fewer images than a window; "
            f"lower nbs to {plan.num_images} or less"
        )
    if plan.batch <= SMALL_FOR_BATCH_NORM:
        texts.append(
            f"BatchNorm sees micro-batches of {plan.batch}: its statistics will be rough; raise batch if memory allows"
        )
    if plan.batch > plan.nbs:
        texts.append(
            f"batch {plan.batch} is larger than nbs {plan.nbs}: every update sees {plan.full_window} images; "
            "lower batch or raise nbs"
        )
    if plan.weight_decay_factor != 1:
        texts.append(
            f"a full window holds {plan.full_window} images, not nbs = {plan.nbs}: weight decay is multiplied by "
            f"{plan.weight_decay_factor:g}; choose a batch that divides nbs to keep it"
        )
    return texts


def batch_line(plan: Plan) -> str:
    """The sentence that says what an update sees."""
    per_epoch = len(plan.window_sizes[-1])
    return (
        f"batch {plan.batch} × accumulate {plan.accumulate} = {plan.full_window} images per update, "
        f"{per_epoch} updates per epoch, {plan.num_updates} in all"
    )


def plan_lines(config: Config, recipe: Recipe) -> list[str]:
    """The plan in words and a table."""
    plan, document = recipe.plan, plan_document(config, recipe)
    sizes = [size for epoch in plan.window_sizes for size in epoch]
    lines = [
        batch_line(plan),
        f"images per update: least {min(sizes)}, mean {sum(sizes) / len(sizes):.1f}, most {max(sizes)}",
        f"warmup: {plan.warmup_images} images ({plan.warmup_images / plan.num_images:g} epochs), tail={plan.tail}",
        optimizer_line(recipe),
        "",
        "epochs       windows (images, micro-batches)",
        *(_span_line(span) for span in document["windows"]),
        "",
        "update   epoch         lr   momentum",
        *(f"{p['update']:>6}  {p['epoch']:>6}  {p['lr']:>9.3g}  {p['momentum']:>9.4g}" for p in document["lr"]),
    ]
    return lines + [f"warning: {text}" for text in document["warnings"]]


def optimizer_line(recipe: Recipe) -> str:
    """Optimizer, its rates, and the weight decay with why it is not what was asked."""
    choice, plan = recipe.optimizer, recipe.plan
    factor = (
        ""
        if plan.weight_decay_factor == 1
        else f" (× {plan.weight_decay_factor:g}: {plan.full_window} images of nbs {plan.nbs})"
    )
    why = f" (auto: {choice.reason})" if choice.reason else ""
    return (
        f"optimizer {choice.name}{why}: lr0 {recipe.schedule.lr0:g}, momentum {choice.momentum:g}, "
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
