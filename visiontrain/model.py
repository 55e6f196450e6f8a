"""`Model`: training, scoring and prediction from Python, with the keys of the command line."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, overload

from visiontrain.config.load import load_config
from visiontrain.config.schema import SETTINGS, Config
from visiontrain.config.setting import shown
from visiontrain.engine.checkpoint import load_checkpoint
from visiontrain.errors import ConfigError
from visiontrain.models.names import check_model
from visiontrain.predict.results import Results
from visiontrain.run.callbacks import Callbacks, PredictEnd, PredictStart, ValEnd, ValStart
from visiontrain.run.check import check_run
from visiontrain.run.choose_task import with_task
from visiontrain.run.compare import compare_run
from visiontrain.run.export import ExportError, export_run
from visiontrain.run.info import describe_model
from visiontrain.run.planning import plan_document
from visiontrain.run.predict import predict_results
from visiontrain.run.prepare import is_weights_file
from visiontrain.run.report import report_run, run_of_weights
from visiontrain.run.session import open_session
from visiontrain.run.train import TrainResult, train_run
from visiontrain.run.val import val_run
from visiontrain.run.verify import verify_run


class Model:
    """A network to be trained, or trained weights to be used.

        model = Model("det-n")
        result = model.train(data="bccd.yaml", epochs=50, batch=8, nbs=64)
        metrics = model.val()
        for results in model.predict("images/", stream=True): ...

    Keyword arguments are the command line's keys, with the same defaults and errors.
    """

    def __init__(self, model: str | Path | None = None) -> None:
        """
        Args:
            model: A network's name such as `det-n`, its YAML file, or weights such as `best.pt`; None is the default
                detector. Nothing is loaded yet.

        Raises:
            ConfigError: If it is none of these, or there is no network of that name.
        """
        self.model = None if model is None else _name_of(model)
        self._callbacks = Callbacks()

    def __repr__(self) -> str:
        return f"Model({'' if self.model is None else repr(self.model)})"

    def add_callback(self, event: str, function: Callable[[Any], object]) -> None:
        """Have `function` called at every `event` of this model's training, scoring and prediction.

            model.add_callback("on_epoch_end", lambda end: print(end.row))

        An error of the function ends what it was called from; the last checkpoint stays usable.

        Args:
            event: A name such as `on_window_end`; docs/logging.md lists them.
            function: Takes one value, which says what has happened.

        Raises:
            ConfigError: If there is no such event, or `function` cannot be called.
        """
        self._callbacks.add(event, function)

    def train(self, **settings: Any) -> TrainResult:
        """Train a network, or weights such as `best.pt` for other data; this model is then the run's best weights.

        Raises:
            UserError: If the input is wrong.
        """
        result = train_run(load_config("train", python=self._with_model(settings)), callbacks=self._callbacks)
        self.model = str(result.best)
        return result

    def val(self, **settings: Any) -> Any:
        """Score on a split.

        Returns:
            The task's metrics: a mapping of the CSV names, with typed views such as `.box.map`.
        """
        config = load_config("val", python=self._with_model(settings))
        self._callbacks.tell("on_val_start", ValStart(None))
        result = val_run(config)
        self._callbacks.tell("on_val_end", ValEnd(None, result.metrics, result.losses))
        return result.metrics

    def compare(self, weights: str | Path, **settings: Any) -> dict[str, Any]:
        """Score this model (a) and other weights (b) on a split, and tell whether they differ by more than chance.

        Prints what the command prints, and nothing with `quiet=True`.

        Returns:
            The document of `visiontrain compare json=True`; `better` is "a", "b" or None.

        Raises:
            UserError: If the input is wrong.
        """
        config = load_config("compare", python=self._with_model({"weights": str(weights), **settings}))
        return compare_run(config, is_silent=config.quiet).document()

    def plan(self, **settings: Any) -> dict[str, Any]:
        """What `train` with the same settings would do; nothing is trained, printed or written.

        Returns:
            The document of `visiontrain plan json=True`.

        Raises:
            UserError: If the input is wrong.
        """
        return plan_document(open_session(load_config("plan", python=self._with_model(settings))))

    def check(self, **settings: Any) -> dict[str, Any]:
        """Read a whole data set and find every fault, as data of this model's task.

        Prints what the command prints, and nothing with `quiet=True`.

        Returns:
            The document of `visiontrain check json=True`; `passed` tells whether there is no error.

        Raises:
            UserError: If nothing can be read.
        """
        task = {} if self.model is None else {"task": with_task(Config(model=self.model)).task}
        config = load_config("check", python={**task, **settings})
        return dict(check_run(config, is_silent=config.quiet).document)

    def verify(self, **settings: Any) -> dict[str, Any]:
        """Compare the gradient of one window, cut as `train` with the same settings would cut it, with a full batch's.

        Prints what the command prints, and nothing with `quiet=True`.

        Returns:
            The document of `visiontrain verify json=True`; `passed` tells whether accumulation is exact.

        Raises:
            UserError: If the input is wrong.
        """
        config = load_config("verify", python=self._with_model(settings))
        return verify_run(config, is_silent=config.quiet)

    @overload
    def predict(self, source: Any, *, stream: Literal[True], **settings: Any) -> Iterator[Results]: ...
    @overload
    def predict(self, source: Any, *, stream: Literal[False] = ..., **settings: Any) -> list[Results]: ...
    def predict(self, source: Any, *, stream: bool | None = None, **settings: Any) -> list[Results] | Iterator[Results]:
        """Run on images; files are written only where `save`, `save_txt` or `save_crop` is given.

        Args:
            source: An image or video file, a folder, a glob, a text file of paths, the number of a camera, an array
                (H, W, 3) BGR or (H, W) gray, a PIL image, an RGB tensor, or a list of these.
            stream: Whether to yield results one by one in constant memory, or to return a list; by default a list. A
                camera, which never ends, needs True.
            **settings: Keys of `visiontrain predict`.

        Raises:
            UserError: If the input is wrong.
        """
        asked = settings if stream is None else {"stream": stream, **settings}
        config = load_config("predict", python=self._with_model(asked))
        results = self._told(predict_results(config, source), source)
        return results if config.stream else list(results)

    def export(self, **settings: Any) -> Path:
        """Write the weights in another format, and compare what the file gives with what the network gives.

        Prints what the command prints.

        Returns:
            The file.

        Raises:
            ExportError: If the two differ; no file was written then.
            UserError: If the input is wrong.
        """
        exported = export_run(load_config("export", python=self._with_model(settings)))
        if not exported.is_passed:
            off = ", ".join(
                f"{each.output} by {each.relative:.1e}" for each in exported.differences if not each.is_passed
            )
            raise ExportError(f"{exported.path}: does not give what the network gives ({off}); it was not written")
        return exported.path

    def report(self, **settings: Any) -> Path:
        """Write the page of a run anew: of the one that these weights lie in, unless `run` or `project` name another.

        Prints what the command prints.

        Returns:
            The page.

        Raises:
            UserError: If there is no such run, or its folder cannot be written into.
        """
        own = None if self.model is None else run_of_weights(Path(self.model))
        is_named = own is None or not {"run", "project"}.isdisjoint(settings)
        return report_run(load_config("report", python=settings if is_named else {"run": str(own), **settings}))

    def save(self, path: str | Path) -> Path:
        """Copy the weights to `path`, whose folder is made; returns it.

        Raises:
            ConfigError: If this is a network without weights.
        """
        if not is_weights_file(self.model):
            raise ConfigError(f"model = {self.model!r}: has no weights to save; train it first")
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(str(self.model), target)
        return target

    def load(self, weights: str | Path) -> Model:
        """Make this model the weights in a file, which is read through; returns the model.

        Raises:
            CheckpointError: If the file cannot be used.
        """
        load_checkpoint(Path(weights))
        self.model = str(weights)
        return self

    def info(self, imgsz: int | None = None, *, verbose: bool = False) -> str:
        """Layers, parameters and GFLOPs, in one line; printed and returned.

        Args:
            imgsz: Pixels of the images that GFLOPs are for; None: the task's own size.
            verbose: Whether a table of the layers stands before the line.
        """
        text = describe_model(self.model, imgsz, has_table=verbose)
        print(text)
        return text

    def _told(self, results: Iterator[Results], source: Any) -> Iterator[Results]:
        """The same results, with the callbacks of prediction before the first and after the last."""
        self._callbacks.tell("on_predict_start", PredictStart(source))
        num_images = 0
        for one in results:
            num_images += 1
            yield one
        self._callbacks.tell("on_predict_end", PredictEnd(num_images))

    def _with_model(self, settings: dict[str, Any]) -> dict[str, Any]:
        return settings if self.model is None else {"model": self.model, **settings}


def _name_of(model: object) -> str | None:
    """What was given for a model, as the key `model` takes it.

    Raises:
        ConfigError: If it is neither a network's name nor a path.
    """
    if not isinstance(model, str | os.PathLike):
        raise ConfigError(
            f"model = {shown(model)}: is no name and no path; give a network's name such as 'det-n', its YAML file, or "
            "weights such as 'best.pt'"
        )
    try:
        name: str | None = SETTINGS["model"].read(model)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    if name is not None:
        check_model(name)
    return name
