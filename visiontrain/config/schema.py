"""Every key of the command line, of cfg files and of Python, once: type, default, range, unit, modes and help.

What is typed, asked and decided meets here: `Config` is the frozen value that the rest of the program reads, and it
knows where each of its values came from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

from visiontrain.config.setting import Setting, setting
from visiontrain.plan import TAILS

MODES: Mapping[str, str] = {
    "train": "train a model; without arguments the default detector on the bundled sample",
    "val": "score a model on a split",
    "compare": "score two models on a split, and tell whether they differ by more than chance",
    "predict": "run a model on images, folders, videos and cameras",
    "export": "write a model for other programs, and compare what they give; exit code 3 if it differs",
    "plan": "print what train with the same arguments would do, and train nothing",
    "show": "draw one training sample",
    "verify": "prove on your data and model that accumulation equals the full batch",
    "check": "read a whole data set and report every fault; exit code 3 if there are errors",
    "convert": "list the weights of another program and make them a checkpoint, without running its code",
    "report": "write the page of a run anew: what it reached, how, and where it fails",
    "env": "print versions and devices",
}
WORDS: Mapping[str, tuple[str, ...]] = {"compare": ("model", "weights")}
"""Keys whose values may be typed as words alone, in this order, by mode."""
_TYPED = frozenset({"cfg file", "command line", "python"})
AUTO_BATCH = -1
"""The value of batch=auto, until it is decided."""
_COUNT = 1_000_000  # a bound that no sane run reaches, so that a slip of the keyboard does not exhaust memory

_TRACKER = "(?i:tensorboard|mlflow|wandb)"
_LIST_OF_TRACKERS = rf"{_TRACKER}(\s*,\s*{_TRACKER})*"

_TRAIN = ("train", "plan", "verify")
_VAL = ("val", "compare")
_PREDICT = ("predict",)
_EXPORT = ("export",)
_DATA = (*_TRAIN, *_VAL, "check", "show")
_MODEL = (*_TRAIN, *_VAL, *_PREDICT, *_EXPORT)
_RUNS = ("train", "show", "check", "convert", *_VAL, *_PREDICT)

_what = partial(setting, group="What to work on")
_batch = partial(setting, group="Batch and accumulation", modes=_TRAIN)
_length = partial(setting, group="Length, validation and saving", modes=_TRAIN)
_optimizer = partial(setting, group="Optimizer and schedule", modes=_TRAIN)
_loss = partial(setting, group="Detection loss", modes=_TRAIN, tasks=("detect",), least=0, most=1000)
_augment = partial(setting, group="Augmentation", modes=(*_TRAIN, "show"))
_loading = partial(setting, group="Images and loading")
_detect = partial(setting, group="Detections", tasks=("detect",))
_compose = partial(_augment, tasks=("detect",))
_classify = partial(setting, group="Classification", modes=_TRAIN, tasks=("classify",))
_predict = partial(setting, group="Prediction", modes=_PREDICT)
_export = partial(setting, group="Export", modes=_EXPORT)
_machine = partial(setting, group="Device, precision and repeatability")
_output = partial(setting, group="Output")


@dataclass(frozen=True)
class Config:
    """The settings of one command. Made by `load_config`; `decide` and `suggest` give new ones."""

    task: str = _what(
        "detect",
        choices=("detect", "classify"),
        modes=(*_MODEL, "check", "show", "convert", "report"),
        help="the task that the model is trained for; where it is not typed, that of the model or of the data",
    )
    model: str | None = _what(
        None,
        noun="a name or path",
        brief="name|path",
        modes=(*_MODEL, "convert"),
        help="the network's name or its YAML to train (None: det-n); a weights file to go on from, verify, score, "
        "predict with or export; an exported ONNX file to score or predict with",
    )
    data: str | None = _what(
        None,
        noun="a path",
        modes=(*_DATA, *_EXPORT, "convert"),
        help="the data set: a YAML file, a COCO JSON or a folder; None: to train the bundled sample, to score or to "
        "compare an export on what the weights were trained on",
    )
    data_format: str = _what(
        "auto",
        choices=("auto", "yolo", "coco", "voc", "folders", "csv"),
        modes=(*_DATA, *_EXPORT, "convert"),
        help="the format of the data set; auto recognizes it",
    )
    epoch: int = _what(1, least=1, most=_COUNT, modes=("show",), help="the epoch that the sample is of, from 1")
    index: int = _what(
        0,
        least=0,
        most=_COUNT,
        modes=("show",),
        help="the image that the sample is of, from 0 in the order of the data",
    )
    map_names: str | None = _what(
        None,
        noun="pairs of class names, name of the data:name of the weights",
        brief="name:name,...",
        modes=(*_VAL, "verify"),
        help="the classes of the data that are called otherwise in the weights",
    )
    split: str = _what("val", choices=("train", "val", "test"), modes=_VAL, help="the split that is scored")
    fraction: float = _what(
        1.0,
        above=0,
        most=1,
        modes=(*_TRAIN, "show"),
        help="the part of the training split that is used; drawn by the seed",
    )
    single_cls: bool = _what(False, modes=_DATA, tasks=("detect",), help="whether all classes are treated as one")
    resume: bool | str = _what(
        False,
        noun="a path",
        modes=("train", "plan"),
        help="whether an interrupted run goes on: its folder or weights/last.pt, or True for the newest run of project",
    )
    pretrained: bool | str = _what(
        False,
        noun="a path",
        modes=_TRAIN,
        help="the weights to start from: a file, whose tensors are matched by name, or True for those that torchvision "
        "offers for the network",
    )
    weights: str | None = _what(
        None,
        noun="a path",
        modes=("convert", "compare"),
        help="the file of weights to convert (.pt, .pth, .pkl or .safetensors), or to compare the model with",
    )
    mapping: str | None = _what(
        None,
        noun="a path",
        modes=("convert",),
        help="the YAML file of `their name: our name`, for tensors that neither names nor order tell",
    )
    val_fraction: float = _what(
        0.0,
        least=0,
        below=1,
        modes=(*_TRAIN, *_VAL, "show"),
        help="the part of train to validate on if there is no val; 0: none",
    )
    sampling: str = _what(
        "uniform",
        choices=("uniform", "balanced"),
        modes=(*_TRAIN, "show"),
        help="how often each image is seen: once an epoch, or the oftener the rarer its classes are, in epochs as long",
    )

    batch: int = _batch(
        16,
        least=1,
        most=_COUNT,
        unit="images",
        modes=(*_TRAIN, *_VAL, *_PREDICT),
        words={"auto": AUTO_BATCH, "-1": AUTO_BATCH},
        help="the most images in memory at once (nbs sets the images per optimizer step); auto, to train: as many as "
        "are measured to fit",
    )
    nbs: int = _batch(
        64, least=1, most=_COUNT, unit="images", help="the nominal batch size: the images behind one optimizer step"
    )
    tail: str = _batch(
        "flush",
        choices=TAILS,
        help="what becomes of an epoch's last images: a short window, near-equal windows, or the next epoch's first",
    )
    lr_scaling: str = _batch(
        "none",
        choices=("none", "linear", "sqrt"),
        help="how the learning rate follows the images per step where they are not exactly nbs",
    )
    clip: float = _batch(
        10.0,
        least=0,
        most=1e6,
        help="the largest gradient norm of a step; larger ones are scaled down to it; 0: no limit",
    )
    norm: str = _batch(
        "batch",
        choices=("batch", "frozen", "sync", "group"),
        help="the normalization layers: BatchNorm on micro-batches, with its statistics frozen, over all processes, "
        "or GroupNorm, which sees one image at a time",
    )
    bn_momentum: float = _batch(
        0.03,
        above=0,
        most=1,
        help="the weight of a micro-batch in BatchNorm's running statistics, which remember 1/bn_momentum of them",
    )
    precise_bn: bool = _batch(
        False, help="whether the best weights' BatchNorm statistics are estimated anew over the last epoch's images"
    )
    processes: int = _batch(
        1,
        least=1,
        most=1024,
        modes=("train", "plan"),
        help="the processes that train together and share each micro-batch; started here, or by torchrun",
    )
    checkpoint_activations: bool = _batch(
        False, help="whether activations are computed twice, in the backward pass again, to save memory"
    )
    noise_scale: bool = _batch(
        False, help="whether the gradient noise scale is measured, which tells whether nbs fits the data"
    )
    max_skips: int = _batch(
        10,
        least=0,
        most=_COUNT,
        help="the windows in a row that may be left out before training goes back to its last checkpoint with half the "
        "learning rate, at most twice; 0: any number",
    )

    epochs: int = _length(
        100, least=1, most=_COUNT, modes=(*_TRAIN, "show"), help="the passes over the training images"
    )
    patience: int = _length(
        100,
        least=0,
        most=_COUNT,
        unit="epochs",
        help="the epochs without a better model before training stops; 0: never",
    )
    val: bool = _length(True, help="whether the model is validated while it trains")
    val_interval: int = _length(
        1, least=1, most=_COUNT, unit="epochs", help="the epochs from one validation to the next"
    )
    save_period: int = _length(
        -1,
        least=-1,
        most=_COUNT,
        unit="epochs",
        help="the epochs between kept checkpoints; -1 or 0: only last and best",
    )
    time: float | None = _length(
        None, above=0, most=10_000, unit="hours", help="the time that training may take, all its starts together"
    )
    save_minutes: float = _length(
        15.0, above=0, most=10_000, unit="minutes", help="the time between checkpoints inside an epoch"
    )

    optimizer: str = _optimizer(
        "auto", choices=("auto", "SGD", "AdamW", "Muon"), help="the optimizer; auto picks one and never a typed value"
    )
    lr0: float = _optimizer(0.01, above=0, most=100, help="the learning rate after warmup")
    lrf: float = _optimizer(0.01, least=0, most=1, help="the last learning rate, as a fraction of lr0")
    momentum: float = _optimizer(0.937, least=0, below=1, help="the momentum of SGD, or beta1 of AdamW")
    weight_decay: float = _optimizer(0.0005, least=0, most=1, help="the weight decay at nbs images per step")
    cos_lr: bool = _optimizer(False, help="whether the learning rate falls along a cosine instead of a line")
    warmup_epochs: float = _optimizer(
        3.0, least=0, most=_COUNT, unit="epochs", help="the epochs over which window, learning rate and momentum grow"
    )
    warmup_momentum: float = _optimizer(0.8, least=0, below=1, help="the momentum at the start of warmup")
    warmup_bias_lr: float = _optimizer(0.0, least=0, most=1, help="the learning rate of biases at the start of warmup")
    ema: bool = _optimizer(True, help="whether a running average of the weights is validated and saved")
    freeze: int | tuple[int, ...] | str | None = _optimizer(
        None,
        least=0,
        most=10_000,
        noun="backbone, or names or regular expressions of parameters with commas between them",
        brief="backbone|names",
        help="what keeps its weights and statistics: the first so many layers, a list of them, the backbone, or "
        "parameters by their names",
    )
    unfreeze_epoch: int | None = _optimizer(
        None, least=2, most=_COUNT, help="the epoch, from 1, with whose start what is frozen begins to learn"
    )
    lr_backbone: float = _optimizer(1.0, least=0, most=1, help="the backbone's learning rate, as a fraction of lr0")
    layer_decay: float = _optimizer(
        1.0, above=0, most=1, help="the learning rate of a backbone layer, as a fraction of that of the layer above it"
    )

    box: float = _loss(7.5, help="the weight of the box overlap loss")
    cls: float = _loss(0.5, help="the weight of the classification loss")
    dfl: float = _loss(1.5, help="the weight of the distribution focal loss")
    hsv_h: float = _augment(0.015, least=0, most=1, help="the largest change of hue, as a fraction of the circle")
    hsv_s: float = _augment(0.7, least=0, most=1, help="the largest change of saturation, as a fraction")
    hsv_v: float = _augment(0.4, least=0, most=1, help="the largest change of brightness, as a fraction")
    degrees: float = _augment(0.0, least=0, most=180, unit="degrees", help="the largest rotation to either side")
    translate: float = _compose(0.1, least=0, most=1, help="the largest shift, as a fraction of the image")
    scale: float = _augment(0.5, least=0, below=1, help="the largest change of size, as a fraction")
    shear: float = _compose(0.0, least=0, below=90, unit="degrees", help="the largest shear to either side")
    perspective: float = _compose(0.0, least=0, most=0.001, unit="1/pixel", help="the largest perspective coefficient")
    flipud: float = _augment(0.0, least=0, most=1, help="the probability of a flip upside down")
    fliplr: float = _augment(0.5, least=0, most=1, help="the probability of a flip left to right")
    mosaic: float = _compose(1.0, least=0, most=1, help="the probability that four images are joined into one")
    mixup: float = _augment(0.0, least=0, most=1, help="the probability that two samples are blended")
    close_mosaic: int = _compose(
        10, least=0, most=_COUNT, unit="epochs", help="the epochs at the end without mosaic, mixup and copy_paste"
    )
    mosaic9: float = _compose(
        0.0, least=0, most=1, help="the probability that a mosaic has nine images instead of four"
    )
    copy_paste: float = _compose(0.0, least=0, most=1, help="the probability that boxes of another image are pasted in")
    crop: float = _compose(
        0.0, least=0, most=1, help="the probability that an image is cropped, keeping some box in view"
    )
    gray: float = _compose(0.0, least=0, most=1, help="the probability that a sample loses its color")
    blur: float = _compose(0.0, least=0, most=1, help="the probability of a Gaussian blur")
    clahe: float = _compose(0.0, least=0, most=1, help="the probability that contrast is equalized region by region")
    jpeg: float = _compose(0.0, least=0, most=1, help="the probability that a sample is compressed as JPEG")
    flip_swap: tuple[int, ...] | None = _augment(
        None,
        least=0,
        most=_COUNT,
        help="the classes that a flip left to right exchanges, in pairs of indices: 0,1,4,5 swaps 0 with 1, 4 with 5",
    )
    multi_scale: bool = _augment(
        False, modes=_TRAIN, help="whether the image size changes from window to window, within imgsz ± 50 %"
    )

    loss: str = _classify(
        "auto",
        choices=("auto", "cross_entropy", "bce", "focal"),
        help="the loss; auto: cross_entropy, or bce where an image may be of several classes",
    )
    multi_label: bool = _classify(
        False, modes=_DATA, help="whether an image may be of several classes, each of which is then decided for itself"
    )
    label_smoothing: float = _classify(
        0.0, least=0, below=1, help="the part of a target that is spread over all classes"
    )
    class_weights: str | tuple[float, ...] | None = _classify(
        None,
        choices=("balanced",),
        least=0,
        most=1000,
        help="the weight of each class in the loss, in the order of the names; balanced: the rarer the heavier",
    )
    focal_gamma: float = _classify(
        2.0, least=0, most=100, help="how far loss=focal leaves out what is right already; 0: not at all"
    )
    dropout: float | None = _classify(
        None, least=0, below=1, help="the part of features dropped before the last layer; None: the network's own"
    )
    cutmix: float = _classify(
        0.0, least=0, most=1, modes=(*_TRAIN, "show"), help="the probability that a patch is taken from another image"
    )
    erasing: float = _classify(
        0.4, least=0, below=1, modes=(*_TRAIN, "show"), help="the probability that a patch is filled with noise"
    )
    auto_augment: str | None = _classify(
        "randaugment",
        choices=("randaugment", "autoaugment", "augmix"),
        modes=(*_TRAIN, "show"),
        help="the policy of random operations on training images",
    )

    imgsz: int | None = _loading(
        None,
        least=1,
        most=32_768,
        unit="pixels",
        modes=(*_MODEL, "show", "check", "convert"),
        help="the size of the images that the model sees; None: that of the weights, else 640 to detect and 224 to "
        "classify",
    )
    workers: int | str = _loading(
        "auto",
        choices=("auto",),
        least=0,
        most=1024,
        modes=(*_TRAIN, *_VAL, "check"),
        help="the processes that load images",
    )
    cache: bool | str = _loading(
        False,
        choices=("ram", "disk"),
        modes=_TRAIN,
        help="where decoded, reduced training images are kept: ram (shared by all workers; so does True) or disk (a "
        "cache folder outside the data; VISIONTRAIN_CACHE moves it)",
    )

    max_pixels: int = _loading(
        180_000_000,
        least=1,
        most=10**12,
        unit="pixels",
        modes=(*_DATA, *_PREDICT, *_EXPORT),
        help="the most pixels of an image file; a larger one is left out unread",
    )

    conf: float | None = _detect(
        None,
        least=0,
        most=1,
        modes=_MODEL,
        help="the lowest score of a detection; None: 0.001 to score, 0.25 to predict and export",
    )
    iou: float = _detect(
        0.7,
        least=0,
        most=1,
        modes=_MODEL,
        help="the overlap above which the lower of two boxes of a class is dropped",
    )
    max_det: int = _detect(300, least=1, most=100_000, modes=_MODEL, help="the most detections of an image")
    agnostic_nms: bool = _detect(
        False, modes=_PREDICT, help="whether boxes are dropped for overlap with those of other classes too"
    )
    classes: tuple[int, ...] | None = _detect(
        None, least=0, most=_COUNT, modes=_PREDICT, help="the class indices that are kept; None: all"
    )

    source: str | None = _predict(
        None,
        noun="a path",
        help="the image, video, folder, glob, .txt list of paths or number of a camera to run on",
    )
    save: bool = _predict(
        True, help="whether pictures and videos with the predictions drawn are written (from Python only when asked)"
    )
    save_txt: bool = _predict(
        False, help="whether predictions are written as text: label files, or the best classes with their probabilities"
    )
    save_conf: bool = _predict(False, tasks=("detect",), help="whether the label files of save_txt hold scores")
    show_labels: bool = _predict(True, help="whether class names are drawn")
    line_width: int | None = _predict(
        None,
        tasks=("detect",),
        least=1,
        most=1000,
        unit="pixels",
        help="the width of drawn boxes; None: by the image's size",
    )
    save_crop: bool = _predict(False, tasks=("detect",), help="whether detections are cut out and written")
    augment: bool = _predict(
        False,
        help="whether each image is looked at several times: mirrored, if it was in training, and by detectors at a "
        "second size",
    )
    vid_stride: int = _predict(
        1, least=1, most=_COUNT, unit="frames", help="the step through a video: 3 takes every third frame"
    )
    stream: bool = _predict(
        False, help="whether Python is handed results one by one, in constant memory, as the command always works"
    )

    format: str = _export(
        "onnx",
        choices=("onnx", "torchscript", "exported_program", "safetensors"),
        help="the format to write; exported_program is that of torch.export, safetensors holds weights only",
    )
    opset: int = _export(18, least=18, most=23, help="the ONNX operator set; a program reads those up to its own")
    dynamic: bool | None = _export(
        None,
        help="whether the image size stays open, as the number of images always does; None: for detectors, which are "
        "given images of any shape",
    )
    simplify: bool = _export(True, help="whether the ONNX graph is simplified")
    nms: bool = _export(
        False,
        tasks=("detect",),
        help="whether suppression of overlapping boxes is part of the ONNX graph, as conf, iou and max_det say",
    )

    device: str = _machine(
        "auto",
        pattern=r"auto|cpu|mps|cuda(:\d{1,3})?|\d{1,3}(,\d{1,3})*",
        noun="auto, cpu, mps, cuda, the number of a GPU, or several with commas between them",
        brief="auto|cpu|mps|cuda|GPU number, ...",
        is_list=True,
        modes=(*_TRAIN, *_VAL, *_PREDICT),
        help="the device to run on; to train, several GPUs, a process on each",
    )
    amp: bool | str = _machine(
        "auto",
        choices=("auto", "fp16", "bf16"),
        later={"fp32": "fp32 is amp=False"},
        modes=(*_TRAIN, *_VAL, *_PREDICT),
        help="whether, or in which precision, the network runs in mixed precision",
    )
    compile: bool = _machine(
        False, modes=_TRAIN, help="whether torch generates code for the network's passes, which takes a minute at first"
    )
    seed: int = _machine(
        0, least=0, most=2**31 - 1, modes=(*_TRAIN, "show"), help="the number that all chance comes from"
    )
    deterministic: bool = _machine(
        True,
        modes=_TRAIN,
        help="whether torch takes algorithms that give the same bits every time (on GPUs where it has them)",
    )

    project: str | None = _output(
        None,
        noun="a path",
        modes=(*_RUNS, "report"),
        help="the folder that holds the run folders; None: runs/<task>",
    )
    name: str | None = _output(
        None,
        pattern=r"(?!\.{1,2}$)[^/\\\0]{1,200}",
        noun="the name of one folder (project holds its parents)",
        brief="folder name",
        modes=_RUNS,
        help="the run folder's name, numbered if it exists; None: the mode",
    )
    exist_ok: bool = _output(False, modes=_RUNS, help="whether a run may write into a folder that exists")
    save_dir: str | None = _output(
        None, noun="a path", modes=_RUNS, help="the run folder, exactly, in place of project and name"
    )
    plots: bool = _output(True, modes=(*_TRAIN, "val"), help="whether pictures and curves are drawn")
    quiet: bool = _output(False, modes=(*_MODEL, "check"), help="whether only results and warnings are printed")
    json: bool = _output(
        False,
        modes=("plan", "verify", "check", *_VAL, *_EXPORT, "env", "convert"),
        help="whether the result is one JSON document on standard output",
    )
    save_json: bool = _output(
        False,
        modes=("val",),
        tasks=("detect",),
        help="whether detections are written to predictions.json, as COCO's tools read them",
    )
    logger: str | None = _output(
        None,
        pattern=_LIST_OF_TRACKERS,
        noun="tensorboard, mlflow or wandb, or several with commas between them",
        brief="tensorboard|mlflow|wandb, ...",
        modes=("train",),
        help="where else the run is logged, beside results.csv; each is a package of its own (docs/logging.md)",
    )
    run: str | None = _output(
        None, noun="a path", modes=("report",), help="the folder of the run; None: the newest one"
    )
    cfg: str | None = _output(
        None,
        noun="a path",
        modes=(*_MODEL, "show", "check", "convert"),
        help="the YAML file of more keys; typed ones win, and those of other modes are checked but not used",
    )

    mode: str = "train"
    """Not a key: the word after `visiontrain`."""
    origins: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    """Where each value came from: default, cfg file, command line, python, sample or decided. A key that is not in it
    has its default."""

    def origin(self, key: str) -> str:
        """Where the value of `key` came from."""
        assert key in SETTINGS, key
        return self.origins.get(key, "default")

    def is_typed(self, key: str) -> bool:
        """Whether the user gave `key`: on the command line, in a cfg file or from Python."""
        return self.origin(key) in _TYPED

    def decide(self, **values: Any) -> Config:
        """The same settings with `values` decided by the program.

        What the user typed is not up to the program, unless he left it open by typing auto, balanced or None.
        """
        for key, value in values.items():
            is_open = not self.is_typed(key) or getattr(self, key) in (None, "auto", "balanced", AUTO_BATCH, value)
            assert is_open, f"{key} was typed as {getattr(self, key)!r} and cannot be decided as {value!r}"
        return self._with("decided", values)

    def suggest(self, **values: Any) -> Config:
        """The same settings with `values` suggested by the bundled sample, except where the user typed one."""
        is_open = {key: not self.is_typed(key) or getattr(self, key) is None for key in values}
        return self._with("sample", {key: value for key, value in values.items() if is_open[key]})

    def values(self) -> dict[str, Any]:
        """The value of every key that has an effect on the task, as plain Python (tuples as lists)."""
        plain = {
            key: getattr(self, key)
            for key, setting in SETTINGS.items()
            if self.task in (setting.rules.tasks or (self.task,))
        }
        return {key: list(value) if isinstance(value, tuple) else value for key, value in plain.items()}

    def _with(self, origin: str, values: Mapping[str, Any]) -> Config:
        changed = {key: value for key, value in values.items() if getattr(self, key) != value}
        return replace(self, **changed, origins={**self.origins, **dict.fromkeys(changed, origin)})


SETTINGS: Mapping[str, Setting] = {
    declared.name: Setting.of(declared) for declared in fields(Config) if "rules" in declared.metadata
}


def settings_of(mode: str) -> dict[str, Setting]:
    """The keys of `mode`."""
    return {key: setting for key, setting in SETTINGS.items() if mode in setting.rules.modes}
