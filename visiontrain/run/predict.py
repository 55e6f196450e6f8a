"""`visiontrain predict`: runs trained weights on images."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from visiontrain.config.schema import Config
from visiontrain.data.images import IMAGE_SUFFIXES, read_image
from visiontrain.engine.device import DeviceSetup
from visiontrain.engine.precision import choose_precision
from visiontrain.errors import ConfigError
from visiontrain.predict.predictor import Predictor
from visiontrain.predict.results import Results
from visiontrain.predict.sources import Source, open_source
from visiontrain.predict.writer import ResultWriter
from visiontrain.protocols import Task
from visiontrain.run.choose_task import with_task
from visiontrain.run.exported import settle_exported
from visiontrain.run.prepare import LoadedModel, check_image_size, device_of, load_model, make_folder, place, task_of
from visiontrain.run.val import with_training_args


def predict(config: Config) -> None:
    """The command: predicts, writes, and tells what was found, image by image."""
    if config.source is None:
        raise ConfigError("source: is not given; name an image, a folder or a glob")
    source = open_images(config, config.source)
    output = _Output(config)
    for number, results in enumerate(open_predictor(config)(source), start=1):
        output.write(results)
        if not config.quiet:
            print(f"{number}/{len(source)} {results.path}: {results.verbose()} ({results.speed['inference']:.0f} ms)")
    for message in source.messages:
        print(f"warning: {message}", file=sys.stderr)
    if output.folder is not None:
        print(f"results in {output.folder}")


def predict_results(config: Config, source: Any) -> Iterator[Results]:
    """The results for any kind of source, one by one; written only where `save` or `save_txt` is typed.

    Raises:
        UserError: If the input is wrong.
    """
    images, predictor = open_images(config, source), open_predictor(config)
    output = _Output(config if config.is_typed("save") else config.decide(save=False))
    return (output.write(results) for results in predictor(images))


class _Output:
    """Writes results into a run folder, which is made with the first of them: nothing is left by a run that fails."""

    def __init__(self, config: Config) -> None:
        self.folder: Path | None = None
        self._config = config
        self._writer: ResultWriter | None = None

    def write(self, results: Results) -> Results:
        if not (self._config.save or self._config.save_txt):
            return results
        if self._writer is None:
            self.folder = make_folder(self._config)
            self._writer = _writer_of(self._config, self.folder)
        self._writer.write(results)
        return results


def open_images(config: Config, source: Any) -> Source:
    """The images that `source` names, read as training reads them."""
    return open_source(source, read_image=partial(read_image, max_pixels=config.max_pixels), suffixes=IMAGE_SUFFIXES)


def open_predictor(config: Config) -> Predictor:
    """The predictor for `config.model`, at the image size that it was trained for if none is typed."""
    config = with_task(config)
    task = task_of(config)
    loaded = load_model(config, task)
    config, task = settle_exported(with_training_args(config, loaded, ("imgsz",)), task, loaded.network)
    return predictor_of(config, task, loaded, device_of(config))


def predictor_of(config: Config, task: Task, loaded: LoadedModel, setup: DeviceSetup) -> Predictor:
    """The predictor for a network in memory."""
    check_image_size(config, loaded.network)
    _check_classes(config, loaded.names)
    network = place(loaded.network, setup)
    return Predictor(
        network,
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
        save_conf=config.save_conf,
        show_labels=config.show_labels,
        line_width=config.line_width,
    )
