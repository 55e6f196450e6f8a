from __future__ import annotations

from visiontrain.findings import CODES, MOST_EXAMPLES, Findings, Tally


def some_findings():
    findings = Findings()
    for line in range(1, 8):
        findings.add("row-twice", "train", "a.txt", line, f"row {line}", image="a.png")
    findings.add("image-unreadable", "val", "b.png")
    findings.add("label-missing", "train", "folder", text="3 of 9", count=3)
    return findings


def test_all_are_counted_and_the_first_few_kept_in_order():
    findings = some_findings()
    assert findings.count("row-twice") == findings.count("row-twice", "train") == 7
    assert findings.count("row-twice", "val") == 0
    assert [finding.line for finding in findings.examples("row-twice")] == list(range(1, MOST_EXAMPLES + 1))
    assert findings.count("label-missing") == 3


def test_errors_come_first():
    assert [code for code, _, _ in some_findings()] == ["image-unreadable", "label-missing", "row-twice"]
    assert some_findings().has_errors
    warned = Findings()
    warned.add("row-twice", "train", "a.txt")
    assert not warned.has_errors


def test_a_line_tells_split_count_places_and_code():
    assert some_findings().lines()[:2] == [
        "val: 1 images that cannot be read, left out: b.png [image-unreadable]",
        "train: 3 images without a label file, used as background: folder (3 of 9), … [label-missing]",
    ]
    assert ", a.txt:5 (row 5), … [row-twice]" in some_findings().lines()[2]


def test_they_come_back_from_their_text_as_they_were():
    assert list(Findings.from_json(some_findings().to_json())) == list(some_findings())


def test_adding_others_counts_both_and_leaves_them_alone():
    one, other = some_findings(), some_findings()
    one.update(other)
    assert one.count("row-twice") == 14
    assert other.count("row-twice") == 7
    one.put("row-twice", "train", Tally())
    assert one.count("row-twice") == 14


def test_every_code_tells_what_becomes_of_what_was_met_after_a_number():
    for code, entry in CODES.items():
        assert code == code.lower()
        assert entry.says[0].islower()
        assert not entry.says.endswith(".")
