"""Callbacks are called at every event, in order, with what has happened; an error of theirs is not swallowed."""

from __future__ import annotations

import csv
from collections import Counter

import pytest

from visiontrain.engine.checkpoint import load_checkpoint
from visiontrain.errors import ConfigError
from visiontrain.model import Model
from visiontrain.run.callbacks import EVENTS, Callbacks


@pytest.fixture
def keys(tiny_yolo, tmp_path):
    """Settings of a short training of eight images in two windows an epoch."""
    return {
        "data": str(tiny_yolo(8)),
        "imgsz": 64,
        "epochs": 2,
        "batch": 2,
        "nbs": 4,
        "warmup_epochs": 0,
        "quiet": True,
        "plots": False,
        "workers": 0,
        "save_dir": str(tmp_path / "run"),
    }


@pytest.fixture
def told():
    """A list, and a function that has a model write each of its events into it."""
    events = []

    def listen(model):
        for name in EVENTS:
            model.add_callback(name, lambda value, name=name: events.append((name, value)))
        return model

    return events, listen


def test_functions_are_called_in_the_order_in_which_they_were_added():
    callbacks, seen = Callbacks(), []
    callbacks.add("on_warning", lambda value: seen.append((1, value)))
    callbacks.add("on_warning", lambda value: seen.append((2, value)))
    callbacks.add("on_train_end", lambda value: seen.append((3, value)))
    callbacks.tell("on_warning", "text")
    assert seen == [(1, "text"), (2, "text")]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("on_epoch_ends", "the nearest is on_epoch_end"),
        ("on_train_epoch_end", "the nearest is on_epoch_end"),
        ("on_train_batch_end", "the nearest is on_window_end"),
        ("window_end", "the nearest is on_window_end"),
        ("ON_TRAIN_START", "they are on_train_start, on_epoch_start"),
        ("", "they are on_train_start, on_epoch_start"),
        (None, "they are on_train_start, on_epoch_start"),
    ],
)
def test_an_unknown_event_is_refused_with_the_nearest(name, hint):
    with pytest.raises(ConfigError, match=f"is not an event; {hint}"):
        Model("det-n").add_callback(name, print)


def test_what_cannot_be_called_is_refused():
    with pytest.raises(ConfigError, match="a value of type str cannot be called; give a function of one argument"):
        Model("det-n").add_callback("on_epoch_end", "print")


def test_every_event_is_documented(repository):
    text = (repository / "docs" / "logging.md").read_text(encoding="utf-8")
    for name, meaning in EVENTS.items():
        assert f"`{name}`" in text
        assert f"`{meaning.partition(':')[0]}`" in text


@pytest.mark.slow
def test_a_run_tells_everything_in_order(keys, told, small_network, tmp_path):
    events, listen = told
    result = listen(Model(small_network)).train(**keys)
    names = [name for name, _ in events if name not in ("on_warning", "on_checkpoint")]
    windows = ["on_window_start", "on_window_end"] * 2
    epoch = ["on_epoch_start", *windows, "on_val_start", "on_val_end", "on_epoch_end"]
    assert names == ["on_train_start", *epoch, *epoch, "on_val_start", "on_val_end", "on_train_end"]
    by_name = {name: [value for one, value in events if one == name] for name in EVENTS}
    (start,) = by_name["on_train_start"]
    assert (start.folder, start.epoch, start.plan.num_updates) == (tmp_path / "run", 1, 4)
    assert [one.epoch for one in by_name["on_epoch_start"]] == [1, 2]
    assert [(one.epoch, one.number) for one in by_name["on_window_start"]] == [(1, 1), (1, 2), (2, 3), (2, 4)]
    assert {one.micro_batches for one in by_name["on_window_start"]} == {(2, 2)}
    assert [one.updates for one in by_name["on_window_end"]] == [1, 2, 3, 4]
    assert [one.epoch for one in by_name["on_val_end"]] == [1, 2, None]
    (last,) = by_name["on_train_end"]
    assert last == result
    assert dict(by_name["on_val_end"][-1].metrics) == dict(result.metrics)
    saved = Counter(one.path.name for one in by_name["on_checkpoint"])
    assert saved["last.pt"] == 2
    assert saved["best.pt"] >= 1


@pytest.mark.slow
def test_windows_tell_the_losses_that_the_table_adds_up(keys, told, small_network):
    events, listen = told
    listen(Model(small_network)).train(**{**keys, "epochs": 1, "nbs": 8})  # one window an epoch
    (window,) = [value for name, value in events if name == "on_window_end"]
    (end,) = [value for name, value in events if name == "on_epoch_end"]
    assert window.applied
    assert window.num_images == 8
    assert {f"train/{name}": value for name, value in window.losses().items()} == {
        name: value for name, value in end.row.items() if name.startswith("train/")
    }
    assert float(window.grad_norm) > 0
    assert window.lr == end.row["lr/weight"]


@pytest.mark.slow
def test_epochs_begin_before_they_end_where_windows_cross_them(keys, told, small_network):
    events, listen = told
    listen(Model(small_network)).train(**{**keys, "epochs": 5, "nbs": 20, "tail": "carry", "val": False})
    order = [
        (name, value.epoch if name == "on_epoch_start" else value.state.epoch)
        for name, value in events
        if name in ("on_epoch_start", "on_epoch_end")
    ]
    for epoch in range(1, 6):
        assert order.index(("on_epoch_start", epoch)) < order.index(("on_epoch_end", epoch))
    assert len(order) == 10


@pytest.mark.slow
@pytest.mark.parametrize("event", ["on_window_end", "on_epoch_end", "on_val_start"])
def test_an_error_ends_the_run_and_it_can_be_resumed(keys, small_network, event, tmp_path):
    model, seen = Model(small_network), []

    def fail(value):
        seen.append(value)
        if len(seen) == 2:
            raise OSError("of the user's own")  # of a kind that a logger's failure would be, too

    model.add_callback(event, fail)
    model_keys = {**keys, "epochs": 3, "save_minutes": 1e-6}
    with pytest.raises(OSError, match="of the user's own"):
        model.train(**model_keys)
    load_checkpoint(tmp_path / "run" / "weights" / "last.pt")
    Model().train(resume=str(tmp_path / "run"))
    with (tmp_path / "run" / "results.csv").open(newline="") as file:
        assert [row["epoch"] for row in csv.DictReader(file)] == ["1", "2", "3"]


@pytest.mark.slow
def test_what_callbacks_read_changes_no_bit(keys, small_network, tmp_path):
    import torch

    model = Model(small_network)
    model.add_callback("on_window_end", lambda end: (end.losses(), float(end.grad_norm)))
    watched = load_checkpoint(model.train(**keys).best)["model"]
    plain = load_checkpoint(Model(small_network).train(**{**keys, "save_dir": str(tmp_path / "plain")}).best)["model"]
    assert all(torch.equal(watched[name], plain[name]) for name in plain)


@pytest.mark.slow
def test_scoring_and_prediction_tell_theirs(trained, told, tmp_path, tiny_yolo, monkeypatch):
    monkeypatch.chdir(tmp_path)
    events, listen = told
    model = listen(Model(trained.best))
    metrics = model.val(plots=False)
    assert [name for name, _ in events] == ["on_val_start", "on_val_end"]
    assert events[1][1].metrics is metrics
    events.clear()
    source = str(tiny_yolo(8).parent / "images" / "val")
    stream = model.predict(source, stream=True)
    assert events == []
    assert len(list(stream)) == 8
    (start, end) = (value for _, value in events)
    assert (start.source, end.num_images) == (source, 8)
