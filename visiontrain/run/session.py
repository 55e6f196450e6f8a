"""A training run before its first step: what was asked, decided and read, from fresh or from a checkpoint."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from visiontrain.config.load import processes_asked_for
from visiontrain.config.schema import Config
from visiontrain.data.workers import fitting_workers, lowered_workers_message, shm_free
from visiontrain.engine.device import DeviceSetup
from visiontrain.engine.distributed import Group, Place
from visiontrain.engine.fit import RunState
from visiontrain.engine.freeze import Frozen
from visiontrain.engine.memory import Fit
from visiontrain.engine.precision import Precision, choose_precision
from visiontrain.errors import ConfigError
from visiontrain.folders import with_home
from visiontrain.models.network import Network
from visiontrain.models.transfer import Transfer
from visiontrain.plan import Plan
from visiontrain.protocols import Task
from visiontrain.run.auto_batch import with_measured_batch
from visiontrain.run.choose_task import with_task
from visiontrain.run.class_names import with_indices_of_weights, with_names_of_weights
from visiontrain.run.compiling import check_compile
from visiontrain.run.finetune import check_start, starting_network, with_kind_of_labels
from visiontrain.run.freezing import set_up_freezing_
from visiontrain.run.normalization import check_batch_size, check_sync, set_up_normalization_
from visiontrain.run.prepare import (
    LoadedModel,
    Recipe,
    check_image_size,
    decide_recipe,
    device_of,
    is_weights_file,
    read_data,
    split_of,
    task_of,
    with_bundled_data,
)
from visiontrain.run.resuming import Resumed, fingerprint_of, go_on, like_before, rebuilt, state_of, versions
from visiontrain.run.samples import largest_size
from visiontrain.run.share import MemoryShare, memory_share
from visiontrain.run.starts import Member
from visiontrain.sample import DataSet, Records

NETWORK_SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True)
class Session:
    """All that a training run starts from; nothing of it is on disk yet."""

    config: Config
    """Asked and decided."""
    task: Task
    data: DataSet
    train: Records
    val: Records | None
    network: Network
    setup: DeviceSetup
    precision: Precision
    recipe: Recipe
    state: RunState
    resumed: Resumed
    """The run that goes on, or what stands for none."""
    transfer: Transfer | None
    """What became of the weights that training begins with."""
    frozen: Frozen | None
    """What does not learn, at first or at all."""
    changes: tuple[str, ...]
    """What differs from the run that goes on, and what was guessed or dropped, one line each."""
    fit: Fit | None
    """How the micro-batch was found, where it was measured now."""
    group: Group
    """The processes that train."""
    share: MemoryShare
    """What they hold at once."""

    @property
    def checkpoint(self) -> Mapping[str, Any] | None:
        """Of the run that goes on."""
        return self.resumed.checkpoint

    @property
    def folder(self) -> Path | None:
        """Of the run that goes on: where its checkpoint lies now, not where it was made."""
        return self.resumed.folder


def open_session(config: Config, *, trained: LoadedModel | None = None, member: Member | None = None) -> Session:
    """Read and decide everything that training needs.

    Args:
        config: What was asked.
        trained: The network to start from, in place of the one that `config` names.
        member: Of several processes, what this one is; they all open the session, and get the same.

    Raises:
        UserError: If anything about it is wrong.
    """
    _check_not_a_worker()
    member = member or Member()
    group = member.group
    asked = _with_absolute_paths(config)
    resumed = group.first_gives(lambda: go_on(asked)) if asked.resume else Resumed(asked)
    session = group.first_before_others(lambda: _opened(asked, resumed, trained, member))
    _check_agreement(session)
    return session


def _opened(asked: Config, resumed: Resumed, trained: LoadedModel | None, member: Member) -> Session:
    """The session of what was asked, or of the run that goes on."""
    group, checkpoint = member.group, resumed.checkpoint
    config = with_task(resumed.config, known=None if checkpoint is None else checkpoint["task"])
    if checkpoint is None and trained is None:
        check_start(config)
        config = with_kind_of_labels(config)
    task = task_of(config)
    config = with_bundled_data(config, task)
    if config.imgsz is None:
        config = config.decide(imgsz=task.default_imgsz)
    config = _with_processes(config, asked, member, is_fresh=checkpoint is None)
    place = group.place if asked.mode == "train" else Place(processes=config.processes, locals=config.processes)
    setup, precision, differences = _hardware(config, checkpoint, place, may_overrule=not asked.is_typed("amp"))
    check_compile(config, setup)
    data = read_data(config, task, ("train", "val") if config.val else ("train",))
    listed = data.names
    network, data, transfer = _network(config, task, data, checkpoint, trained)
    if trained is not None:
        config = with_indices_of_weights(config, listed, data.names)
    train = split_of(data, "train")
    val = split_of(data, "val") if "val" in data.splits else None
    config = _settled(config, task, network, data)
    frozen = set_up_freezing_(network, config)
    config, fit = with_measured_batch(config, task, network, train, setup, precision)
    setup, lowered = _with_fitting_workers(setup, config, largest_size(config, max(network.strides)), group.place)
    recipe = decide_recipe(config, task, len(train))
    check_sync(config, setup)
    check_batch_size(config, network, recipe.plan)
    _check_noise_scale(config, recipe.plan)
    config = _with_decisions(config, task, recipe)
    share = memory_share(config, checkpoint, group, remembered=member.remembered_limit())
    notes = (*resumed.changes, *differences, share.note(group) if asked.mode == "train" else "", *lowered)
    return Session(
        config,
        task,
        data,
        train,
        val,
        network,
        setup,
        precision,
        recipe,
        RunState() if checkpoint is None else state_of(resumed, recipe.plan, setup),
        resumed,
        transfer,
        frozen,
        (*filter(None, notes), *_told_of_data(config, data, checkpoint)),
        fit,
        group,
        share,
    )


def _with_processes(config: Config, asked: Config, member: Member, *, is_fresh: bool) -> Config:
    """The settings with the number of processes that the run begins with; a run that goes on began with its own.

    Raises:
        ConfigError: If as many were typed as were not started.
    """
    started = member.group.size
    if member.is_launched and asked.is_typed("processes") and asked.processes != started:
        raise ConfigError(f"processes = {asked.processes}: {started} were started; leave processes out under torchrun")
    if asked.mode != "train":
        return config.decide(processes=processes_asked_for(config))
    return config.decide(processes=started) if is_fresh and not config.is_typed("processes") else config


def _check_agreement(session: Session) -> None:
    """Raises ConfigError unless all processes have opened the same session."""
    own = {
        "data: labels, sizes or file names": fingerprint_of(session.data) if session.group.size > 1 else "",
        "network": repr(session.network.description),
        "plan": repr(session.recipe),
        "versions of torch, torchvision or visiontrain": repr(versions()),
        "precision": session.precision.name,
    }
    everybody = session.group.gather(own)
    differing = [what for what in own if len({each[what] for each in everybody}) > 1]
    if differing:
        raise ConfigError(
            f"{what} differ between the processes; every machine needs the same data, programs and settings"
            for what in differing
        )


def _network(
    config: Config,
    task: Task,
    data: DataSet,
    checkpoint: Mapping[str, Any] | None,
    trained: LoadedModel | None,
) -> tuple[Network, DataSet, Transfer | None]:
    """The network that training begins or goes on with, the data in the order of its classes, and what was taken."""
    if checkpoint is not None:
        trained = LoadedModel(rebuilt(task, checkpoint), tuple(checkpoint["names"]), {})
    elif trained is None:
        network, transfer = starting_network(config, task, data.names)
        return network, data, transfer
    else:
        data = with_names_of_weights(data, trained.names, config.map_names)
    _check_fits(trained, data, config)
    return trained.network, data, None


def _settled(config: Config, task: Task, network: Network, data: DataSet) -> Config:
    """The settings with what network and data decide; what does not fit them is told before there is a folder."""
    check_image_size(config, network)
    config = task.settle(config, data)
    task.criterion(network, config)
    task.train_transform(config)
    config = set_up_normalization_(network, config)
    network.checkpoint_activations = config.checkpoint_activations
    return config


def _told_of_data(config: Config, data: DataSet, checkpoint: Mapping[str, Any] | None) -> Iterator[str]:
    """What there is to say of the data."""
    if checkpoint is not None and checkpoint.get("data") not in (None, fingerprint_of(data)):
        yield "data: labels, sizes or file names have changed since the run was saved: bits will differ"
    yield from data.messages
    if config.val and "val" not in data.splits:
        yield "no val split: the last epoch counts as the best"


def _hardware(
    config: Config, checkpoint: Mapping[str, Any] | None, place: Place, *, may_overrule: bool
) -> tuple[DeviceSetup, Precision, tuple[str, ...]]:
    """What the run computes on and in which precision, as before where it goes on; and the differences in words."""
    setup, lines = device_of(config, place), tuple[str, ...]()
    precision = choose_precision(str(config.amp), setup.device)
    if checkpoint is not None:
        setup, lines = like_before(setup, checkpoint)
        precision.is_overruled = may_overrule and bool(checkpoint.get("fp32_took_over"))
    return setup, precision, lines


def _check_fits(trained: LoadedModel, data: DataSet, config: Config) -> None:
    """Raises ConfigError where weights are of other classes than the data, or of another network than was typed."""
    if trained.names != data.names:
        raise ConfigError(
            f"data: its classes are {', '.join(data.names)}; those of the weights are {', '.join(trained.names)}: "
            "they must be the same, in the same order; names in the data set's YAML can say so"
        )
    stored = trained.network.description.get("norm", "batch")
    if config.is_typed("norm") and (config.norm == "group") != (stored == "group"):
        raise ConfigError(
            f"norm = {config.norm}: the weights are those of a network with norm = {stored}; leave norm out"
        )


def _check_noise_scale(config: Config, plan: Plan) -> None:
    """Raises ConfigError where the noise scale could never be measured."""
    if config.noise_scale and not any(len(window.sizes) > 1 for window in plan.all_windows()):
        raise ConfigError(
            f"noise_scale = True: compares a micro-batch with its window, and here they are the same; lower batch "
            f"(now {plan.batch}) below nbs = {plan.nbs} and below the number of images, or leave noise_scale out"
        )


def _check_not_a_worker() -> None:
    """Raises ConfigError in a loader's worker that is about to run the user's script, and the training in it, again."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):  # what Python itself asks before it refuses
        raise ConfigError(
            "workers: a worker process runs the script again from its top; put the call below "
            '`if __name__ == "__main__":`, or use workers=0'
        )


def _with_absolute_paths(config: Config) -> Config:
    """`config` with paths that hold from any folder, so that a run can be repeated and resumed from anywhere."""
    paths: dict[str, str] = {}
    if config.data is not None:
        paths["data"] = str(with_home(config.data).absolute())
    if config.model is not None and (Path(config.model).suffix in NETWORK_SUFFIXES or is_weights_file(config.model)):
        paths["model"] = str(with_home(config.model).absolute())
    if isinstance(config.pretrained, str):
        paths["pretrained"] = str(with_home(config.pretrained).absolute())
    return replace(config, **paths)  # type: ignore[arg-type]


def _with_fitting_workers(
    setup: DeviceSetup, config: Config, imgsz: int, place: Place
) -> tuple[DeviceSetup, tuple[str, ...]]:
    """As many workers as the shared memory has room for, in which they hand over their batches.

    Args:
        setup: What the machine would allow.
        config: The settings.
        imgsz: The largest side of a sample, pixels.
        place: Of this process: those of a machine share its memory, and all share a micro-batch.

    Raises:
        ConfigError: If more were typed: a bus error would end them, which nothing can catch.
    """
    room, batch_bytes = shm_free(), -(-config.batch // place.processes) * 3 * imgsz**2
    room = None if room is None else room // place.locals
    is_pinned = setup.device.type == "cuda"  # then batches leave the shared memory at once
    held = 0 if is_pinned else -(-max(config.batch, config.nbs) // place.processes) * 3 * imgsz**2
    fitting = fitting_workers(setup.workers, batch_bytes=batch_bytes, shm_bytes=room, held_bytes=held)
    if fitting >= setup.workers or room is None:
        return setup, ()
    message = lowered_workers_message(setup.workers, fitting, batch_bytes=batch_bytes, shm_bytes=room)
    if config.is_typed("workers") and config.workers != "auto":
        raise ConfigError(message)
    return replace(setup, workers=fitting), (message,)


def _with_decisions(config: Config, task: Task, recipe: Recipe) -> Config:
    """`config` with what was decided about the update in place of `auto` and of defaults."""
    rates = {
        "lr0": recipe.optimizer.lr0,
        "momentum": recipe.optimizer.momentum,
        "warmup_momentum": recipe.schedule.warmup_momentum,
    }
    return config.decide(
        model=config.model or task.default_model,
        optimizer=recipe.optimizer.name,
        **{key: value for key, value in rates.items() if not config.is_typed(key)},
    )
