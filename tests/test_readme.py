"""What the documents tell a reader to type is understood by the program as it is."""

from __future__ import annotations

import re
import shlex

import pytest

from visiontrain.config.load import load_config
from visiontrain.config.schema import MODES, SETTINGS

MODE_TABLE_EXTRAS = {"version", "help"}


@pytest.fixture(scope="module")
def readme(repository) -> str:
    return (repository / "README.md").read_text(encoding="utf-8")


def code_lines(text: str, language: str) -> list[str]:
    return [line for block in re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]


@pytest.mark.parametrize(
    "document", ["README.md", "docs/classification.md", "docs/from-your-yolo-trainer.md", "docs/predict.md"]
)
def test_every_command_of_a_document_is_valid(repository, document):
    text = (repository / document).read_text(encoding="utf-8")
    inline = re.findall(r"`(visiontrain \w+ [^`]*=[^`]*)`", text)
    commands = [shlex.split(line, comments=True) for line in [*code_lines(text, "sh"), *inline]]
    checked = [words for words in commands if words[:1] == ["visiontrain"] and len(words) > 1]
    assert len(checked) >= 6
    for _, *words in checked:
        task = [f"task={words.pop(0)}"] if words[0] in SETTINGS["task"].rules.choices else []
        load_config(words[0], command_line=[*task, *words[1:]])


def test_the_keys_that_are_said_to_be_the_same_renamed_or_absent_are_so(repository):
    text = (repository / "docs" / "from-your-yolo-trainer.md").read_text(encoding="utf-8")
    parts = {part.partition("\n")[0]: part for part in re.split(r"^###? ", text, flags=re.MULTILINE)}
    same = re.findall(r"`(\w+)`", parts["The same"].partition("The same name,")[0])
    assert len(same) > 60
    assert [key for key in same if key not in SETTINGS] == []
    absent = parts["Absent"]
    ours = {"masks", "keypoints", "obb", "orig_img"}  # of results
    assert [key for key in re.findall(r"`(\w+)`", absent) if key in SETTINGS and key not in ours] == []
    renamed = re.findall(r"^\| (`.*?) \| (.*?) \|", parts["Renamed"], re.MULTILINE)
    assert all(
        key not in SETTINGS for theirs, _ in renamed for key in re.findall(r"`(\w+)`", theirs) if key != "export"
    )
    assert all(key in SETTINGS for _, here in renamed for key in re.findall(r"`(\w+)`", here))
    assert [key for key in re.findall(r"`(\w+)`", parts["Only here"]) if key not in (*SETTINGS, *MODES)] == []
    told = set(re.findall(r"`(\w+)`", text))
    assert [key for key in SETTINGS if key not in told] == []


def python_blocks(text: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def test_the_loop_of_ones_own_runs_as_it_is_printed(readme, capsys):
    block = next(block for block in python_blocks(readme) if "plan_windows" in block)
    exec(block, {})
    lines = capsys.readouterr().out.splitlines()
    assert [line.rpartition(" {")[0] for line in lines] == ["0 64 True", "1 64 True", "2 22 True"]


@pytest.mark.slow
def test_the_model_from_python_runs_as_it_is_printed(readme, tmp_path, tiny_yolo, monkeypatch, small_network):
    block = next(block for block in python_blocks(readme) if 'Model("det-n")' in block)
    data = tiny_yolo(8)
    (data.parent / "my.yaml").write_bytes(data.read_bytes())
    monkeypatch.chdir(data.parent)
    quick = block.replace('"det-n"', repr(str(small_network))).replace("epochs=50", "epochs=1, imgsz=64, quiet=True")
    assert quick.count("imgsz=64") == 1
    exec(quick, {"__name__": "__main__"})


@pytest.mark.slow
def test_the_classifier_from_python_runs_as_it_is_printed(repository, tmp_path, tiny_folders, monkeypatch):
    text = (repository / "docs" / "classification.md").read_text(encoding="utf-8")
    (block,) = python_blocks(text)
    tiny_folders(classes=("0", "1"), root=tmp_path / "signs")
    monkeypatch.chdir(tmp_path)
    quick = block.replace("epochs=30", "epochs=1, quiet=True").replace("*.JPG", "*.png").replace("resnet18", "cls-n")
    assert quick.count("epochs=1") == 1
    exec(quick, {"__name__": "__main__"})


def test_every_make_target_of_the_readme_exists(readme, repository):
    makefile = (repository / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"(?:^|`)make ([a-z-]+)", readme, re.MULTILINE))
    assert {"train", "test", "help"} <= targets
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_make_help_lists_every_target_that_is_promised(repository):
    makefile = (repository / "Makefile").read_text(encoding="utf-8")
    helped = re.findall(r"^([a-z-]+):.*## ", makefile, re.MULTILINE)
    assert set(helped) >= {*("setup", "train", "val", "predict"), *("test", "test-slow", "lint", "bench", "clean")}


def test_the_readme_names_the_modes_that_exist(readme):
    table = readme.partition("## Modes")[2].partition("**Not there yet**")[0]
    named = {name for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}
    assert named == {*MODES, *MODE_TABLE_EXTRAS}


def test_links_between_documents_lead_somewhere(repository):
    for document in (repository / "README.md", repository / "docs" / "README.md", repository / "data" / "README.md"):
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", document.read_text(encoding="utf-8")):
            assert (document.parent / target).exists(), f"{document.name}: {target}"
