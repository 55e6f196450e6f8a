"""What a run says of itself before it starts."""

from __future__ import annotations

from pathlib import Path

import torch

import visiontrain
from visiontrain.data.cache import ImageCache
from visiontrain.models.info import model_info
from visiontrain.run.compiling import NOTE as COMPILE_NOTE
from visiontrain.run.finetune import transfer_lines
from visiontrain.run.freezing import freezing_lines
from visiontrain.run.planning import batch_line, plan_warnings, update_lines
from visiontrain.run.session import Session


def banner_lines(session: Session, folder: Path, *, cache: ImageCache | None) -> list[str]:
    """All numbers that a user would otherwise have to ask for."""
    config, recipe = session.config, session.recipe
    assert config.imgsz is not None
    suggested = [f"{key}={getattr(config, key)}" for key in ("imgsz", "epochs") if config.origin(key) == "sample"]
    counts = f"{len(session.train)} train" + (f", {len(session.val)} val" if session.val is not None else ", no val")
    data = f"{config.data}: {counts} images, {len(session.data.names)} classes"
    if suggested:
        data += f" (bundled sample; it suggests {' '.join(suggested)}, typed values win)"
    lines = [
        f"visiontrain {visiontrain.__version__}, torch {torch.__version__}, {_where(session)}",
        f"data {data}",
        *(f"  {text}" for text in session.changes),
        *([f"cache: {cache.summary}"] if cache is not None else []),
        f"model {config.model}, {model_info(session.network, config.imgsz)}",
        *(transfer_lines(session.transfer) if session.transfer is not None else ()),
        *freezing_lines(session.network, config, session.frozen, epoch=session.state.epoch + 1),
        batch_line(recipe.plan, session.fit, config.processes),
        *update_lines(session),
        *([COMPILE_NOTE] if config.compile else []),
        *(f"warning: {text}" for text in plan_warnings(session)),
    ]
    if session.state.epoch:
        lines.append(f"goes on after epoch {session.state.epoch} of {config.epochs}, update {session.state.updates}")
    return [*lines, f"run {folder}"]


def _where(session: Session) -> str:
    """What the run computes on."""
    size, setup = session.group.size, session.setup
    each = f"{setup.threads} threads, {setup.workers} workers"
    device = f"{size} processes on {setup.device.type} ({each} each)" if size > 1 else f"{setup.device} ({each})"
    return f"{device}, {session.precision.name}"
