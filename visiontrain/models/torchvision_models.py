"""torchvision's classification networks, by their names, as a `Network`.

Images are normalized as the weights that torchvision offers for a network expect it, whether these are loaded or not.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from visiontrain.errors import ConfigError
from visiontrain.models.description import checked_description, nearest_names
from visiontrain.models.network import Network, check_multiple
from visiontrain.models.norm import set_norm_
from visiontrain.models.probe import takes_size
from visiontrain.models.recompute import RecomputedChain, chain_blocks_

DESCRIPTION_KEYS = ("task", "torchvision", "imgsz", "norm", "dropout", "multi_label")
DEFAULT_SIZE = 224
CONVERTED = ("googlenet", "inception_v3")
"""Their weights came from another program, which had images in [-1, 1]; they make them so themselves."""
PROBED_SIZES = (32, 48, 64, 80, 96, 128, 160, 192, 224, 256, 320)
"""Pixels; the smallest that a network takes is looked for among them."""


@dataclass(frozen=True)
class FixedSize:
    """How a network is told the one image size that it is then for."""

    argument: str
    stride: int
    """Pixels; the size is a multiple of it."""

    def arguments(self, imgsz: int) -> dict[str, Any]:
        return {self.argument: (imgsz, imgsz) if self.argument == "input_size" else imgsz}


def torchvision_names() -> tuple[str, ...]:
    """The names of torchvision's classification networks."""
    import torchvision  # loads torch's compiler, 150 MB: not for networks of our own

    return tuple(torchvision.models.list_models(module=torchvision.models))


class TorchvisionNetwork(Network):
    """A classification network of torchvision; outputs (B, C) logits.

    Attributes:
        network: torchvision's own module, with its own names.
        mean: (3, 1, 1) float, what `prepare` takes from images in [0, 1].
        std: (3, 1, 1) float, what it divides them by then.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        network: nn.Module,
        *,
        names: Sequence[str],
        stride: int,
        description: Mapping[str, Any],
        fixed_size: int | None,
    ) -> None:
        super().__init__(
            task="classify", names=names, strides=(stride,), description=description, fixed_size=fixed_size
        )
        self.network = network
        mean, std = normalization_of(str(description["torchvision"]))
        # Of the program, not of the weights: they are in no checkpoint.
        self.register_buffer("mean", torch.tensor(mean).view(3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).view(3, 1, 1), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """(B, 3, H, W) RGB, uint8 or float in [0, 1] → (B, C) logits."""
        return self.network(self.prepare(images))

    def prepare(self, images: Tensor) -> Tensor:
        """Images in the type of the weights, normalized by mean and standard deviation."""
        return (super().prepare(images) - self.mean) / self.std

    @property
    def stages(self) -> Sequence[nn.Module]:
        return [block for chain in self._chains() for block in chain.blocks]

    @property
    def checkpoint_activations(self) -> bool:
        """Whether training computes the activations of blocks again in place of keeping them.

        Raises:
            ConfigError: When it is asked of a network that is not made of blocks.
        """
        return any(chain.recomputes for chain in self._chains())

    @checkpoint_activations.setter
    def checkpoint_activations(self, asked: bool) -> None:
        if asked and not self.stages:
            raise ConfigError(
                f"checkpoint_activations = True: {self.description['torchvision']} is not made of blocks that could be "
                "computed again; leave it out, or choose a network such as resnet18"
            )
        for chain in self._chains():
            chain.recomputes = asked

    def check_size(self, imgsz: int) -> None:
        """Raises ConfigError unless the network takes square images of `imgsz` pixels."""
        name = self.description["torchvision"]
        if self.fixed_size not in (None, imgsz):
            raise ConfigError(
                f"imgsz = {imgsz}: this {name} was built for images of {self.fixed_size} pixels and takes no others; "
                f"use imgsz={self.fixed_size}"
            )
        if self.fixed_size is None and not takes_size(self.network, imgsz):
            least = next((size for size in PROBED_SIZES if size > imgsz and takes_size(self.network, size)), None)
            if least is not None:
                raise ConfigError(
                    f"imgsz = {imgsz}: is too small for {name}, of whose last maps nothing would be left; "
                    f"use {least} or more"
                )

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """As of any module; names and tensors alone, as in a checkpoint, are taken as of this version's layout.

        MNASNet, for one, refuses what does not tell the version of its layout.
        """
        if not hasattr(state_dict, "_metadata"):
            state_dict = OrderedDict(state_dict)
            state_dict._metadata = self.state_dict()._metadata  # type: ignore[attr-defined]
        return super().load_state_dict(state_dict, strict=strict, assign=assign)

    def _chains(self) -> list[RecomputedChain]:
        return [module for module in self.modules() if isinstance(module, RecomputedChain)]


class DropoutLinear(nn.Linear):
    """A linear layer after dropout; in the place of a plain one it has the same weights."""

    def __init__(self, linear: nn.Linear, dropout: float) -> None:
        super().__init__(linear.in_features, linear.out_features, linear.bias is not None, device="meta")
        self.weight, self.bias = linear.weight, linear.bias
        self.dropout = dropout

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(nn.functional.dropout(input, self.dropout, self.training))

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, dropout={self.dropout:g}"


def build_torchvision(
    spec: str | Mapping[str, Any],
    names: Sequence[str],
    *,
    imgsz: int | None = None,
    dropout: float | None = None,
    multi_label: bool | None = None,
) -> TorchvisionNetwork:
    """Make a network of torchvision with fresh weights for these classes.

    Args:
        spec: Its name there, such as `resnet18`, or a `Network.description`.
        names: Class names by index.
        imgsz: The image size that it will see, pixels; None: what `spec` says, or nothing is checked. Vision
            transformers (224 where nobody says) are built for it and take no other.
        dropout: Before the last layer, in place of what `spec` or torchvision says.
        multi_label: In place of what `spec` says.

    Raises:
        ConfigError: If there is no such network, or it cannot be built for such images.
    """
    if not names:
        raise ConfigError("names: there are no class names; a network needs at least one")
    chosen = {"dropout": dropout, "multi_label": multi_label}
    given = {"torchvision": spec} if isinstance(spec, str) else dict(spec)
    description = _checked({**given, **{key: value for key, value in chosen.items() if value is not None}})
    name, fixed = description["torchvision"], fixed_size_of(description["torchvision"])
    if fixed is None:
        description.pop("imgsz", None)
    else:
        description["imgsz"] = imgsz or description.get("imgsz", DEFAULT_SIZE)
        check_multiple(description["imgsz"], fixed.stride, f"of what {name} cuts images into")
    size = description.get("imgsz", imgsz)
    module = _build(name, len(names), size)
    if description.get("dropout") is not None:
        set_dropout_(module, description["dropout"])
    chain_blocks_(module)
    network = TorchvisionNetwork(
        module,
        names=names,
        stride=1 if fixed is None else fixed.stride,
        description={"task": "classify", **description},
        fixed_size=None if fixed is None else size,
    )
    if "norm" in description:
        set_norm_(network, description["norm"])
    if size is not None:
        network.check_size(size)
    return network


def fixed_size_of(name: str) -> FixedSize | None:
    """How the network `name` is told its image size; None where it takes any."""
    if name.startswith("vit_"):
        return FixedSize("image_size", int(name.rpartition("_")[2]))  # vit_b_16: patches of 16 pixels
    if name.startswith("maxvit_"):
        return FixedSize("input_size", 224)  # every map down to stride 32 is cut into windows of 7
    return None


@cache
def normalization_of(name: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of the channels, red first, in [0, 1], that the network's weights were made with."""
    import torchvision

    transform = torchvision.models.get_model_weights(name).DEFAULT.transforms()
    return tuple(transform.mean), tuple(transform.std)


def last_layer(network: nn.Module) -> str:
    """The path of the last linear layer or convolution: of a classifier, what makes its logits."""
    layers = [path for path, layer in network.named_modules() if isinstance(layer, nn.Linear | nn.Conv2d)]
    if not layers:
        raise ValueError(f"{type(network).__name__} has no linear layer and no convolution")
    return layers[-1]


def set_dropout_(network: nn.Module, dropout: float) -> None:
    """Set the dropout of the classifier: of the layers beside its last one, or else of one put before that.

    Dropout inside of blocks is left alone.
    """
    parent_path, _, name = last_layer(network).rpartition(".")
    parent = network.get_submodule(parent_path)
    beside = [child for child in parent.children() if isinstance(child, nn.Dropout)]
    for layer in beside:
        layer.p = dropout
    if not beside and dropout:
        last = getattr(parent, name)
        assert isinstance(last, nn.Linear), "of all networks SqueezeNet ends in a convolution, and it has dropout"
        setattr(parent, name, DropoutLinear(last, dropout))


def _checked(description: Mapping[str, Any]) -> dict[str, Any]:
    """A description whose keys and values are known."""
    where, name = "network description", description.get("torchvision")
    task, imgsz = description.get("task", "classify"), description.get("imgsz", DEFAULT_SIZE)
    if name not in torchvision_names():
        hint = nearest_names(str(name), torchvision_names(), "choose one such as resnet18")
        raise ConfigError(f"model = {name!r}: torchvision has no classification network of that name; {hint}")
    if task != "classify":
        raise ConfigError(f"{where}: task is {task!r}; {name} is for 'classify', so leave it out")
    if not isinstance(imgsz, int) or isinstance(imgsz, bool) or imgsz < 1:
        raise ConfigError(f"{where}: imgsz is {imgsz!r}; it should be a positive number of pixels")
    return checked_description(where, description, DESCRIPTION_KEYS)


def _build(name: str, num_classes: int, imgsz: int | None) -> nn.Module:
    """torchvision's network with fresh weights, without auxiliary outputs."""
    import torchvision

    arguments: dict[str, Any] = {"weights": None, "num_classes": num_classes}
    fixed = fixed_size_of(name)
    if fixed is not None:
        assert imgsz is not None
        arguments |= fixed.arguments(imgsz)
    if name in CONVERTED:
        arguments |= {"aux_logits": False, "transform_input": True, "init_weights": True}
    return torchvision.models.get_model(name, **arguments)
