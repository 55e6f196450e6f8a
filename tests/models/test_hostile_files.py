import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("resource")  # which measures memory; not on Windows

MAKER = Path(__file__).with_name("hostile_files.py")


def what_happens(folder, *words):
    """The report on all hostile files, read in a process of its own."""
    (folder / "files").mkdir()
    done = subprocess.run(
        [sys.executable, MAKER, folder / "files", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize("words", [("fast",), pytest.param((), marks=pytest.mark.slow)])
@pytest.mark.slow
def test_hostile_files_run_nothing_and_end_in_one_line_soon_and_in_little_memory(tmp_path, words):
    report = what_happens(tmp_path, *words)
    assert len(report["files"]) > 500
    assert report["forbidden"] == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["files"]  # no sentinel, no run folder
    refused = [read for read in report["files"] if read["code"] != 0]
    assert len(refused) > len(report["files"]) - 20  # some are honest but for a changed number
    for read in refused:
        assert read["code"] == 2, read
        assert read["errors"].startswith("visiontrain convert: weights = "), read
        assert read["errors"].count("\n") == 1, read
    assert max(read["processor_seconds"] for read in report["files"]) < 20
    assert report["kilobytes"] < 1_000_000
