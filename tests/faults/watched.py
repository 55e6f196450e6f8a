"""Watches all that Python does to the system; loaded by every Python process at its start, as `sitecustomize`.

Notes processes, connections and writes outside the folders in WATCH_ALLOWED in the file WATCH_LOG, and blocks the
network. The workers' own spawn is not among it: multiprocessing starts them below what is audited.
"""

import os
import sys

_log = os.environ.get("WATCH_LOG")
_allowed = tuple(os.environ.get("WATCH_ALLOWED", "").split(os.pathsep))
_writing = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_changes = {
    *("os.chmod", "os.chown", "os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.setxattr"),
    *("os.symlink", "os.truncate", "os.utime", "sqlite3.connect", "shutil.rmtree", "tempfile.mkstemp"),
}
_processes = {"subprocess.Popen", "os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn"}
_network = {"socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr", "socket.sendto", "urllib.Request"}


def _note(event, what):
    descriptor = os.open(_log, os.O_WRONLY | os.O_APPEND)
    os.write(descriptor, f"{event} {what}\n".encode(errors="replace"))
    os.close(descriptor)


def _is_elsewhere(path):
    if not isinstance(path, (str, bytes)):  # a descriptor
        return False
    path = os.path.abspath(os.fsdecode(path))  # noqa: PTH100 (links are not followed)
    return (
        path != os.devnull
        and path != _log
        and not any(path == one or path.startswith(one + os.sep) for one in _allowed)
    )


def _watch(event, arguments):
    if event in _processes:
        _note(event, arguments[1])
    elif event in _network or (event == "socket.connect" and isinstance(arguments[1], tuple)):
        _note(event, arguments)
        raise OSError("the network is blocked")
    elif event == "open":
        if isinstance(arguments[2], int) and arguments[2] & _writing and _is_elsewhere(arguments[0]):
            _note(event, arguments[0])
    elif event in _changes:
        for path in arguments[: 2 if event in ("os.rename", "os.link", "os.symlink") else 1]:
            if _is_elsewhere(path):
                _note(event, path)


if _log:
    sys.addaudithook(_watch)
