import contextlib
import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from visiontrain.config.load import load_config, wants_json
from visiontrain.config.schema import MODES, SETTINGS, settings_of
from visiontrain.errors import ConfigError


def faults_of(mode, *words, **python):
    with pytest.raises(ConfigError) as caught:
        load_config(mode, command_line=words, python=python)
    return caught.value.faults


@pytest.mark.parametrize(
    "words",
    [
        ["batch=8", "cos_lr=True"],
        ["batch", "=", "8", "cos_lr", "=", "yes"],
        ["--batch", "8", "--cos_lr"],
        ["--batch=8", "--cos-lr"],
        ["--cos-lr", "on", "--batch", "8"],
        ["--cos_lr", "batch=8"],
        ["--cos_lr", "--batch", "=", "8"],
    ],
)
def test_all_forms_of_a_setting_mean_the_same(words):
    config = load_config("train", command_line=words)
    assert (config.batch, config.cos_lr) == (8, True)
    assert config.origins == {"batch": "command line", "cos_lr": "command line"}


def test_the_value_behind_an_option_may_be_negative_or_hold_an_equals_sign():
    config = load_config("train", command_line=["--save-period", "-1", "--data", "my=data.yaml", "project=a=b"])
    assert (config.save_period, config.data, config.project) == (-1, "my=data.yaml", "a=b")


def test_a_value_keeps_its_blanks():
    assert load_config("train", command_line=["data=a b.yaml"]).data == "a b.yaml"


def test_a_bare_option_that_is_not_a_switch_is_a_fault():
    (fault,) = faults_of("train", "--data", "--cos_lr")
    assert fault.startswith("data = True is not a path")


@pytest.mark.parametrize("words", [["batch"], ["-batch", "8"], ["="], ["=8"], ["--", "8"]])
def test_words_without_a_key_or_an_equals_sign_are_faults(words):
    assert all("is not key=value" in fault for fault in faults_of("train", *words))


@pytest.mark.parametrize(
    "words",
    [
        ["a.pt", "b.pt", "data=d"],
        ["data=d", "a.pt", "b.pt"],
        ["a.pt", "--data", "d", "b.pt"],
        ["model=a.pt", "weights=b.pt", "data=d"],
        ["a.pt", "weights=b.pt", "--data=d"],
    ],
)
def test_the_two_models_of_compare_may_be_words_alone(words):
    config = load_config("compare", command_line=words)
    assert (config.model, config.weights, config.data) == ("a.pt", "b.pt", "d")


def test_a_word_alone_too_many_or_where_a_mode_takes_none_is_a_fault():
    fault = "c.pt: is not key=value; write a key, an equals sign and a value, without blanks"
    assert faults_of("compare", "a.pt", "b.pt", "c.pt") == (fault,)
    assert faults_of("val", "c.pt") == (fault,)
    assert faults_of("compare", "a.pt", "model=b.pt") == ("model: was typed twice, as a.pt and b.pt; type it once",)
    assert faults_of("compare", "=", "a.pt")[0].startswith("=: is not key=value")


def test_all_faults_are_reported_at_once_in_the_order_typed():
    faults = faults_of("train", "nbs=0", "epoch=3", "batch=x", "imgsz=-1")
    assert [fault.split()[0].rstrip(":") for fault in faults] == ["nbs", "epoch", "batch", "imgsz"]
    assert faults[1] == "epoch: is not a key of train; the nearest is epochs"


def test_a_key_typed_twice_must_say_the_same():
    assert load_config("train", command_line=["batch=8", "--batch", "8"]).batch == 8
    (fault,) = faults_of("train", "batch=8", "batch=16")
    assert fault == "batch: was typed twice, as 8 and 16; type it once"


def test_accumulate_is_refused_with_the_hint_to_use_nbs():
    (fault,) = faults_of("train", "accumulate=4")
    assert fault.startswith("accumulate: is not a key; use nbs")


@pytest.mark.parametrize(
    ("typed", "nearest"),
    [("grad_clip", "clip"), ("val_period", "val_interval"), ("Batch", "batch"), ("lr", "lr0"), ("imgsize", "imgsz")],
)
def test_an_unknown_key_is_answered_with_the_nearest(typed, nearest):
    assert faults_of("train", f"{typed}=1") == (f"{typed}: is not a key; the nearest is {nearest}",)


def test_a_key_near_to_none_is_answered_with_the_help():
    assert faults_of("train", "qqqqqq=1") == ("qqqqqq: is not a key; visiontrain help train lists them",)


def test_a_key_of_another_mode_is_answered_with_the_modes_that_know_it():
    assert faults_of("train", "source=x") == (
        "source: is not a key of train; it is known in predict; leave it out here",
    )
    assert "it is known in train, plan" in faults_of("val", "lr0=0.1")[0]


@pytest.mark.parametrize("mode", MODES)
def test_every_key_is_taken_by_its_modes(mode):
    for key, setting in settings_of(mode).items():
        if key != "cfg":
            default = (
                setting.default
                if setting.default is not None
                else (1 if setting.rules.least is None else setting.rules.least)
            )
            default = "tensorboard" if key == "logger" else default  # which takes no other texts
            assert load_config(mode, python={key: default}).is_typed(key)


@pytest.mark.parametrize("key", SETTINGS)
def test_python_and_the_command_line_give_equal_values_and_equal_faults(key):
    for text in ("", "0", "1", "-1", "0.5", "1e309", "nan", "x", "None", "true", "0,1", "y" * 300):
        if key == "cfg" and text not in ("", "None"):
            continue
        typed, passed = (
            outcome(lambda words=words, python=python: load_config("train", command_line=words, python=python))
            for words, python in (([f"{key}={text}"], {}), ([], {key: text}))
        )
        assert typed == passed


@pytest.mark.parametrize(
    ("text", "native"), [("0", 0), ("-1", -1), ("64.5", 64.5), ("nan", float("nan")), ("None", None)]
)
def test_a_native_value_is_refused_in_the_same_words_as_its_text(text, native):
    assert faults_of("train", f"nbs={text}") == faults_of("train", nbs=native)


def outcome(load):
    try:
        return load().values()
    except ConfigError as error:
        return error.faults


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["save_dir=a", "project=b"], "project: has no effect beside save_dir"),
        (["save_dir=a", "name=b"], "name: has no effect beside save_dir"),
        (["val=False", "val_interval=5"], "val_interval: has no effect with val=False"),
    ],
)
def test_settings_that_contradict_each_other_are_faults(words, part):
    (fault,) = faults_of("train", *words)
    assert fault.startswith(part)


@pytest.mark.parametrize(
    ("mode", "words", "part"),
    [
        (
            "train",
            ["device=0,1", "batch=-1"],
            "batch = auto: is measured in one process, and there are 2; type the images",
        ),
        ("train", ["processes=2", "batch=auto"], "batch = auto: is measured in one process, and there are 2"),
        (
            "train",
            ["device=0,1", "processes=3"],
            "processes = 3: device = 0,1 names 2, one for each process; leave proc",
        ),
        ("plan", ["device=0,1", "processes=1"], "processes = 1: device = 0,1 names 2"),
        ("train", ["device=0,0"], "device = 0,0: names one twice; each process needs its own"),
        ("train", ["processes=1000"], "processes = 1000: share the images of a micro-batch, and with batch = 16 some"),
        (
            "plan",
            ["device=0,1,2", "batch=2"],
            "processes = 3: share the images of a micro-batch, and with batch = 2 some would never have one",
        ),
        ("verify", ["device=0,1"], "device = 0,1: several devices train together, and verify runs on one; name one"),
        ("val", ["device=0,1"], "device = 0,1: several devices train together, and val runs on one; name one"),
        ("predict", ["device=[0,1]"], "device = 0,1: several devices train together, and predict runs on one"),
    ],
)
def test_processes_devices_and_batch_that_contradict_each_other_are_faults(mode, words, part):
    (fault,) = faults_of(mode, *words)
    assert fault.startswith(part)


@pytest.mark.parametrize(
    "words", [["device=0,1"], ["device=0,1", "processes=2"], ["device=cpu", "processes=3"], ["device=1"]]
)
def test_processes_and_devices_that_go_together_are_taken(words):
    assert load_config("train", command_line=[*words, "batch=8"]).batch == 8


def test_scores_in_label_files_need_label_files():
    assert faults_of("predict", "save_conf=True")[0].startswith("save_conf: adds scores to the files of save_txt")
    assert load_config("predict", command_line=["save_conf=True", "save_txt=True"]).save_conf


@pytest.fixture
def write(tmp_path):
    counter = itertools.count()

    def write_cfg(content):
        path = tmp_path / f"my {next(counter)}.yaml"
        path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
        return path

    return write_cfg


def test_a_cfg_file_is_read_below_what_was_typed(write):
    path = write("# mine\nbatch: 8\nnbs: 1_28\nlr0: 1e-3\nname: no\nmodel: null\namp: off\n")
    config = load_config("train", command_line=[f"cfg={path}", "batch=4"])
    assert (config.batch, config.nbs, config.lr0, config.name, config.model, config.amp) == (
        4,
        128,
        1e-3,
        "no",
        None,
        False,
    )


def test_a_cfg_file_may_begin_with_a_byte_order_mark_and_be_named_by_a_path(write):
    path = write(b"\xef\xbb\xbfbatch: 8\n")
    assert load_config("train", python={"cfg": path}).batch == 8


def test_keys_of_other_modes_in_a_cfg_file_are_checked_but_not_used(write):
    config = load_config("val", command_line=[f"cfg={write('lr0: 0.5')}"])
    assert (config.lr0, config.origin("lr0")) == (0.01, "default")
    path = write("lr0: high")
    assert "lr0 = high is not a number" in faults_of("val", f"cfg={path}")[0]


def test_faults_in_a_cfg_file_name_file_and_line_and_come_with_those_typed(write):
    path = write("batch: 8\n\nnbs: 0\nepoch: 3\ntime: 1:30\n")
    faults = faults_of("train", f"cfg={path}", "lr0=x")
    assert faults[0].startswith("lr0 = x is not")
    assert faults[1].startswith(f"{path}:3: nbs = 0 is not")
    assert faults[2] == f"{path}:4: epoch: is not a key of train; the nearest is epochs"
    assert faults[3].startswith(f"{path}:5: time = 1:30 is not a number above 0")


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ("", "is empty"),
        ("# nothing\n", "is empty"),
        ("batch", "does not hold a mapping"),
        ("- batch\n", "does not hold a mapping"),
        ("batch: [8\n", r"is not YAML \(line"),
        ("batch: 8\n---\nbatch: 9\n", r"is not YAML"),
        (b"\xff\xfe\x00batch", r"is not text in UTF-8 \(byte 0\)"),
        (b"batch: 8\x00\n", "holds characters that are not text"),
        ("[" * 1000, "is nested too deeply"),
        ("x" * 1_000_001, "is larger than"),
        ("batch: 8\nbatch: 8\n", r":2: batch: was given before"),
        ("batch: {a: 1}\n", r":1: batch = a mapping is not a whole number"),
        ("batch: [8]\n", r":1: batch = \[8\] is not a whole number"),
        ("batch:\n", r":1: batch = None is not a whole number"),
        ("data: ''\n", r":1: data = '' is not a path"),
        ("classes: [[0]]\n", r":1: classes = a nested list is not a list of whole numbers"),
        ("? [a]\n: 1\n", "a key that is not a word"),
        ("a: !!python/object/apply:os.system [ls]\n", ":1: a: is not a key"),
        ("cfg: other.yaml\n", r":1: cfg = other.yaml names another file"),
    ],
)
def test_a_cfg_file_that_is_not_a_mapping_of_keys_is_refused_by_name(write, content, part):
    path = write(content)
    (fault,) = faults_of("train", f"cfg={path}")
    assert fault.startswith(str(path))
    assert re.search(part, fault)


def test_a_cfg_file_that_cannot_be_read_is_refused_by_name(tmp_path):
    for path in (tmp_path, tmp_path / "missing.yaml"):
        (fault,) = faults_of("train", f"cfg={path}")
        assert fault.startswith(f"{path}: cannot be read (")


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["json=True"], True),
        (["--json"], True),
        (["--json", "nbs=0"], True),
        (["plan", "stray", "json", "=", "on"], True),
        (["json=no"], False),
        (["json=maybe"], False),
        (["nbs=0"], False),
        ([], False),
    ],
)
def test_the_wish_for_json_is_found_among_wrong_words(words, wanted):
    assert wants_json(words) is wanted


@given(st.lists(st.text(max_size=20), max_size=6))
def test_words_whatever_give_a_config_or_a_config_error(words):
    with contextlib.suppress(ConfigError):
        config = load_config("train", command_line=[word for word in words if "cfg" not in word])
        assert all(config.is_typed(key) for key in config.origins)
