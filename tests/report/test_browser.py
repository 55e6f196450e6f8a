"""The page works in a browser, from a file: by mouse, by keyboard and on a phone, light and dark."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from visiontrain.report.review import read_review
from visiontrain.report.run_page import Argument, Picture, RunPage, write_run_page
from visiontrain.report.thumbnails import as_jpeg

pytestmark = pytest.mark.slow

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
)
EVIL = "<script>document.title='run'</script><img src=x onerror=\"document.title='run'\">"
COLUMNS = {"epoch": [1.0, 2.0], "time": [1.0, 2.0], "train/loss": [2.0, 1.0], "lr/weight": [0.1, 0.2]}


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("needs Chromium and its driver (chromium and chromedriver on the path)")
    webdriver = pytest.importorskip("selenium.webdriver")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


def resize(browser, width, *, scheme="light"):
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


@pytest.fixture
def opened(browser, review_document, tmp_path):
    """A function that opens a page in the browser; afterwards nothing may stand in its console."""
    jpeg = as_jpeg(np.full((80, 100, 3), 128, np.uint8))

    def open_page(width=1200, *, scheme="light", **changed):
        review, faults = read_review(review_document(**changed))
        assert faults == []
        page = RunPage(
            title="runs/detect/" + "a-long-name" * 20,
            state="done",
            is_done=True,
            facts=[("data", "/a/path" * 30)],
            warnings=["w" * 300],
            columns=COLUMNS,
            review=review,
            shots=[jpeg] * len(review.gallery),
            plan=[("updates", "8, " * 100)],
            windows=[("epoch 1", "64, " * 200)],
            arguments=[Argument("data", "/a/path" * 30, "command line")],
            environment=[("system", "x" * 200)],
            pictures=[Picture("labels", as_jpeg(np.zeros((700, 1100, 3), np.uint8)))],
        )
        path = tmp_path / "größe report.html"
        write_run_page(path, page)
        resize(browser, width, scheme=scheme)
        browser.get(path.as_uri())
        return browser

    yield open_page
    assert browser.get_log("browser") == []


def column(browser, number):
    cells = "[...document.querySelector('table.sortable').tBodies[0].rows].map(r => r.cells[arguments[0]].textContent)"
    return browser.execute_script(f"return {cells}", number)


def press(browser, key):
    from selenium.webdriver.common.action_chains import ActionChains

    ActionChains(browser).send_keys(key).perform()


def tallies(browser):
    return browser.execute_script("return [...document.querySelectorAll('.tally')].map(t => t.textContent)")


def test_a_click_on_a_header_sorts_and_another_sorts_the_other_way(opened):
    browser = opened(names=["b", "none", "a10", "a9"])
    heads = browser.find_elements("css selector", "table.sortable thead button")
    heads[2].click()
    assert column(browser, 2) == ["0.900", "0.880", "0.870", "–"]
    heads[2].click()
    assert column(browser, 2) == ["0.870", "0.880", "0.900", "–"]  # what has no value stays at the end
    heads[0].click()
    assert column(browser, 0) == ["a9", "a10", "b", "none"]  # numbers in names by their value
    sorts = "return [...document.querySelectorAll('th[aria-sort]')].map(h => [h.textContent, h.ariaSort])"
    assert browser.execute_script(sorts) == [["class", "ascending"]]


def test_the_slider_judges_boxes_as_the_tables_do_and_anew_at_every_score(opened):
    browser = opened()
    assert tallies(browser) == ["1 missed, 1 false alarm, 1 wrong class"] * 2
    browser.execute_script(
        "const s = document.getElementById('score'); s.value = 0.1; s.dispatchEvent(new Event('input'))"
    )
    assert tallies(browser) == ["0 missed, 1 false alarm, 1 wrong class"] * 2
    browser.execute_script(
        "const s = document.getElementById('score'); s.value = 0.85; s.dispatchEvent(new Event('input'))"
    )
    assert tallies(browser) == ["2 missed, 0 false alarms, 0 wrong class"] * 2
    shown = "return [...document.querySelectorAll('figure:first-child g.found')].map(g => getComputedStyle(g).display)"
    assert browser.execute_script(shown) == ["inline", "none", "none", "none"]
    browser.find_element("id", "score-reset").click()
    assert tallies(browser) == ["1 missed, 1 false alarm, 1 wrong class"] * 2
    assert browser.find_element("id", "score-shown").text == "0.500"


def test_what_need_not_be_found_is_passed_over(opened, review_document):
    shot = review_document()["gallery"][0]
    shot = {**shot, "truth": [], "ignored": shot["truth"][:1], "crowds": [[78, 48, 100, 80, 0]]}
    browser = opened(gallery=[{**shot, "found": shot["found"][:2]}])
    assert tallies(browser) == ["0 missed, 0 false alarms, 0 wrong class"]


def test_the_browser_and_the_pairing_of_the_metrics_judge_alike(opened, review_document):
    """Random boxes of three classes, crowds and difficult ones among them, at five scores."""
    from visiontrain.metrics.outcomes import outcome_of
    from visiontrain.metrics.pairing import pair
    from visiontrain.report.worst import _found, _truth

    rng = np.random.default_rng(0)

    def boxes(count):
        low = rng.integers(0, 60, (count, 2))
        return np.concatenate([low, low + rng.integers(15, 40, (count, 2))], axis=1)

    def labelled(rows):
        return [[*row, int(rng.integers(3))] for row in rows.tolist()]

    shots = []
    for _ in range(20):
        truth = boxes(8)
        near = truth + rng.integers(-4, 5, truth.shape)
        found = np.concatenate([near, boxes(6)])
        scores = np.sort(rng.random(len(found)))[::-1]
        rows = [[*box, score, int(rng.integers(3))] for box, score in zip(found.tolist(), scores.tolist(), strict=True)]
        parts = {"truth": labelled(truth), "ignored": labelled(boxes(2)), "crowds": labelled(boxes(1)), "found": rows}
        shots.append({"path": "a.jpg", "width": 100, "height": 100, **parts})
    review, faults = read_review(review_document(gallery=shots))
    assert faults == []
    browser = opened(gallery=shots)
    for score in (0.05, 0.25, 0.5, 0.75, 0.95):
        script = (
            "const s = document.getElementById('score'); s.value = arguments[0]; s.dispatchEvent(new Event('input'))"
        )
        browser.execute_script(script, score)
        outcomes = [outcome_of(pair(_found(shot), _truth(shot), threshold=score)) for shot in review.gallery]
        told = [[int(word) for word in text.split() if word.isdigit()] for text in tallies(browser)]
        assert told == [[one.misses, one.false_alarms, one.wrong_classes] for one in outcomes]
        assert any(one.wrong_classes for one in outcomes) or score > 0.9


def test_the_keyboard_reaches_headers_and_slider(opened):
    from selenium.webdriver.common.keys import Keys

    browser = opened()
    reached = []
    for _ in range(60):
        press(browser, Keys.TAB)
        active = browser.switch_to.active_element
        reached.append(active.get_attribute("id") or active.text)
        if reached[-1] == "precision ↕" or active.text.startswith("precision"):
            press(browser, Keys.ENTER)
        if reached[-1] == "score":
            press(browser, Keys.ARROW_RIGHT)
            break
    assert column(browser, 1) == ["10", "12", "11"]
    assert reached[-1] == "score"
    assert browser.find_element("id", "score-shown").text == "0.505"


def test_kinds_of_boxes_are_hidden_and_shown(opened):
    browser = opened()
    box = browser.find_element("css selector", "input[value=false]")
    display = "return getComputedStyle(document.querySelector('g.found.false')).display"
    assert browser.execute_script(display) == "inline"
    box.click()
    assert browser.execute_script(display) == "none"
    box.click()
    assert browser.execute_script(display) == "inline"


def test_all_pictures_are_there(opened):
    browser = opened()
    browser.execute_script("document.querySelectorAll('img').forEach(image => image.loading = 'eager')")
    sizes = "return Promise.all([...document.images].map(i => i.decode().then(() => i.naturalWidth)))"
    assert browser.execute_script(sizes) == [100, 100, 1100]


@pytest.mark.parametrize("width", [320, 360, 1200])
@pytest.mark.parametrize("num_classes", [2, 80])
def test_nothing_is_wider_than_the_screen(opened, width, num_classes):
    browser = opened(width, names=[f"a_long_name_without_any_blank_{i}" for i in range(num_classes)])
    browser.execute_script("document.querySelectorAll('details').forEach(one => one.open = true)")
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width


def test_names_of_the_user_do_nothing(opened):
    browser = opened(names=[EVIL, f"{EVIL}2", "c"])
    assert browser.title.startswith("run: runs/detect/")
    assert column(browser, 0) == [EVIL, f"{EVIL}2", "c"]
    assert browser.execute_script("return document.scripts.length") == 1


@pytest.mark.parametrize(("scheme", "is_dark"), [("light", False), ("dark", True)])
def test_the_page_follows_light_and_dark(opened, scheme, is_dark):
    browser = opened(scheme=scheme)
    color = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    red, green, blue = json.loads(color.replace("rgb(", "[").replace(")", "]"))
    assert (red + green + blue < 200) == is_dark
