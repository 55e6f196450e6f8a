import pytest

from visiontrain.errors import ConfigError
from visiontrain.models.matching import MOST_LAYERS, Match, match_weights


def conv(layer, *shape):
    return {f"{layer}.weight": (shape, True)}


def norm(layer, width, *, leaves=("weight", "bias", "running_mean", "running_var")):
    return {f"{layer}.{leaf}": ((width,), True) for leaf in leaves} | {f"{layer}.num_batches_tracked": ((), False)}


OURS = conv("layers.0.conv", 8, 3, 3, 3) | norm("layers.0.norm", 8) | conv("layers.1.conv", 8, 8, 1, 1)
THEIRS = conv("stem.0", 8, 3, 3, 3) | norm("stem.1", 8) | conv("neck", 8, 8, 1, 1)


def pairs(matching):
    return {match.ours: (match.theirs, match.how) for match in matching.matches}


@pytest.mark.parametrize("beginning", ["", "module.", "model.network."])
def test_names_are_compared_without_what_all_of_them_begin_with(beginning):
    theirs = {beginning + name.removeprefix("layers."): form for name, form in OURS.items()}
    matching = match_weights(OURS, theirs)
    assert [match.how for match in matching.matches] == ["name"] * len(OURS)
    assert (matching.missing, matching.unused) == ((), ())


def test_layers_of_other_names_are_matched_by_shape_and_order():
    matching = match_weights(OURS, THEIRS)
    assert matching.matches == tuple(Match(ours, theirs, "order") for ours, theirs in zip(OURS, THEIRS, strict=True))


def test_the_order_within_a_layer_does_not_matter():
    leaves = ("running_var", "bias", "weight", "running_mean")
    theirs = conv("stem.0", 8, 3, 3, 3) | norm("stem.1", 8, leaves=leaves) | conv("neck", 8, 8, 1, 1)
    assert pairs(match_weights(OURS, theirs)) == pairs(match_weights(OURS, THEIRS))


def test_what_could_be_meant_twice_is_left_alone():
    ours = conv("a", 8, 8, 1, 1) | conv("b", 4, 8, 1, 1)
    theirs = conv("x", 8, 8, 1, 1) | conv("y", 8, 8, 1, 1) | conv("z", 4, 8, 1, 1) | conv("u", 8, 8, 1, 1)
    matching = match_weights(conv("a", 8, 8, 1, 1), theirs)
    assert matching.matches == ()
    assert match_weights(theirs, conv("a", 8, 8, 1, 1)).matches == ()
    assert pairs(match_weights(ours, theirs)) == {"a.weight": ("y.weight", "order"), "b.weight": ("z.weight", "order")}


def test_a_few_accidental_names_do_not_tear_a_run_of_layers_apart():
    ours = {name: form for index in range(6) for name, form in conv(f"{index}", 8, 8, 1, 1).items()}
    ours |= conv("6", 4, 8, 1, 1)
    theirs = {name: form for index in range(3, 9) for name, form in conv(f"{index}", 8, 8, 1, 1).items()}
    theirs |= conv("last", 4, 8, 1, 1)
    matching = match_weights(ours, theirs)
    assert [match.theirs for match in matching.matches] == list(theirs)


def test_more_layers_than_any_network_has_are_not_compared_by_order():
    ours = {f"{index}.weight": ((index + 1,), True) for index in range(MOST_LAYERS + 1)}
    theirs = {f"x{name}": form for name, form in ours.items()}
    assert match_weights(ours, theirs).matches == ()


def test_integers_are_not_taken_for_floating_numbers():
    assert match_weights({"w": ((2,), True)}, {"w": ((2,), False)}).matches == ()


def test_counts_of_batches_come_with_their_layer_and_may_be_missing():
    theirs = {name: form for name, form in THEIRS.items() if "tracked" not in name}
    matching = match_weights(OURS, theirs)
    assert matching.missing == ("layers.0.norm.num_batches_tracked",)


@pytest.mark.parametrize(
    "mapping",
    [
        {"neck.weight": "layers.1.conv.weight", "stem.0.weight": "layers.0.conv.weight", "stem.1.": "layers.0.norm."},
        {"stem.0.*": "layers.0.conv.*", "stem.1.*": "layers.0.norm.*", "neck*": "layers.1.conv*"},
    ],
)
def test_a_mapping_pairs_names_and_beginnings_and_stars(mapping):
    matching = match_weights(OURS, THEIRS, mapping)
    assert {match.how for match in matching.matches} == {"mapping"}
    assert [match.theirs for match in matching.matches] == list(THEIRS)


def test_a_mapping_to_nothing_leaves_tensors_out_and_the_first_line_counts():
    matching = match_weights(OURS, THEIRS, {"neck.weight": None, "*": None})
    assert matching.matches == ()
    assert matching.unused == tuple(THEIRS)
    assert match_weights(conv("a", 8, 8, 1, 1), conv("x\ny", 8, 8, 1, 1), {"*": None}).matches == ()
    for later in ({"neck.": None}, {"neck.": "nowhere."}):
        matching = match_weights(OURS, THEIRS, {"neck.weight": "layers.1.conv.weight", **later})
        assert pairs(matching)["layers.1.conv.weight"] == ("neck.weight", "mapping")
    assert match_weights(OURS, THEIRS, {"neck.": None, "neck.weight": "layers.1.conv.weight"}).missing


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ({"other": "layers.0.conv.weight"}, "'other' is no tensor of the file"),
        ({"neck.weight": "layers.9"}, "'layers.9', for 'neck.weight', is no tensor of the network"),
        ({"neck.weight": "layers.0.conv.weight"}, "'neck.weight' is 8×8×1×1, and 'layers.0.conv.weight' is 8×3×3×3"),
        ({"stem.1.*": "layers.0.norm.bias"}, "are both for 'layers.0.norm.bias'"),
        ({"neck.weight": "layers.*"}, r"has more \* than"),
        ({"*e*.*": "*a*.*"}, r"or than 2"),
        ({"stem.1.num*": "layers.0.norm.bias"}, r"is a single number \(integers\), and 'layers.0.norm.bias' is 8"),
    ],
)
def test_a_mapping_that_cannot_be_is_refused(mapping, message):
    with pytest.raises(ConfigError, match=message):
        match_weights(OURS, THEIRS, mapping)


def test_faults_of_a_mapping_are_told_at_once_but_not_without_end():
    with pytest.raises(ConfigError) as caught:
        match_weights(OURS, THEIRS, {f"none{index}": "x" for index in range(9)})
    assert len(caught.value.faults) == 6
    assert caught.value.faults[-1] == "mapping: 4 more faults like these"
