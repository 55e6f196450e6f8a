"""`visiontrain predict`: runs trained weights on images, videos and cameras."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from visiontrain.config.schema import Config
from visiontrain.data.decoders import QUIET_OPENCV
from visiontrain.data.images import IMAGE_SUFFIXES, read_image
from visiontrain.engine.device import DeviceSetup
from visiontrain.engine.precision import choose_precision
from visiontrain.errors import ConfigError
from visiontrain.predict.clips import open_capture
from visiontrain.predict.fold import fold_norms_
from visiontrain.predict.predictor import Predictor
from visiontrain.predict.results import Results
from visiontrain.predict.sources import Source, open_source
from visiontrain.predict.tally import Tally
from visiontrain.predict.writer import ResultWriter
from visiontrain.protocols import Task
from visiontrain.run.choose_task import with_task
from visiontrain.run.exported import settle_exported
from visiontrain.run.prepare import LoadedModel, check_image_size, device_of, load_model, make_folder, place, task_of
from visiontrain.run.val import with_training_args

# Arguments of training that prediction goes by: the size of images, and how `augment` may mirror them.
TAKEN_OVER = ("imgsz", "fliplr", "flip_swap")


def predict(config: Config) -> None:
    """The command: predicts, writes, and tells what was found, image by image and video by video."""
    if config.source is None:
        raise ConfigError("source: is not given; name an image, a video, a folder, a glob or a camera's number")
    source = open_images(config, config.source)
    output, tally = _Output(config), Tally(len(source))
    try:
        for results in open_predictor(config)(source):
            _tell(config, tally.add(output.write(results)))
    finally:  # a camera ends by the keyboard
        output.close()
        _tell(config, tally.close())
        _warn(source)
        if output.folder is not None:
            print(f"results in {output.folder}")


def predict_results(config: Config, source: Any) -> Iterator[Results]:
    """The results for any kind of source, one by one; written only where `save` or its like is typed.

    Images that cannot be read are left out, with a line on standard error when the stream is through.

    Raises:
        UserError: If the input is wrong.
    """
    images = open_images(config, source)
    if images.is_live and not config.stream:
        raise ConfigError("source: a camera never ends, so a list of all results would never be given; use stream=True")
    output = _Output(config if config.is_typed("save") else config.decide(save=False))
    return _written(open_predictor(config)(images), output, images)


def _written(found: Iterator[Results], output: _Output, source: Source) -> Iterator[Results]:
    try:
        for results in found:
            yield output.write(results)
    finally:  # also when the caller has seen enough
        output.close()
        _warn(source)


def _tell(config: Config, lines: list[str]) -> None:
    if not config.quiet:
        for line in lines:
            print(line, flush=True)  # a camera's lines are read as they come, through a pipe too


def _warn(source: Source) -> None:
    for message in source.messages:
        print(f"warning: {message}", file=sys.stderr)


class _Output:
    """Writes results into a run folder, which is made with the first of them: nothing is left by a run that fails."""

    def __init__(self, config: Config) -> None:
        self.folder: Path | None = None
        self._config = config
        self._writer: ResultWriter | None = None

    def write(self, results: Results) -> Results:
        """Write what is asked for; returns the results, which then know the folder."""
        config = self._config
        if not (config.save or config.save_txt or config.save_crop):
            return results
        if self.folder is None or self._writer is None:
            self.folder = make_folder(config)
            self._writer = _writer_of(config, self.folder)
        self._writer.write(results)
        return results.in_folder(self.folder)

    def close(self) -> None:
        """Finish the video that is being written, if any."""
        if self._writer is not None:
            self._writer.close()


def open_images(config: Config, source: Any) -> Source:
    """The images that `source` names, read as training reads them."""
    return open_source(
        source,
        read_image=partial(read_image, max_pixels=config.max_pixels),
        suffixes=IMAGE_SUFFIXES,
        open_capture=partial(open_capture, quiet=QUIET_OPENCV),
        vid_stride=config.vid_stride,
    )


def open_predictor(config: Config) -> Predictor:
    """The predictor for `config.model`, at the image size that it was trained for if none is typed."""
    config = with_task(config)
    task = task_of(config)
    loaded = load_model(config, task)
    config, task = settle_exported(with_training_args(config, loaded, TAKEN_OVER), task, loaded.network)
    return predictor_of(config, task, loaded, device_of(config))


def predictor_of(config: Config, task: Task, loaded: LoadedModel, setup: DeviceSetup) -> Predictor:
    """The predictor for a network in memory, whose normalizations are folded away."""
    check_image_size(config, loaded.network)
    _check_classes(config, loaded.names)
    fold_norms_(loaded.network)
    network = place(loaded.network, setup)
    return Predictor(
        task.augmented(network, config) if config.augment else network,
        task.decoder(network, config),
        task.prepare(config, network),
        dict(enumerate(loaded.names)),
        device=setup.device,
        batch=config.batch,
        found=task.found,
        precision=choose_precision(str(config.amp), setup.device).autocast,
    )


def _check_classes(config: Config, names: tuple[str, ...]) -> None:
    unknown = [index for index in config.classes or () if index >= len(names)]
    if unknown:
        raise ConfigError(f"classes: {unknown} are no classes of the model; it has 0 to {len(names) - 1}")


def _writer_of(config: Config, folder: Path) -> ResultWriter:
    return ResultWriter(
        folder,
        save=config.save,
        save_txt=config.save_txt,
        save_crop=config.save_crop,
        save_conf=config.save_conf,
        show_labels=config.show_labels,
        line_width=config.line_width,
    )
