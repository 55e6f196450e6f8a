import pickle
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from visiontrain.config.schema import AUTO_BATCH, SETTINGS
from visiontrain.config.setting import shown

TEXTS = [
    "",
    " ",
    "1e309",
    "-1e309",
    "nan",
    "inf",
    "-1",
    "0",
    "[]",
    "[",
    "None",
    "true",
    "text",
    "1,2",
    "\0",
    "\n",
    "\ud800",
]
NUMBERS = [True, -1, 0, 2**80, 10**5000, float("nan"), float("inf"), 1e308, 64.5, 1j, np.float32("nan"), np.int64(-5)]
OTHERS = [None, [], (), {}, [[]], [1, "x"], [True], {"a": 1}, b"bytes", object(), np.zeros(3), Path("x" * 5000)]
ODD_VALUES = [*TEXTS, "x" * 5000, "9" * 5000, *NUMBERS, *OTHERS]


def reads(key, raw):
    return SETTINGS[key].read(raw)


@pytest.mark.parametrize("key", SETTINGS)
def test_an_odd_value_is_read_within_the_declared_range_or_refused_in_one_short_line(key):
    for raw in ODD_VALUES:
        try:
            value = reads(key, raw)
        except ValueError as error:
            message = str(error)
            assert message.startswith(f"{key} = ")
            assert len(message.splitlines()) == 1
            assert len(message) < 500
            continue
        numbers = value if isinstance(value, tuple) else (value,)
        for number in numbers:
            if isinstance(number, (int, float)) and not isinstance(number, bool):
                assert abs(number) <= 2**31
        if isinstance(value, str):
            assert value.strip()
        pickle.dumps(value)


@pytest.mark.parametrize("key", SETTINGS)
def test_a_default_is_read_as_itself_both_native_and_as_text(key):
    default = SETTINGS[key].default
    assert reads(key, default) == default
    assert reads(key, str(default)) == default


@pytest.mark.parametrize("key", SETTINGS)
def test_every_key_says_what_it_takes_in_both_forms(key):
    setting = SETTINGS[key]
    assert setting.describe().strip()
    assert setting.takes().strip()
    assert setting.rules.help.split()[0] in ("the", "whether", "whether,", "how", "what", "where")
    is_number = {"int", "float", "tuple[int, ...]"} & set(setting.types)
    rules = setting.rules
    assert not is_number or {rules.least, rules.above} != {None} != {rules.most, rules.below}
    assert setting.rules.modes


@pytest.mark.parametrize(
    "raw", ["0", "-1", "true", "64.5", "", "1e309", "nan", "x", 0, -1, True, 64.5, 64.0, None, [64]]
)
def test_nbs_refuses_what_is_not_a_positive_whole_number(raw):
    with pytest.raises(ValueError, match=r"^nbs = .* is not a whole number from 1 to"):
        reads("nbs", raw)


@pytest.mark.parametrize(
    ("key", "raw", "value"),
    [
        ("lr0", "1e-3", 0.001),
        ("lr0", ".001", 0.001),
        ("lr0", 1, 1.0),
        ("lr0", Fraction(1, 4), 0.25),
        ("nbs", "1_000", 1000),
        ("nbs", " 8 ", 8),
        ("nbs", np.int64(8), 8),
        ("conf", "none", None),
        ("conf", "0.5", 0.5),
        ("classes", "0,1,2", (0, 1, 2)),
        ("classes", "[0, 1, 2]", (0, 1, 2)),
        ("classes", "3", (3,)),
        ("classes", 3, (3,)),
        ("classes", [0, 2], (0, 2)),
        ("classes", "None", None),
        ("optimizer", "adamw", "AdamW"),
        ("optimizer", "sgd", "SGD"),
        ("workers", "AUTO", "auto"),
        ("workers", "2", 2),
        ("amp", "no", False),
        ("amp", "bf16", "bf16"),
        ("amp", True, True),
        ("resume", "true", True),
        ("resume", "runs/a b/last.pt", "runs/a b/last.pt"),
        ("device", 0, "0"),
        ("device", "cuda:1", "cuda:1"),
        ("data", Path("a") / "b.yaml", str(Path("a") / "b.yaml")),
        ("data", " leading blank.yaml", " leading blank.yaml"),
        ("name", "2024", "2024"),
        ("name", 2024, "2024"),
        ("save_period", "-1", -1),
    ],
)
def test_a_value_is_read_by_the_declared_type_of_its_key(key, raw, value):
    assert reads(key, raw) == value
    assert type(reads(key, raw)) is type(value)


@pytest.mark.parametrize("word", ["true", "True", "YES", "on", "1", True, 1])
def test_truth_has_the_usual_words(word):
    assert reads("cos_lr", word) is True


@pytest.mark.parametrize("word", ["false", "No", "OFF", "0", False, 0])
def test_falsehood_has_the_usual_words(word):
    assert reads("cos_lr", word) is False


@pytest.mark.parametrize("word", ["", "t", "2", "1.0", "None", None, 2, 1.0, [True]])
def test_nothing_else_is_true_or_false(word):
    with pytest.raises(ValueError, match="is not true or false; it is whether"):
        reads("cos_lr", word)


@pytest.mark.parametrize("raw", ["auto", "AUTO", "-1", -1])
def test_a_batch_that_is_to_be_measured_has_a_value_of_its_own(raw):
    assert reads("batch", raw) == AUTO_BATCH


@pytest.mark.parametrize("raw", ["0", "-2", "automatic", -1.0, True, 0])
def test_any_other_batch_outside_the_range_is_refused(raw):
    with pytest.raises(ValueError, match="is not a whole number from 1 to 1000000, or auto; it is the most images in"):
        reads("batch", raw)


@pytest.mark.parametrize("raw", ["0,1", [0, 1], (0, 1), ["0", "1"], "[0,1]", "[0, 1]", "0, 1", "(0,1)"])
def test_several_devices_may_be_a_list(raw):
    assert reads("device", raw) == "0,1"


@pytest.mark.parametrize("raw", ["cuda:0,1", "gpu", "-1", True, [], [0, None], "0,", "cpu,0", [0, [1]]])
def test_unknown_devices_are_refused(raw):
    with pytest.raises(ValueError, match="the number of a GPU, or several with commas between them"):
        reads("device", raw)


@pytest.mark.parametrize("raw", ["a/b", "..", ".", "a\\b", "/", ""])
def test_a_run_name_is_one_folder(raw):
    with pytest.raises(ValueError, match="is not the name of one folder"):
        reads("name", raw)


@pytest.mark.parametrize(("key", "end"), [("momentum", "1"), ("scale", "1"), ("lr0", "0"), ("fraction", "0")])
def test_an_exclusive_end_is_outside(key, end):
    with pytest.raises(ValueError, match=f"^{key} = "):
        reads(key, end)


@given(st.integers())
def test_an_integer_is_kept_exactly_or_refused(number):
    try:
        assert reads("nbs", str(number)) == reads("nbs", number) == number
        assert number >= 1
    except ValueError:
        assert not 1 <= number <= SETTINGS["nbs"].rules.most


@given(st.text(max_size=300))
def test_any_text_is_shown_on_one_short_line(text):
    line = shown(text)
    assert line.isprintable()
    assert len(line) < 100
