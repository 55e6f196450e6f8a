"""Weights into a classifier: what fits is loaded, the last layer may stay fresh, the rest is told; no code is run."""

import pytest
import torch
import torchvision

from visiontrain.engine.checkpoint import save_checkpoint, weights_of
from visiontrain.errors import ConfigError
from visiontrain.models.build import build_network
from visiontrain.models.download import cached_file
from visiontrain.models.pretrained import fetch_pretrained_, load_pretrained_, load_weights_
from visiontrain.models.torchvision_models import build_torchvision

NAME = "shufflenet_v2_x0_5"
LAST = ("fc.weight", "fc.bias")
TINY = {"layers": [[-1, 1, "Conv", [16, 3, 4]], [-1, 1, "Classify", [32]]]}


def own(num_classes=3, *, name=NAME, **settings):
    return build_torchvision(name, [str(index) for index in range(num_classes)], **settings)


def theirs(num_classes=1000, *, name=NAME, **settings):
    """A network of torchvision's with weights that are told apart from fresh ones."""
    network = torchvision.models.get_model(name, weights=None, num_classes=num_classes, **settings)
    with torch.no_grad():
        for param in network.parameters():
            param.fill_(0.25)
    return network


def saved(tmp_path, value):
    torch.save(value, tmp_path / "weights.pth")
    return tmp_path / "weights.pth"


def assert_loaded(network, fresh=()):
    for name, param in network.named_parameters():
        assert (param == 0.25).all() == (name not in fresh), name


@pytest.mark.parametrize(
    "wrap",
    [
        lambda state: state,
        lambda state: {"state_dict": state, "epoch": 3},
        lambda state: {"model": state, "optimizer": {"lr": 0.1}},
        lambda state: {"model": {f"module.{name}": tensor for name, tensor in state.items()}},
    ],
    ids=["plain", "state_dict", "model", "DistributedDataParallel"],
)
def test_a_file_of_torchvision_loads_all_but_the_classifier_of_other_classes(tmp_path, wrap):
    network = own()
    assert load_pretrained_(network, saved(tmp_path, wrap(theirs().state_dict()))) == LAST
    assert_loaded(network.network, fresh=LAST)


def test_the_classifier_is_loaded_too_where_the_number_of_classes_is_the_same(tmp_path):
    network = own()
    assert load_pretrained_(network, saved(tmp_path, theirs(num_classes=3).state_dict())) == ()
    assert_loaded(network.network)


def test_dropout_before_the_last_layer_changes_nothing_about_its_weights(tmp_path):
    network = own(dropout=0.5)
    assert load_pretrained_(network, saved(tmp_path, theirs().state_dict())) == LAST


@pytest.mark.parametrize("ema", [True, False])
@pytest.mark.parametrize("kind", ["torchvision", "own"])
def test_a_checkpoint_of_this_program_is_loaded_its_average_if_it_has_one(tmp_path, kind, ema):
    def make(num_classes):
        names = [str(index) for index in range(num_classes)]
        return build_torchvision(NAME, names) if kind == "torchvision" else build_network(TINY, names)

    trained, network = make(5), make(3)
    live = weights_of(trained)
    average = {name: tensor + 1 for name, tensor in live.items()} if ema else None
    save_checkpoint(
        tmp_path / "best.pt",
        {"task": "classify", "model": live, "ema": average, "names": ["a"], "network": trained.description, "args": {}},
    )
    fresh = load_pretrained_(network, tmp_path / "best.pt")
    assert len(fresh) == 2
    prefix = "network." if kind == "torchvision" else ""
    for name, tensor in network.state_dict().items():
        if name.removeprefix(prefix) not in fresh:
            assert torch.equal(tensor, (average or live)[name]), name


def test_running_statistics_are_loaded_and_missing_counts_of_batches_are_forgiven(tmp_path):
    state = theirs().state_dict()
    for name in list(state):
        if name.endswith("running_mean"):
            state[name].fill_(3.0)
        elif name.endswith("num_batches_tracked"):
            del state[name]
    network = own()
    load_pretrained_(network, saved(tmp_path, state))
    means = [buffer for name, buffer in network.network.named_buffers() if name.endswith("running_mean")]
    assert means
    assert all((mean == 3).all() for mean in means)


def test_what_does_not_fit_is_told_with_counts_and_the_first_names_and_nothing_is_loaded(tmp_path):
    state = theirs().state_dict()
    missing = [name for name in state if name.startswith("stage4.0.branch1.")]
    for name in missing:
        del state[name]
    state["extra.weight"] = torch.zeros(1)
    state["conv1.0.weight"] = torch.zeros(24, 3, 5, 5)
    network = own()
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    with pytest.raises(ConfigError) as caught:
        load_pretrained_(network, saved(tmp_path, state))
    (fault,) = caught.value.faults
    told = [name for name in missing if not name.endswith("num_batches_tracked")]
    assert f"{len(told)} missing ({', '.join(told[:5])} and {len(told) - 5} more)" in fault
    assert "1 unexpected (extra.weight)" in fault
    assert "1 of another shape (conv1.0.weight (24, 3, 5, 5) for (24, 3, 3, 3))" in fault
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())


def test_the_last_layer_of_another_width_or_a_part_of_it_is_no_fit(tmp_path):
    state = theirs().state_dict()
    state["fc.weight"] = torch.zeros(1000, 7)
    with pytest.raises(ConfigError, match=r"2 of another shape \(fc.weight .*, fc.bias"):
        load_pretrained_(own(), saved(tmp_path, state))
    del state["fc.weight"]
    with pytest.raises(ConfigError, match=r"1 missing \(fc.weight\); 1 of another shape \(fc.bias"):
        load_pretrained_(own(), saved(tmp_path, state))


def test_weights_of_another_network_are_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"the weights do not fit the network: .* missing .* unexpected"):
        load_pretrained_(own(), saved(tmp_path, build_network(TINY, ("a",)).state_dict()))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["googlenet", "inception_v3"])
def test_auxiliary_outputs_in_the_weights_are_left_out(name):
    state = theirs(name=name, aux_logits=True, init_weights=False).state_dict()
    assert any("aux" in key.lower() for key in state)
    network = own(name=name)
    assert load_weights_(network, state, where="here") == LAST
    assert_loaded(network.network, fresh=LAST)


@pytest.mark.slow
def test_layers_of_densenet_are_known_by_their_old_names():
    state = {
        name.replace("norm1", "norm.1").replace("conv2", "conv.2"): tensor
        for name, tensor in theirs(name="densenet121").state_dict().items()
    }
    assert any("denselayer1.norm.1" in name for name in state)
    network = own(name="densenet121")
    assert load_weights_(network, state, where="here") == ("classifier.weight", "classifier.bias")


@pytest.mark.slow
def test_the_positions_of_a_vision_transformer_are_interpolated_to_its_image_size():
    state = theirs(name="vit_b_32").state_dict()
    assert state["encoder.pos_embedding"].shape[1] == 50
    network = own(name="vit_b_32", imgsz=96)
    assert load_weights_(network, state, where="here") == ("heads.head.weight", "heads.head.bias")
    positions = network.network.encoder.pos_embedding
    assert positions.shape[1] == 10
    torch.testing.assert_close(positions, torch.full_like(positions, 0.25))


def test_a_file_that_is_none_or_no_weights_is_refused(tmp_path):
    network = own()
    with pytest.raises(ConfigError, match=r"cannot be read .*No such file"):
        load_pretrained_(network, tmp_path / "missing.pth")
    for name, data in (("text.pth", b"no weights"), ("empty.pth", b"")):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(ConfigError, match="holds a pickle that is damaged or none at all"):
            load_pretrained_(network, tmp_path / name)
    for value in ([1, 2], {}, {"epoch": 3}, {"model": {"note": "text"}}):
        with pytest.raises(ConfigError, match="holds no weights; they should be named tensors"):
            load_pretrained_(network, saved(tmp_path, value))


def test_code_in_a_file_is_never_run(tmp_path):
    class Trap:
        def __reduce__(self):
            return (open, (str(tmp_path / "sprung"), "w"))

    state = {"state_dict": own().state_dict(), "trap": Trap()}
    torch.save(state, tmp_path / "trap.pth")
    load_pretrained_(own(), tmp_path / "trap.pth")
    assert not (tmp_path / "sprung").exists()


def test_the_weights_of_a_whole_module_are_loaded_without_its_class(tmp_path):
    network = own()
    assert load_pretrained_(network, saved(tmp_path, theirs())) == LAST
    assert_loaded(network.network, fresh=LAST)


def test_fetched_weights_are_those_that_torchvision_offers(monkeypatch):
    asked = {}

    def fetch(url, **settings):
        asked.update(settings, url=url)
        return theirs().state_dict()

    monkeypatch.setattr("visiontrain.models.download.check_reachable", lambda url: None)
    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", fetch)
    network = own()
    assert fetch_pretrained_(network) == LAST
    assert_loaded(network.network, fresh=LAST)
    assert asked["url"] == torchvision.models.get_model_weights(NAME).DEFAULT.url
    assert asked["weights_only"]
    assert asked["check_hash"]


def test_weights_in_the_folder_of_torchvision_become_every_tensor_but_the_last_layer(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    file = cached_file(torchvision.models.get_model_weights(NAME).DEFAULT.url)
    file.parent.mkdir(parents=True)
    kept = torchvision.models.get_model(NAME, weights=None).state_dict()
    torch.save(kept, file)
    network = own()
    assert fetch_pretrained_(network) == LAST
    loaded = network.network.state_dict()
    assert loaded.keys() == kept.keys()
    assert [name for name, tensor in loaded.items() if not torch.equal(tensor, kept[name])] == list(LAST)


def test_a_network_of_our_own_has_no_weights_to_fetch():
    with pytest.raises(ConfigError, match="pretrained = True: there are weights for torchvision's networks only"):
        fetch_pretrained_(build_network(TINY, ("a",)))
