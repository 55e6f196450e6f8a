"""The page of a run shows what there is, and says what is not."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest

from visiontrain.report.review import read_review
from visiontrain.report.run_page import Argument, Picture, RunPage, run_page, write_run_page

EVIL = "<script>alert('1')</script>&\""
COLUMNS = {
    "epoch": [1.0, 2.0],
    "time": [10.0, 20.0],
    "updates": [4.0, 8.0],
    "train/loss": [2.0, math.nan],
    "metrics/mAP50(B)": [0.1, 0.2],
    "t_data": [1.0, 1.0],
    "t_step": [6.0, 6.0],
    "t_val": [2.0, 2.0],
}


@pytest.fixture
def page(review_document):
    """A function that makes a page with everything; what is given replaces a part."""

    def make(**changed):
        review, faults = read_review(review_document())
        assert faults == []
        whole = RunPage(
            title="runs/detect/train",
            state="trained 2 of 2 epochs",
            is_done=True,
            missing=["plan.json: is damaged"],
            facts=[("model", "det-n")],
            warnings=["only 8 updates"],
            columns=COLUMNS,
            review=review,
            shots=[b"\xff\xd8pixels", None],
            plan=[("updates", "8")],
            windows=[("epoch 1", "4 × 8")],
            arguments=[Argument("lr0", "0.01", "default"), Argument("batch", "8", "command line")],
            environment=[("torch", "2.6")],
            pictures=[Picture("labels", b"\xff\xd8labels")],
        )
        return replace(whole, **changed)

    return make


def test_the_page_is_well_formed_and_fetches_nothing(page, checked):
    text = run_page(page())
    found = checked(text)
    links = [link for link in found.fetched if not link.startswith("data:image/jpeg;base64,")]
    assert links
    assert {link.removeprefix("#") for link in links} <= set(found.ids)  # all of them lead to a place of the page
    assert len(found.ids) == len(set(found.ids))
    assert not re.search(r"https?:|@import|url\(|fetch|XMLHttp|import\(", text)


def test_every_part_is_told(page):
    text = run_page(page())
    for told in (
        "trained 2 of 2 epochs",
        "only 8 updates",
        "plan.json: is damaged",
        "7 images, 21 labels",
        "95 % interval: 0.400 to 0.600",
        "command line",
        "4 × 8",
        "+0.125",
        "cannot be read any more",
        "1 missed, 1 false alarm, 1 wrong class",
        "waiting for data",
        "10.0%",  # 2 of 20 seconds
        "saving and the rest",
    ):
        assert told in text, told


def test_a_page_of_nothing_has_no_empty_chapters(checked):
    text = run_page(RunPage("runs/x", "no epoch has ended", is_done=False))
    checked(text)
    assert "<h2" not in text
    assert 'class="verdict bad"' in text


@pytest.mark.parametrize("part", ["columns", "review"])
def test_a_page_lacks_only_what_is_missing(page, checked, part):
    without = page(**{part: None, "shots": ()} if part == "review" else {part: None})
    titles = re.findall(r"<h2[^>]*>([^<]*)", run_page(without))
    everything = re.findall(r"<h2[^>]*>([^<]*)", run_page(page()))
    gone = {"columns": {"Curves", "Time"}, "review": {"Scores", "Score curves", "Confusion", "Kinds of error"}}[part]
    assert gone <= set(everything)
    assert not gone & set(titles)
    assert set(titles) < set(everything)


def test_names_and_texts_of_the_user_are_escaped(page, review_document, checked):
    names = [EVIL, f"{EVIL}2", "class 2"]
    changed = {"errors": [{"kind": EVIL, "says": EVIL, "count": 1, "gain": None}], "split": EVIL}
    review, faults = read_review(review_document(names=names, paths=(f"{EVIL}.jpg", "b"), **changed))
    assert faults == []
    evil = page(
        title=EVIL,
        state=EVIL,
        missing=[EVIL],
        facts=[(EVIL, EVIL)],
        warnings=[EVIL],
        review=review,
        plan=[(EVIL, EVIL)],
        windows=[(EVIL, EVIL)],
        arguments=[Argument(EVIL, EVIL, EVIL)],
        environment=[(EVIL, EVIL)],
        pictures=[Picture(EVIL, b"jpeg")],
        shots=[b"jpeg", None],
    )
    found = checked(run_page(evil))
    assert found.tags.count("script") == 1  # the page's own, the last
    assert "alert(" in "".join(found.text)


def test_classes_without_ground_truth_have_a_dash_that_sorts_last(page):
    row = re.search(r"<tr><th[^>]*>class 1</th>.*?</tr>", run_page(page())).group()
    assert '<td data-value="" style="background-size: 0.0% 100%">–</td>' in row
    assert '<td data-value="11.0">11</td>' in row


def test_a_page_of_a_thousand_classes_stays_small(page, review_document):
    review, faults = read_review(review_document(1000))
    assert faults == []
    assert len(run_page(page(review=review))) < 2_000_000


@pytest.mark.parametrize(("count", "has_numbers"), [(3, True), (25, False), (80, False)])
def test_confusions_of_few_classes_hold_their_numbers_and_of_many_only_shades(
    page, review_document, count, has_numbers
):
    review, _ = read_review(review_document(count))
    matrix = run_page(page(review=review)).partition('class="wide matrix"')[2].partition("</svg>")[0]
    assert len(re.findall(r"<rect x=", matrix)) == (count + 1) ** 2
    assert ('pointer-events="none">6<' in matrix) == has_numbers
    assert "class 0 taken for class 0: 6 (" in matrix


def test_the_page_is_written_whole_or_not_at_all(page, tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    write_run_page(path, page())
    before = path.read_text(encoding="utf-8")
    assert before == run_page(page())

    def interrupt(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(type(path), "replace", interrupt)
        with pytest.raises(KeyboardInterrupt):
            write_run_page(path, page(title="other"))
    assert path.read_text(encoding="utf-8") == before
    assert list(tmp_path.iterdir()) == [path]
