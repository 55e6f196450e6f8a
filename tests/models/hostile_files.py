"""Make hostile files of weights, let `convert` read each, and print as JSON what happened.

A process of its own, because audit hooks stay. Arguments: an empty folder; `fast` for limits that are reached soon.
"""

from __future__ import annotations

import contextlib
import io
import json
import pickle
import struct
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

SENTINEL = "was_run"
FORBIDDEN = ("open", "exec", "compile", "import", "subprocess", "socket", "ctypes", "shutil", "pickle", "marshal")
FORBIDDEN_EVENTS = ("os.system", "os.remove", "os.exec", "os.posix_spawn", "os.putenv", "os.chmod")
CALLABLES = (
    *("os system", "posix system", "nt system", "os popen", "os execv", "os _exit", "os remove", "sys exit"),
    *("subprocess Popen", "subprocess check_output", "pty spawn", "shutil rmtree", "shutil copyfile"),
    *("builtins eval", "builtins exec", "builtins compile", "builtins open", "builtins __import__", "io open"),
    *("builtins getattr", "builtins setattr", "builtins breakpoint", "__builtin__ eval", "__builtin__ apply"),
    *("importlib import_module", "runpy run_path", "timeit timeit", "cProfile run", "pdb run", "code interact"),
    *("operator attrgetter", "operator methodcaller", "functools partial", "types FunctionType", "types CodeType"),
    *(
        "marshal loads",
        "pickle loads",
        "_pickle loads",
        "torch load",
        "torch.hub load",
        "torch.storage _load_from_bytes",
    ),
    *("ctypes CDLL", "socket create_connection", "urllib.request urlopen", "webbrowser open", "_io FileIO"),
    *("copyreg _reconstructor", "numpy load", "visiontrain.cli main", "torch._utils _rebuild_tensor_v2"),
)
MAGIC = pickle.dumps(0x1950A86A20F9469CFC6C, 2) + pickle.dumps(1001, 2) + pickle.dumps({"little_endian": True}, 2)
FLOATS = b"ctorch\nFloatStorage\n"


def text(value: str) -> bytes:
    encoded = value.encode()
    return b"X" + struct.pack("<I", len(encoded)) + encoded


def ways_to_call(named: str, argument: str) -> Iterator[bytes]:
    """A call of a global, by each operation that can make one."""
    module, name = named.split()
    line = f"{module}\n{name}\n".encode()
    yield b"\x80\x02c" + line + text(argument) + b"\x85R."
    yield b"\x80\x04" + text(module) + text(name) + b"\x93" + text(argument) + b"\x85R."
    yield b"\x80\x02c" + line + text(argument) + b"\x85\x81."
    yield b"(" + text(argument) + b"i" + line + b"."
    yield b"(c" + line + text(argument) + b"o."
    yield b"\x80\x04c" + line + text(argument) + b"\x85}\x92."
    yield b"}" + text("state_dict") + b"c" + line + b")R}" + text("__setstate__") + b"c" + line + b"sbs."


def storage(key: str = "0", count: int = 4) -> bytes:
    return b"(" + text("storage") + FLOATS + text(key) + text("cpu") + b"\x8a\x08" + struct.pack("<q", count) + b"tQ"


def tensor(shape: bytes, strides: bytes, offset: bytes = b"K\x00", given: bytes | None = None) -> bytes:
    """A mapping of one tensor."""
    call = b"ctorch._utils\n_rebuild_tensor_v2\n(" + (storage() if given is None else given)
    return b"}" + text("w") + call + offset + shape + strides + b"\x89}tRs."


def numbers(*values: int) -> bytes:
    return b"(" + b"".join(b"\x8a\x08" + struct.pack("<q", value) for value in values) + b"t"


def module(state: bytes) -> bytes:
    return b"cmodels\nNet\n)\x81q\x00}" + state + b"b."


def pickles() -> Iterator[bytes]:
    """Bombs, nonsense and tricks of the format itself."""
    many = 200_000
    yield b"]" * many + b"a" * (many - 1) + b"."
    yield b")" + b"\x85" * many + b"."
    yield b"}" + b")" + b"\x85" * many + b"Ns."
    yield b"(" * many + b"."
    yield b"(" * 4 * many + b"."
    yield b"\x8f" * 4 * many + b"."
    yield b"N" + b"2" * 4 * many + b"."
    yield b"]q\x00h\x00a."
    yield b"}q\x00" + text("model") + b"h\x00s."
    yield b"}q\x00" + text("a") + b"h\x00s" + text("b") + b"h\x00s."
    yield module(text("_modules") + b"}" + text("child") + b"h\x00ss")
    yield module(text("_modules") + b"}" + b"".join(text(f"child{i}") + b"h\x00s" for i in range(9)) + b"s")
    yield b"cm\nN\n)\x81q\x00h\x00N\x86b."  # its own state
    yield (
        b"}"
        + b"".join(
            b"q" + bytes([i]) + b"}" + text("a") + b"h" + bytes([i]) + b"s" + text("b") + b"h" + bytes([i]) + b"s"
            for i in range(60)
        )
        + b"."
    )
    yield b")" + b"2\x86" * 60 + b"q\x00}h\x00Ns."  # a key whose hash takes 2^60 steps
    yield b"(" + b"\x91q\x00(h\x00" * 40 + b"\x91."
    for code, length in ((b"\x8d", 2**62), (b"\x8e", 2**62), (b"\x96", 2**62), (b"\x95", 2**62)):
        yield b"\x80\x05" + code + struct.pack("<Q", length) + b"short"
    for code in (b"X", b"B", b"T", b"\x8b"):
        yield code + struct.pack("<I", 2**31 - 1) + b"short."
        yield code + struct.pack("<I", 2**32 - 1) + b"short."
    yield b"\x8b" + struct.pack("<i", 100_000) + b"\x7f" * 100_000 + b"."
    yield b"I" + b"9" * 100_000 + b"\n."
    yield b"L" + b"9" * 100_000 + b"L\n."
    yield b"F1e99999\n."
    yield b"Nr\xff\xff\xff\xff."
    yield b"Np-1\n."
    yield b"Np" + b"9" * 5000 + b"\n."
    yield b"h\x07."
    yield b"j\xff\xff\xff\x7f."
    yield b"g99\n."
    yield b"\x82\x01."
    yield b"\x83\x01\x00."
    yield b"\x84\xff\xff\xff\xff."
    yield b"Pfile:///etc/passwd\n."
    yield text("storage") + b"Q."
    yield b"\x97."
    yield b"\x98."
    yield b"\x80\xff."
    yield b"cos\nsystem\n."
    yield b"c" + b"a" * 100_000 + b"\nb\n)R."
    yield b"cos\nsystem\n}" + text("__class__") + b"Nsb."
    yield b"NN\x93."
    yield b"cbuiltins\nset\n(" + b"(K\x01t" * 100 + b"t\x85R."
    yield b"cbuiltins\nlist\nq\x01(" + b"K\x01" * 1000 + b"lq\x000" + b"h\x01h\x00\x85R0" * 5000 + b"N."
    yield (
        text("x" * 20_000)
        + b"q\x00c_codecs\nencode\nq\x01"
        + b"h\x01h\x00"
        + text("latin1")
        + b"\x86R0" * 1
        + (b"h\x01h\x00\x85R0" * 5000)
        + b"N."
    )
    collide = 2**61 - 1
    yield b"}(" + b"".join(b"\x8a\x0a" + (i * collide).to_bytes(10, "little") + b"N" for i in range(30_000)) + b"u."
    for operation in sorted({code.to_bytes(1, "little") for code in range(256)} - {b"."}):
        if operation in b"().0Rb12aeus\x81\x85\x86\x87\x90\x91\x92\x93toild\x94q\x98":
            yield operation + b"."
    yield (
        b"\x80\x02"
        + b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85C\x01b\x87R(K\x01K\x01\x85"
        + (
            b"cnumpy\ndtype\n"
            + text("O8")
            + b"\x89\x88\x87R\x89]cos\nsystem\n"
            + text(f"touch {SENTINEL}")
            + b"\x85Ratb."
        )
    )
    yield b"\x80\x04cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85C\x01b\x87R(K\x01" + (
        numbers(2**40, 2**20) + b"cnumpy\ndtype\n" + text("f4") + b"\x89\x88\x87R\x89C\x04abcdtb."
    )
    yield b"cnumpy.core.multiarray\nscalar\ncnumpy\ndtype\n" + text("O8") + b"\x85R" + text("x") + b"\x86R."


def tensors() -> Iterator[bytes]:
    """Tensors that are not where and what they say."""
    yield tensor(numbers(2**30, 2**30), numbers(0, 0))
    yield tensor(numbers(2**61, 2**61), numbers(1, 1))
    yield tensor(numbers(2), numbers(2**61))
    yield tensor(numbers(-1), numbers(1))
    yield tensor(numbers(2), numbers(-1))
    yield tensor(numbers(2), numbers(1), offset=b"J\xff\xff\xff\xff")
    yield tensor(numbers(2), numbers(1), offset=b"\x8a\x08" + struct.pack("<q", 2**62))
    yield tensor(numbers(*[1] * 1000), numbers(*[1] * 1000))
    yield tensor(numbers(2), numbers(1, 1))
    yield tensor(b"(\x88t", b"(K\x01t")
    yield tensor(b"(G@\x00\x00\x00\x00\x00\x00\x00t", b"(K\x01t")
    yield tensor(b"K\x02", b"K\x01")
    for key in ("../../../../etc/passwd", "/etc/passwd", "../data.pkl", "x" * 100_000, "\0", "7"):
        yield tensor(numbers(4), numbers(1), given=storage(key))
    for count in (2**40, 2**61, -1, 100):
        yield tensor(numbers(4), numbers(1), given=storage(count=count))
    yield tensor(numbers(4), numbers(1), given=text("storage"))
    yield tensor(numbers(4), numbers(1), given=b"cos\nsystem\n" + text(f"touch {SENTINEL}") + b"\x85R")


def zipped(data: bytes, *, name: str = "archive/data.pkl", compression: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        archive.writestr(name, data)
        archive.writestr("archive/data/0", bytes(16))
        archive.writestr("archive/version", b"3\n")
    return buffer.getvalue()


def streamed(data: bytes) -> bytes:
    return MAGIC + data + pickle.dumps(["0"], 2) + struct.pack("<q", 4) + bytes(16)


def files() -> Iterator[tuple[str, bytes]]:
    """Suffix and content of every hostile file."""
    forms = (lambda data: data, zipped, streamed)
    hostile = [way for named in CALLABLES for way in ways_to_call(named, f"touch {SENTINEL}")]
    for index, data in enumerate([*hostile, *pickles()]):
        yield ".pt", forms[index % 3](data)
    for data in tensors():
        yield ".pth", zipped(data)
        yield ".pth", streamed(data)
        yield ".pkl", data
    good = zipped(tensor(numbers(4), numbers(1)))
    yield ".pt", zipped(bytes(50_000_000), compression=zipfile.ZIP_DEFLATED)
    yield ".pt", zipped(b"N.", name="../../data.pkl")
    yield ".pt", zipped(b"N.", name="archive/other.pkl")
    for cut in (4, 30, 100, len(good) // 2, len(good) - 30, len(good) - 1):
        yield ".pt", good[:cut]
        yield ".pt", good[cut:]
        yield ".pt", streamed(tensor(numbers(4), numbers(1)))[: cut * 2 // 3]
    for place in range(10, len(good), 97):
        yield ".pt", good[:place] + b"\xff\xff\xff\xff" + good[place + 4 :]
    yield ".pt", b""
    yield ".pt", b"\x1f\x8b" + bytes(100)
    yield ".pt", bytes(257) + b"ustar" + bytes(250)
    yield ".pt", b"just a text\n" * 100
    for header in (b"{}", b"[]", b"{", b'{"w":{"dtype":"F32","shape":[1099511627776],"data_offsets":[0,4]}}', b"\xff"):
        yield ".safetensors", struct.pack("<Q", len(header)) + header + bytes(4)
        yield ".safetensors", struct.pack("<Q", 2**62) + header


def main() -> None:
    folder, is_fast = Path(sys.argv[1]), "fast" in sys.argv
    import encodings.cp437  # noqa: F401  of names in zip archives
    import resource

    import safetensors.torch  # noqa: F401  what is imported from here on, a file has brought in

    import visiontrain.run.convert  # noqa: F401
    from visiontrain import cli
    from visiontrain.models import pickles as limits
    from visiontrain.models import weights

    if is_fast:
        limits.MOST_STEPS, limits.MOST_SECONDS, weights.MOST_VISITS = 20_000, 1.0, 10_000
    paths = []
    for index, (suffix, data) in enumerate(files()):
        paths.append(folder / f"{index}{suffix}")
        paths[-1].write_bytes(data)
    forbidden: list[str] = []
    reading: list[str] = []

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        if not reading:
            return
        is_own = event == "open" and (arguments[0] == reading[0] or isinstance(arguments[0], int))
        is_forbidden = event.split(".")[0] in FORBIDDEN or event in FORBIDDEN_EVENTS
        if is_forbidden and not is_own:
            forbidden.append(f"{event} {arguments!r:.80} in {reading[0]}")

    sys.addaudithook(watch)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    report = []
    for path in paths:
        out, err = io.StringIO(), io.StringIO()
        start = time.process_time()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            reading.append(str(path))
            code = cli.main(["convert", f"weights={path}"])
            reading.clear()
        seconds = time.process_time() - start
        report.append({"file": path.name, "code": code, "errors": err.getvalue(), "processor_seconds": seconds})
    most_kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(json.dumps({"files": report, "forbidden": forbidden, "kilobytes": most_kilobytes}))


if __name__ == "__main__":
    main()
