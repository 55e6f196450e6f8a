"""From what the user typed to a `Config`, or to one error that holds every fault.

Three sources, the later wins: the defaults, a cfg file, and the command line or Python. Reading is strict in all of
them; nothing is guessed, dropped or created on disk.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from visiontrain.config.cfg_file import read_cfg_file
from visiontrain.config.schema import AUTO_BATCH, MODES, SETTINGS, WORDS, Config, settings_of
from visiontrain.config.setting import shown
from visiontrain.errors import ConfigError

# Names that users bring along from elsewhere and that no spelling distance would find.
_KNOWN_ELSEWHERE: Mapping[str, str] = {
    "accumulate": "nbs",
    "accumulation_steps": "nbs",
    "gradient_accumulation_steps": "nbs",
    "batch_size": "batch",
    "learning_rate": "lr0",
    "lr": "lr0",
    "lr_final": "lrf",
    "wd": "weight_decay",
    "clip_grad_norm": "clip",
    "grad_clip": "clip",
    "max_grad_norm": "clip",
    "half": "amp",
    "img": "imgsz",
    "image_size": "imgsz",
    "val_period": "val_interval",
    "num_workers": "workers",
}


def load_config(
    mode: str, *, command_line: Sequence[str] | None = None, python: Mapping[str, object] | None = None
) -> Config:
    """Read the settings of a command.

    Args:
        mode: A key of `MODES`.
        command_line: The words behind the mode: `key=value`, `key = value`, `--key value`, `--key=value`, `--flag`.
        python: Keyword arguments of the Python interface; values are native or texts as on the command line.

    Raises:
        ConfigError: If a key is unknown or not of this mode, a value is not what its key takes, or two settings
            contradict each other; all faults at once.
    """
    faults: list[str] = []
    typed: dict[str, Any] = {}
    origins: dict[str, str] = {}
    words, word_faults = _split_words(command_line or (), WORDS.get(mode, ()))
    faults += word_faults
    for origin, pairs in (("command line", words), ("python", list((python or {}).items()))):
        for key, raw in pairs:
            _read_into(typed, faults, mode, key, raw)
            origins[key] = origin
    path = typed.get("cfg")
    if path is not None:
        from_file, file_faults = _read_file(path, mode)
        faults += file_faults
        typed = {**from_file, **typed}
        origins = {**dict.fromkeys(from_file, "cfg file"), **origins}
    config = Config(**typed, mode=mode, origins={key: origins[key] for key in typed})
    faults += _contradictions(config)
    if faults:
        raise ConfigError(faults)
    return config


def wants_json(command_line: Sequence[str]) -> bool:
    """Whether json=True was typed, however wrong the other words are."""
    pairs, _ = _split_words(command_line)
    raws = [raw for key, raw in pairs if key == "json"]
    try:
        return any(SETTINGS["json"].read(raw) for raw in raws)
    except ValueError:
        return False


def _split_words(words: Sequence[str], keys: Sequence[str] = ()) -> tuple[list[tuple[str, object]], list[str]]:
    """Pairs of key and raw value, and the faults of form; a bare flag means True, a bare word is one of `keys`."""
    pairs: dict[str, object] = {}
    faults: list[str] = []
    keys_of_words = iter(keys)
    for typed, raw in _pairs(words):
        key = next(keys_of_words, None) if typed is None and not str(raw).startswith("=") else typed
        if key is None:
            faults.append(f"{shown(raw)}: is not key=value; write a key, an equals sign and a value, without blanks")
        elif key in pairs and pairs[key] != raw:
            faults.append(f"{shown(key)}: was typed twice, as {shown(pairs[key])} and {shown(raw)}; type it once")
        else:
            pairs[key] = raw
    return list(pairs.items()), faults


def _pairs(words: Sequence[str]) -> Iterator[tuple[str | None, object]]:
    place = 0
    while place < len(words):
        word, rest = words[place], words[place + 1 :]
        is_option = word.startswith("--") and len(word) > 2
        key, equals, value = word.removeprefix("--").partition("=")
        key = key.replace("-", "_") if is_option else key
        place += 1
        if equals:
            yield (key, value) if key else (None, word)
        elif rest[:1] == ["="]:
            yield key, rest[1] if len(rest) > 1 else ""
            place += 2
        elif is_option and rest and _is_value_of(key, rest[0]):
            yield key, rest[0]
            place += 1
        else:
            yield (key, True) if is_option else (None, word)


def _is_value_of(key: str, word: str) -> bool:
    """Whether `word` behind `--key` is its value and not the next setting."""
    if word.startswith("--") or word.partition("=")[0] in SETTINGS:
        return "=" not in word and not word.startswith("--")
    setting = SETTINGS.get(key)
    if setting is None or setting.types != ("bool",):
        return True
    try:
        setting.read(word)
    except ValueError:
        return False
    return True


def _read_into(
    values: dict[str, Any],
    faults: list[str],
    mode: str,
    key: str,
    raw: object,
    *,
    where: str = "",
    beside: Collection[str] = (),
) -> None:
    """Read one entry; `where` names its place in a file, `beside` the keys of that file."""
    fault = _fault_of_key(key, mode, is_file=bool(where), beside=beside)
    if fault is not None:
        faults.append(where + fault)
        return
    try:
        values[key] = SETTINGS[key].read(raw)
    except ValueError as error:
        faults.append(f"{where}{error}")


def _read_file(path: str, mode: str) -> tuple[dict[str, Any], list[str]]:
    """The file's values for this mode, and its faults."""
    values: dict[str, Any] = {}
    entries, faults = read_cfg_file(path)
    beside = {entry.key for entry in entries}
    for entry in entries:
        _read_into(values, faults, mode, entry.key, entry.raw, where=f"{entry.where}: ", beside=beside)
        if entry.key == "cfg" and values.pop("cfg", None) is not None:
            faults.append(f"{entry.where}: cfg = {shown(entry.raw)} names another file; a cfg file cannot hold one")
    keys = settings_of(mode)
    return {key: value for key, value in values.items() if key in keys}, faults


ALMOST_THE_SAME = 0.85
"""Likeness of two keys from which one is taken for a slip of the other."""


def _fault_of_key(key: str, mode: str, *, is_file: bool, beside: Collection[str]) -> str | None:
    setting = SETTINGS.get(key)
    if setting is None:
        return _unknown(key, mode)
    if mode in setting.rules.modes:
        return None
    meant = difflib.get_close_matches(key, settings_of(mode), n=1, cutoff=ALMOST_THE_SAME)
    if meant and meant[0] not in beside:  # more likely a slip than a key of another mode, in a file too
        return f"{key}: is not a key of {mode}; the nearest is {meant[0]}"
    if not is_file:
        known = [name for name in MODES if name in setting.rules.modes] or list(setting.rules.modes)
        return f"{key}: is not a key of {mode}; it is known in {', '.join(known)}; leave it out here"
    return None


def _unknown(key: str, mode: str) -> str:
    usable = settings_of(mode)
    lower = key.lower()
    hint = _KNOWN_ELSEWHERE.get(lower)
    if hint == "nbs":
        return f"{key}: is not a key; use nbs, the images per optimizer step (nbs / batch micro-batches make one)"
    nearest = [hint] if hint in usable else difflib.get_close_matches(lower, usable, n=1)
    if not nearest:
        nearest = difflib.get_close_matches(lower, SETTINGS, n=1)
    if nearest:
        return f"{shown(key)}: is not a key; the nearest is {nearest[0]}"
    return f"{shown(key)}: is not a key; visiontrain help {mode} lists them"


def _contradictions(config: Config) -> list[str]:
    """Settings that are right one by one and wrong together."""
    faults = []
    for key in ("project", "name"):
        if config.save_dir is not None and getattr(config, key) is not None:
            faults.append(f"{key}: has no effect beside save_dir, which names the run folder exactly; leave one out")
    if config.run is not None and config.project is not None:
        faults.append("project: has no effect beside run, which names the run folder; leave one out")
    if config.save_conf and not config.save_txt:
        faults.append("save_conf: adds scores to the files of save_txt, which is off; add save_txt=True")
    if config.batch == AUTO_BATCH and config.mode not in ("train", "plan", "verify"):
        faults.append(f"batch = auto: is measured for training, not for {config.mode}; type a number or leave it out")
    if not config.resume:  # which has a batch of its own, and is not read yet
        faults += contradictions_of_processes(config)
    if config.val_interval != 1 and not config.val:
        faults.append("val_interval: has no effect with val=False; leave one out")
    return faults


def processes_asked_for(config: Config) -> int:
    """As many as were typed, or one for each device; not those that torchrun once gave to a run that goes on."""
    return max(config.processes if config.is_typed("processes") else 1, len(config.device.split(",")))


def contradictions_of_processes(config: Config) -> list[str]:
    """Numbers of processes, devices and images that cannot go together, one sentence each."""
    devices = config.device.split(",")
    processes = processes_asked_for(config)
    faults = []
    if len(devices) > 1 and config.mode not in ("train", "plan"):
        faults.append(
            f"device = {config.device}: several devices train together, and {config.mode} runs on one; name one"
        )
    elif len(devices) > 1 and config.is_typed("processes") and config.processes != len(devices):
        faults.append(
            f"processes = {config.processes}: device = {config.device} names {len(devices)}, one for each process; "
            "leave processes out"
        )
    if len(set(devices)) < len(devices):
        faults.append(f"device = {config.device}: names one twice; each process needs its own")
    if config.batch == AUTO_BATCH and processes > 1:
        faults.append(
            f"batch = auto: is measured in one process, and there are {processes}; type the images that all hold at "
            "once"
        )
    elif config.batch != AUTO_BATCH and config.mode in ("train", "plan") and processes > config.batch:
        faults.append(
            f"processes = {processes}: share the images of a micro-batch, and with batch = {config.batch} some would "
            "never have one; raise batch, or take fewer"
        )
    return faults
