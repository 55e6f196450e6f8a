"""`Model`: training, scoring and prediction from Python, with the keys of the command line."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, overload

from visiontrain.config.load import load_config
from visiontrain.config.schema import Config
from visiontrain.engine.checkpoint import load_checkpoint
from visiontrain.errors import ConfigError
from visiontrain.predict.results import Results
from visiontrain.run.check import check_run
from visiontrain.run.choose_task import with_task
from visiontrain.run.export import ExportError, export_run
from visiontrain.run.info import describe_model
from visiontrain.run.planning import plan_document
from visiontrain.run.predict import predict_results
from visiontrain.run.prepare import is_weights_file
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
        """
        self.model = None if model is None else str(model)

    def train(self, **settings: Any) -> TrainResult:
        """Train a network, or weights such as `best.pt` for other data; this model is then the run's best weights.

        Raises:
            UserError: If the input is wrong.
        """
        result = train_run(load_config("train", python=self._with_model(settings)))
        self.model = str(result.best)
        return result

    def val(self, **settings: Any) -> Any:
        """Score on a split.

        Returns:
            The task's metrics: a mapping of the CSV names, with typed views such as `.box.map`.
        """
        return val_run(load_config("val", python=self._with_model(settings))).metrics

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
    def predict(self, source: Any, *, stream: bool = False, **settings: Any) -> list[Results] | Iterator[Results]:
        """Run on images; pictures and labels are written only where `save` or `save_txt` is given.

        Args:
            source: A file, folder, glob, BGR array, PIL image, RGB tensor, or a list of these.
            stream: Whether to yield results one by one in constant memory, or to return a list.
            **settings: Keys of `visiontrain predict`.
        """
        results = predict_results(load_config("predict", python=self._with_model(settings)), source)
        return results if stream else list(results)

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

    def info(self, imgsz: int | None = None) -> str:
        """Layers, parameters and GFLOPs, in one line; printed and returned."""
        text = describe_model(self.model, imgsz)
        print(text)
        return text

    def _with_model(self, settings: dict[str, Any]) -> dict[str, Any]:
        return settings if self.model is None else {"model": self.model, **settings}
