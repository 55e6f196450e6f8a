import pytest
import yaml

from visiontrain.config.document import default_yaml, mode_help, overview, settings_markdown
from visiontrain.config.load import load_config
from visiontrain.config.schema import MODES, SETTINGS, Config, settings_of

REMEDY = "write it anew with `python -m visiontrain.config.document`"


@pytest.mark.parametrize(
    ("path", "made"), [("cfg/default.yaml", default_yaml), ("docs/settings.md", settings_markdown)]
)
def test_the_committed_file_is_what_the_table_makes(repository, path, made):
    assert (repository / path).read_text(encoding="utf-8") == made(), REMEDY


@pytest.mark.parametrize("mode", [mode for mode in MODES if "cfg" in settings_of(mode)])
def test_the_default_file_gives_the_defaults_in_every_mode(repository, mode):
    path = repository / "cfg" / "default.yaml"
    config = load_config(mode, command_line=[f"cfg={path}"])
    assert {**config.values(), "cfg": None} == Config().values()


def test_the_default_file_holds_every_key():
    assert list(yaml.safe_load(default_yaml())) == list(SETTINGS)


@pytest.mark.parametrize("mode", MODES)
def test_help_lists_every_key_of_its_mode_and_no_other(mode):
    rows = [line.split()[0] for line in mode_help(mode).splitlines() if line.startswith("  ") and line[2] != " "]
    assert sorted(rows) == sorted(settings_of(mode))


@pytest.mark.parametrize("text", [overview(), *(mode_help(mode) for mode in MODES)])
def test_help_fits_the_width_of_a_terminal(text):
    assert max(map(len, text.splitlines())) <= 120


def test_a_key_and_the_column_beside_it_do_not_touch():
    for mode in MODES:
        for line in mode_help(mode).splitlines():
            key = line.split()[0] if line.startswith("  ") and line[2] != " " else None
            if key:
                takes = SETTINGS[key].takes()
                assert line[2:].startswith(f"{key} ")
                assert line[2 + len(key) :].lstrip().startswith(f"{takes} "), "the column is too narrow"


def test_the_overview_names_every_mode():
    assert all(f"\n  {mode} " in overview() for mode in MODES)
