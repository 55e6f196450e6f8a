import io
import pickle
import pickletools
from collections import Counter, OrderedDict, deque

import pytest

from visiontrain.models.pickles import Allowance, Inert, Reference, Rules, UnreadableError, read_pickle

PLAIN = [
    None,
    True,
    [1, 2.5, -(2**70), "é\n", b"\0\xff", bytearray(b"ab")],
    {"a": {1: (1,), 2: (1, 2), 3: (1, 2, 3), 4: (1, 2, 3, 4)}, (1, "b"): []},
    {1, 2, frozenset({"a"})} - {frozenset({"a"})},
    frozenset({"a", "b"}),
    [[[]], [{}], list(range(300)), "x" * 300, b"x" * 300],
]


class Thing:
    def __init__(self, value):
        self.value = value


def read(data, rules=None, *, copied_bytes=10_000):
    not_run: Counter[str] = Counter()
    value = read_pickle(io.BytesIO(data), rules or Rules(), Allowance(copied_bytes), not_run)
    return value, not_run


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("value", PLAIN, ids=lambda value: str(value)[:20])
def test_plain_values_are_read_as_pickle_reads_them(value, protocol):
    data = pickle.dumps(value, protocol)
    found, not_run = read(data)
    if not not_run:  # early protocols write bytes and sets as calls
        assert found == value
        assert type(found) is type(value)
    else:
        assert protocol < 5


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_value_that_holds_itself_is_read(protocol):
    value: list[object] = []
    value.append((value,))
    found, _ = read(pickle.dumps(value, protocol))
    assert found[0][0] is found
    found, _ = read(pickle.dumps(value[0], protocol))
    assert found[0][0] is found


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_objects_become_inert_and_keep_their_class_and_attributes(protocol):
    found, not_run = read(pickle.dumps({"a": Thing(5), "b": Thing([6])}, protocol))
    assert [type(thing) for thing in found.values()] == [Inert, Inert]
    assert found["a"].state == {"value": 5}
    assert found["b"].state == {"value": [6]}
    assert sum(not_run.values()) == 2
    if protocol >= 2:
        assert found["a"].reference.name == "Thing"


def test_entries_of_inert_objects_are_kept_and_their_elements_are_not():
    found, not_run = read(pickle.dumps([OrderedDict(a=1), Counter("aab"), deque("ab")]))
    assert found[0].entries == {"a": 1}
    assert not_run == {"collections.OrderedDict": 1, "collections.Counter": 1, "collections.deque": 1}


def test_what_an_inert_object_makes_is_inert_and_counts_as_of_its_class():
    found, not_run = read(b"cos\nsystem\n)R)R.")
    assert found.reference == ("os", "system")
    assert not_run == {"os.system": 2}


def test_keywords_go_to_no_builder():
    call = b"ccollections\nOrderedDict\n)}X\x01\x00\x00\x00aNs\x92."
    found, _ = read(call, Rules({Reference("collections", "OrderedDict"): dict}))
    assert isinstance(found, Inert)


def test_a_builder_of_ours_is_called_in_place_of_what_a_pickle_names():
    rules = Rules({Reference("collections", "OrderedDict"): dict})
    found, not_run = read(pickle.dumps(OrderedDict(a=1)), rules)
    assert found == {"a": 1}
    assert not not_run


def test_a_builder_that_cannot_make_anything_of_its_arguments_leaves_it_inert():
    def refuse():
        raise ValueError

    found, not_run = read(pickle.dumps(OrderedDict(a=1)), Rules({Reference("collections", "OrderedDict"): refuse}))
    assert isinstance(found, Inert)
    assert not_run == {"collections.OrderedDict": 1}


def test_every_operation_alone_is_refused_or_read_but_never_an_internal_error():
    for operation in pickletools.opcodes:
        for before in (b"", b"N", b"NN", b"(", b"((", b"](", b"}(", b"(N", b"]N", b"}NN"):
            for after in (b"", b".", b"\x00" * 9 + b".", b"1\n2\n."):
                try:
                    read(before + operation.code.encode("latin-1") + after)
                except UnreadableError:
                    continue


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "damaged or none"),
        (b"N", "damaged or none"),
        (b"\x8b\x01\x01\x00\x00" + b"\x7f" * 257 + b".", "integer of 2,055 bits"),
        (b"})\x85Ns.", "not plain for a key"),
        (b"}\x8a\x08" + b"\x7f" * 8 + b"Ns.", "key of more than 60 bits"),
        (b"\x82\x01.", "operation EXT1"),
        (b"Pa\n.", "refers to data outside"),
        (b"c" + b"a" * 513 + b"\nb\n.", "more than 512 characters"),
        (b"NNa.", "appends to a NoneType"),
    ],
)
def test_what_no_file_of_weights_needs_is_refused(data, message):
    with pytest.raises(UnreadableError, match=message):
        read(data)


def test_steps_and_time_and_copies_are_bounded(monkeypatch):
    monkeypatch.setattr("visiontrain.models.pickles.MOST_STEPS", 1000)
    with pytest.raises(UnreadableError, match="more than 1,000 steps"):
        read(b"(" + b"N" * 2000 + b"l.")
    with pytest.raises(UnreadableError, match="more than 1,000 steps"):
        read(pickle.dumps(dict.fromkeys(range(900))))
    with pytest.raises(UnreadableError, match="more than 1,000 steps"):
        read(pickle.dumps(set(range(900))))
    monkeypatch.setattr("visiontrain.models.pickles.MOST_SECONDS", 0.0)
    with pytest.raises(UnreadableError, match="more than 0 seconds"):
        read(b"(" + b"N" * 500 + b"l.")
    allowance = Allowance(10)
    allowance.copy(10)
    with pytest.raises(UnreadableError, match="unfolds to far more"):
        allowance.copy(1)
