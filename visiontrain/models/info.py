"""How large a network is."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from visiontrain.models.network import Network
from visiontrain.models.operations import OperationCounter

# Peak memory over what autograd holds at once, measured in updates of det-n and det-s on a CPU at 320 and 640 pixels,
# batch 2 to 8: gradients on their way, the loss, and holes in the heap. Recomputing leaves more holes, since what stays
# for long is allocated among what is dropped at once; where there are none, 1.1 is enough for either.
PEAK_OVER_KEPT = 1.25
PEAK_OVER_RECOMPUTED = 2.3
PROBED_SIZE = 256
"""Pixels; a multiple of any usual stride."""
BEFORE_STAGES = -1
"""In place of a stage's index: what is kept before the first one."""
STATE_COPIES = 5  # weights, gradients, two of the optimizer, their average


@dataclass(frozen=True)
class ModelInfo:
    """Size and cost of a network."""

    layers: int
    """Modules that hold no other module."""
    parameters: int
    gflops: float
    """Billions of floating-point operations for one image; a multiplication with its addition counts as two."""
    imgsz: int
    """Pixels of the square image that `gflops` is for."""

    def __str__(self) -> str:
        return f"{self.layers} layers, {self.parameters:,} parameters, {self.gflops:.1f} GFLOPs at {self.imgsz} pixels"


def model_info(network: nn.Module, imgsz: int) -> ModelInfo:
    """Count layers, parameters and floating-point operations; the network is left as it was.

    Args:
        network: Takes (1, 3, imgsz, imgsz) images.
        imgsz: Pixels, a multiple of the network's largest stride.
    """
    modes = {module: module.training for module in network.modules()}
    images = torch.zeros(1, 3, imgsz, imgsz, dtype=torch.uint8, device=next(network.parameters()).device)
    network.eval()  # one image must not reach BatchNorm's statistics
    try:
        # With gradients and by plain products: the counter does not know what attention is fused into otherwise.
        with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH), OperationCounter() as counter:
            network.forward(images)  # not the code that it may have been compiled to
    finally:
        for module, training in modes.items():
            module.training = training
    return ModelInfo(
        layers=sum(1 for module in network.modules() if not any(module.children())),
        parameters=sum(parameter.numel() for parameter in network.parameters()),
        gflops=counter.total / 1e9,
        imgsz=imgsz,
    )


def training_bytes(
    network: nn.Module, imgsz: int, batch: int, *, bytes_per_value: int = 4, in_one_step: bool = True
) -> int:
    """An estimate of the memory that training takes for tensors; the program and its libraries come on top.

    What an image takes grows with its area, to a percent; so it is found at a small size, whatever `imgsz` is.

    Args:
        network: Whether it checkpoints its activations is read from it.
        imgsz: Pixels.
        batch: Images in memory at once.
        bytes_per_value: 8 where the network will run in float64, whatever it is in now.
        in_one_step: Whether BatchNorm and SiLU are, see `norm_silu`: on a processor, in training mode.
    """
    state = STATE_COPIES * sum(parameter.nbytes for parameter in network.parameters())
    fixed = network.fixed_size if isinstance(network, Network) else None
    probed = PROBED_SIZE if fixed is None else fixed
    all_kept = kept_bytes(network, probed, in_one_step=in_one_step)
    image = PEAK_OVER_KEPT * all_kept
    if is_checkpointed(network):
        # The last stage of all is computed again while everything is still kept, and it is among the largest.
        kept = _kept_by_stage(network, probed, checkpointed=False, in_one_step=in_one_step)
        largest = max(size for stage, size in kept.items() if stage != BEFORE_STAGES)
        image = PEAK_OVER_RECOMPUTED * (all_kept + largest)
    as_given = state + batch * image * (imgsz / probed) ** 2
    return round(as_given * bytes_per_value / next(network.parameters()).element_size())


def kept_bytes(network: nn.Module, imgsz: int, *, in_one_step: bool = True) -> int:
    """Bytes that a training forward pass of one image keeps for its backward pass, found by running one.

    Where activations are checkpointed, that is what the stages hand to each other.
    """
    is_handed_on = is_checkpointed(network)
    return sum(_kept_by_stage(network, imgsz, checkpointed=is_handed_on, in_one_step=in_one_step).values())


def is_checkpointed(network: nn.Module) -> bool:
    """Whether training computes the network's activations twice in place of keeping them."""
    return isinstance(network, Network) and network.checkpoint_activations


def _kept_by_stage(network: nn.Module, imgsz: int, *, checkpointed: bool, in_one_step: bool) -> dict[int, int]:
    """What each stage of a `Network` (others are one stage) is the first to keep of one image, bytes."""
    copy = deepcopy(network).train()  # a pass moves BatchNorm's statistics
    if isinstance(copy, Network):
        copy.checkpoint_activations = checkpointed
    for norm in () if in_one_step else copy.modules():
        if isinstance(norm, nn.BatchNorm2d):
            norm.register_forward_hook(lambda *_: None)  # layers with hooks are called one by one
    running = BEFORE_STAGES

    def enter(stage: int) -> None:
        nonlocal running
        running = stage

    for index, stage in enumerate(copy.stages if isinstance(copy, Network) else ()):
        stage.register_forward_pre_hook(lambda *_, index=index: enter(index))
    kept: dict[int, tuple[int, int]] = {}  # a view keeps all of its storage, and two views keep it once

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept.setdefault(storage.data_ptr(), (running, storage.nbytes()))
        return tensor

    # Two images: a single one leaves BatchNorm one value a channel where the coarsest map has one cell.
    images = torch.zeros(2, 3, imgsz, imgsz, device=next(copy.parameters()).device)
    is_drawn_elsewhere = torch.random.fork_rng(devices=[images.device] if images.is_cuda else [])  # by dropout
    with is_drawn_elsewhere, torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        outputs = copy(images)
    state = {tensor.untyped_storage().data_ptr() for tensor in (*copy.parameters(), *copy.buffers())}
    del outputs
    by_stage: dict[int, int] = {}
    for pointer, (index, size) in kept.items():
        if pointer not in state:
            by_stage[index] = by_stage.get(index, 0) + size
    return {index: size // 2 for index, size in by_stage.items()}
