"""Kinds of normalization in whole runs, and what is done about running statistics."""

from __future__ import annotations

import json

import pytest
import torch
import yaml

from visiontrain.config.load import load_config
from visiontrain.engine.checkpoint import load_checkpoint
from visiontrain.engine.device import DeviceSetup
from visiontrain.errors import ConfigError
from visiontrain.models.build import build_network
from visiontrain.models.layers import BATCH_NORM_MOMENTUM
from visiontrain.plan import plan_run
from visiontrain.run import precise_bn
from visiontrain.run.normalization import (
    check_batch_size,
    check_sync,
    normalization_line,
    normalization_warnings,
)
from visiontrain.run.plan import plan
from visiontrain.run.train import train_run
from visiontrain.run.val import val_run

RANKING = "metrics/mAP50-95(B)"


def weights(path, key="model"):
    return load_checkpoint(path)[key]


def statistics(values):
    return {name: tensor for name, tensor in values.items() if "running" in name or "tracked" in name}


def test_the_default_momentum_is_that_of_the_layers():
    assert load_config("train").bn_momentum == BATCH_NORM_MOMENTUM


@pytest.mark.slow
def test_with_group_norm_there_are_no_statistics_and_the_run_goes_on_and_is_scored_as_any_other(run_training, tmp_path):
    whole = run_training(norm="group", save_dir=str(tmp_path / "whole"))
    assert statistics(weights(whole.last)) == {}
    assert load_checkpoint(whole.last)["network"]["norm"] == "group"

    begun = run_training(norm="group", epochs=2, save_dir=str(tmp_path / "part"))
    gone_on = train_run(load_config("train", python={"resume": str(begun.save_dir), "epochs": 3}))
    assert statistics(weights(gone_on.last)) == {}

    metrics = val_run(load_config("val", python={"model": str(whole.best), "save_dir": str(tmp_path / "val")})).metrics
    assert float(metrics[RANKING]) == whole.metrics[RANKING]


@pytest.mark.slow
def test_frozen_statistics_stay_those_of_the_start(run_training):
    values = statistics(weights(run_training(norm="frozen").last))
    assert all((tensor == 0).all() for name, tensor in values.items() if name.endswith("running_mean"))
    assert all((tensor == 1).all() for name, tensor in values.items() if name.endswith("running_var"))


@pytest.mark.slow
def test_with_one_process_sync_is_batch_to_the_bit(run_training, tmp_path):
    batch = run_training(val=False, save_dir=str(tmp_path / "batch"))
    sync = run_training(norm="sync", val=False, save_dir=str(tmp_path / "sync"))
    torch.testing.assert_close(weights(sync.last), weights(batch.last), rtol=0, atol=0)


@pytest.mark.slow
def test_checkpointed_activations_change_no_bit_of_a_run(run_training, tmp_path):
    plain = run_training(val=False, save_dir=str(tmp_path / "plain"))
    checkpointed = run_training(checkpoint_activations=True, val=False, save_dir=str(tmp_path / "checkpointed"))
    torch.testing.assert_close(weights(checkpointed.last), weights(plain.last), rtol=0, atol=0)


@pytest.mark.slow
def test_a_larger_momentum_forgets_faster(run_training, tmp_path):
    slow = run_training(save_dir=str(tmp_path / "slow"), epochs=1, val=False)
    fast = run_training(save_dir=str(tmp_path / "fast"), epochs=1, val=False, bn_momentum=1.0)
    name = next(name for name in weights(slow.last) if name.endswith("running_var"))
    assert not torch.equal(weights(slow.last)[name], weights(fast.last)[name])


@pytest.mark.slow
def test_a_run_may_go_on_with_frozen_statistics_but_not_as_another_network(run_training):
    result = run_training()
    before = statistics(weights(result.last))
    keys = {"resume": str(result.save_dir), "epochs": 3, "checkpoint_activations": True}
    gone_on = train_run(load_config("train", python={**keys, "norm": "frozen"}))
    torch.testing.assert_close(statistics(weights(gone_on.last)), before, rtol=0, atol=0)
    with pytest.raises(ConfigError, match="norm = 'group': the run to go on has 'frozen', which cannot change"):
        train_run(load_config("train", python={**keys, "epochs": 4, "norm": "group"}))


@pytest.mark.slow
def test_a_network_file_may_ask_for_group_norm_and_a_typed_kind_wins(run_training, tmp_path, small_network):
    description = yaml.safe_load(small_network.read_text(encoding="utf-8")) | {"norm": "group"}
    path = tmp_path / "group.yaml"
    path.write_text(yaml.safe_dump(description), encoding="utf-8")
    asked = run_training(model=str(path), epochs=1, save_dir=str(tmp_path / "asked"))
    typed = run_training(model=str(path), epochs=1, save_dir=str(tmp_path / "typed"), norm="batch")
    assert not statistics(weights(asked.last))
    assert statistics(weights(typed.last))
    assert "norm: group  # decided" in (asked.save_dir / "args.yaml").read_text(encoding="utf-8")


class TestPrecise:
    @pytest.mark.slow
    def test_the_best_weights_get_the_statistics_of_the_training_images_and_their_score(self, run_training, tmp_path):
        plain = run_training(save_dir=str(tmp_path / "plain"))
        precise = run_training(save_dir=str(tmp_path / "precise"), precise_bn=True)
        before, after = weights(plain.best, "ema"), weights(precise.best, "ema")
        changed = {name for name in before if not torch.equal(before[name], after[name])}
        assert changed == set(statistics(before))
        saved = load_checkpoint(precise.best)["metrics"][RANKING]
        assert precise.metrics[RANKING] == pytest.approx(saved, abs=1e-6)
        metrics = val_run(
            load_config("val", python={"model": str(precise.best), "save_dir": str(tmp_path / "v")})
        ).metrics
        assert float(metrics[RANKING]) == pytest.approx(saved, abs=1e-6)
        log = (precise.save_dir / "train.log").read_text(encoding="utf-8")
        assert "statistics of best.pt estimated over 8 training images; metrics/mAP50-95(B)" in log
        assert "warning" not in log.partition("precise_bn")[2]

    @pytest.mark.slow
    def test_it_finds_the_last_epochs_images_where_that_epoch_opens_no_window(self, run_training):
        result = run_training(precise_bn=True, tail="carry", nbs=64, warmup_epochs=0)
        log = (result.save_dir / "train.log").read_text(encoding="utf-8")
        assert "estimated over 16 training images" in log  # the one window holds both epochs
        assert all((value != 1).any() for name, value in weights(result.best, "ema").items() if name.endswith("_var"))

    @pytest.mark.slow
    def test_after_an_early_end_it_takes_the_last_epoch_that_was_trained(self, run_training, monkeypatch):
        seen = []
        plain = precise_bn._LastBatches.__init__
        monkeypatch.setattr(
            precise_bn._LastBatches,
            "__init__",
            lambda self, *parts, epoch: (seen.append(epoch), plain(self, *parts, epoch=epoch))[1],
        )
        result = run_training(precise_bn=True, epochs=8, patience=1, lr0=1e-6)
        results = json.loads((result.save_dir / "results.json").read_text(encoding="utf-8"))
        assert seen == [results["epochs"] - 1]
        assert results["epochs"] < 8

    @pytest.mark.slow
    def test_the_last_weights_are_left_as_they_are(self, run_training, tmp_path):
        plain = run_training(save_dir=str(tmp_path / "plain"))
        precise = run_training(save_dir=str(tmp_path / "precise"), precise_bn=True)
        torch.testing.assert_close(weights(precise.last), weights(plain.last), rtol=0, atol=0)

    @pytest.mark.parametrize("keys", [{"val": False}, {"ema": False}])
    @pytest.mark.slow
    def test_it_works_without_validation_and_without_an_average(self, run_training, keys):
        result = run_training(precise_bn=True, **keys)
        assert load_checkpoint(result.best)["model"]


@pytest.mark.parametrize("norm", ["group", "frozen"])
@pytest.mark.parametrize(("key", "value"), [("precise_bn", True), ("bn_momentum", 0.1)])
def test_a_key_without_an_effect_on_the_layers_is_refused(run_training, tmp_path, norm, key, value):
    with pytest.raises(ConfigError, match=f"{key} = {value}: has no effect with norm = {norm}"):
        run_training(norm=norm, **{key: value})
    assert not (tmp_path / "run").exists()


@pytest.fixture
def planned(tiny_yolo, capsys):
    def run(**keys):
        data = tiny_yolo(20, splits=("train",))
        capsys.readouterr()
        plan(load_config("plan", python={"data": str(data), "imgsz": 64, **keys}))
        return capsys.readouterr().out

    return run


def test_the_plan_tells_what_normalization_sees_and_remembers(planned):
    assert "running statistics remember about 33.3 of them, 267 images (bn_momentum 0.03)" in planned(batch=8)
    assert "remember about 10 of them, 80 images" in planned(batch=8, bn_momentum=0.1)
    assert "GroupNorm, image by image" in planned(norm="group")


class TestProcesses:
    """Of several processes each normalizes its own part of a micro-batch, unless they exchange."""

    def asked(self, processes, **keys):
        return load_config("train", python={"processes": processes, "device": "cpu", **keys})

    def plan(self, batch):
        return plan_run(num_images=20, batch=batch, nbs=batch)

    def warnings(self, network, config, batch):
        return "".join(normalization_warnings(config, network, self.plan(batch), is_fresh=True))

    def test_the_parts_are_what_statistics_are_of(self, two_level_detector):
        line = normalization_line(self.asked(2), two_level_detector, self.plan(8))
        assert (
            "BatchNorm over the parts of micro-batches; its running statistics remember about 33.3 of them, 133" in line
        )
        for config in (self.asked(1), self.asked(2, norm="sync")):
            line = normalization_line(config, two_level_detector, self.plan(8))
            assert (
                "BatchNorm over micro-batches; its running statistics remember about 33.3 of them, 267 images" in line
            )

    @pytest.mark.parametrize(("processes", "batch", "smallest"), [(2, 4, 2), (4, 5, 1), (8, 4, 1), (1, 2, 2)])
    def test_small_parts_are_warned_of(self, two_level_detector, processes, batch, smallest):
        told = self.warnings(two_level_detector, self.asked(processes), batch)
        assert told.startswith(f"BatchNorm sees micro-batches of {smallest}: its statistics will be rough; raise batch")

    def test_parts_of_enough_images_and_layers_that_exchange_are_not(self, two_level_detector):
        assert self.warnings(two_level_detector, self.asked(2), 10) == ""
        assert self.warnings(two_level_detector, self.asked(4, norm="sync"), 5) == ""

    def test_layers_that_exchange_need_gpus(self):
        cpu, gpu = (DeviceSetup(torch.device(name), threads=1, workers=0) for name in ("cpu", "cuda:0"))
        with pytest.raises(
            ConfigError, match=r"torch's SyncBatchNorm exchanges between GPUs alone, .* runs on cpu; use"
        ):
            check_sync(self.asked(2, norm="sync"), cpu)
        for config, setup in (
            (self.asked(1, norm="sync"), cpu),
            (self.asked(2), cpu),
            (self.asked(2, norm="sync"), gpu),
        ):
            check_sync(config, setup)

    def test_a_part_of_one_image_of_one_cell_is_refused(self, small_classifier):
        network = build_network(small_classifier, ("a", "b"))
        with pytest.raises(
            ConfigError, match="batch = 4: a micro-batch of one image of 32 pixels leaves BatchNorm one"
        ):
            check_batch_size(self.asked(4, imgsz=32), network, self.plan(4))
        check_batch_size(self.asked(2, imgsz=32), network, self.plan(4))


@pytest.mark.slow
def test_the_plan_warns_of_what_may_come_as_a_surprise(planned):
    assert "or take norm=group" in planned(batch=1)
    for norm in ("group", "frozen"):
        assert "statistics will be rough" not in planned(batch=1, norm=norm)
    assert "a fresh network has none" in planned(norm="frozen")
    assert "there is one process, so it is the same as norm=batch" in planned(norm="sync")


def test_group_norm_trains_single_images_of_one_cell(run_training):
    result = run_training(norm="group", imgsz=32, batch=1, nbs=4, epochs=1)
    assert json.loads((result.save_dir / "results.json").read_text(encoding="utf-8"))["skipped_windows"] == 0
