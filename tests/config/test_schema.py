import pickle
from dataclasses import FrozenInstanceError, fields

import pytest

from visiontrain.config.load import load_config
from visiontrain.config.schema import MODES, SETTINGS, Config, settings_of

NAMES = """
model data epochs time patience batch nbs imgsz device workers cache project name exist_ok save_dir pretrained
optimizer seed deterministic single_cls cos_lr close_mosaic resume amp fraction freeze multi_scale compile val
val_interval split save_period conf iou max_det plots lr0 lrf momentum weight_decay warmup_epochs
warmup_momentum warmup_bias_lr box cls dfl hsv_h hsv_s hsv_v degrees translate scale shear perspective flipud
fliplr mosaic mixup copy_paste auto_augment erasing cutmix dropout label_smoothing cfg quiet source stream
classes agnostic_nms augment save save_txt save_crop save_conf show_labels line_width vid_stride format opset
dynamic simplify nms tail norm bn_momentum precise_bn lr_scaling clip ema json processes checkpoint_activations
noise_scale sampling val_fraction data_format save_minutes max_skips logger run save_json weights lr_backbone
layer_decay map_names mapping unfreeze_epoch task epoch index mosaic9 crop gray blur clahe jpeg flip_swap max_pixels
loss multi_label class_weights focal_gamma
"""


def test_every_name_of_the_interface_is_declared_and_no_other():
    assert sorted(SETTINGS) == sorted(NAMES.split())


def test_every_key_belongs_to_modes_that_exist():
    for setting in SETTINGS.values():
        assert set(setting.rules.modes) <= set(MODES)


def test_plan_takes_exactly_the_settings_of_train_that_shape_a_run():
    only_train = set(settings_of("train")) - set(settings_of("plan"))
    assert only_train == {"project", "name", "exist_ok", "save_dir", "logger"}


def test_the_customary_defaults_hold():
    config = Config()
    assert (config.epochs, config.batch, config.nbs, config.patience) == (100, 16, 64, 100)
    assert (config.lr0, config.lrf, config.momentum, config.weight_decay) == (0.01, 0.01, 0.937, 5e-4)
    assert (config.warmup_epochs, config.warmup_bias_lr, config.clip, config.close_mosaic) == (3, 0, 10, 10)
    assert (config.iou, config.max_det, config.amp, config.workers, config.tail) == (0.7, 300, "auto", "auto", "flush")


def test_a_config_is_frozen_hashable_and_survives_pickling():
    config = load_config("train", python={"batch": 8, "data": "a.yaml"})
    with pytest.raises(FrozenInstanceError):
        config.batch = 4
    hash(config)
    copy = pickle.loads(pickle.dumps(config))
    assert copy == config
    assert copy.origins == config.origins


def test_every_value_knows_where_it_came_from(tmp_path):
    path = tmp_path / "my.yaml"
    path.write_text("nbs: 32\nepochs: 7\n", encoding="utf-8")
    config = load_config("train", command_line=[f"cfg={path}", "epochs=9"])
    config = config.suggest(imgsz=128, epochs=30).decide(lr0=0.02)
    assert [config.origin(key) for key in ("batch", "nbs", "epochs", "imgsz", "lr0")] == [
        "default",
        "cfg file",
        "command line",
        "sample",
        "decided",
    ]
    assert (config.nbs, config.epochs, config.imgsz, config.lr0) == (32, 9, 128, 0.02)
    assert load_config("train", python={"nbs": 8}).origin("nbs") == "python"


def test_what_was_typed_is_not_decided_otherwise():
    config = load_config("train", command_line=["lr0=0.5"])
    with pytest.raises(AssertionError, match="lr0 was typed"):
        config.decide(lr0=0.1)
    assert config.decide(lr0=0.5).origin("lr0") == "command line"


def test_a_typed_auto_or_none_leaves_the_decision_open():
    config = load_config("train", command_line=["optimizer=auto", "imgsz=None"])
    assert config.decide(optimizer="SGD").optimizer == "SGD"
    assert config.suggest(imgsz=128).imgsz == 128


def test_deciding_leaves_the_first_config_as_it_was():
    config = Config()
    config.decide(lr0=0.5)
    assert config.lr0 == 0.01
    assert config.origin("lr0") == "default"


def test_values_are_plain_and_hold_every_key_of_the_task():
    values = load_config("predict", command_line=["classes=0,2"]).values()
    assert values["classes"] == [0, 2]
    for task in ("detect", "classify"):
        assert set(Config(task=task).values()) == {
            key for key, setting in SETTINGS.items() if task in setting.rules.tasks or not setting.rules.tasks
        }
    assert all(isinstance(value, (type(None), bool, int, float, str, list)) for value in values.values())


def test_every_field_is_a_key_or_known_not_to_be():
    assert {field.name for field in fields(Config)} - set(SETTINGS) == {"mode", "origins"}
