"""Stops one thread of a process, by ptrace(2), while its other threads go on: a server whose engine hangs."""

import contextlib
import ctypes
import os
import pathlib

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_LIBC.ptrace.restype = ctypes.c_long
_SEIZE, _INTERRUPT, _DETACH, _WALL = 0x4206, 0x4207, 17, 0x40000000


def _ptrace(request, thread):
    if _LIBC.ptrace(request, thread, None, None) != 0:
        error = ctypes.get_errno()
        raise PermissionError(error, os.strerror(error)) if error == 1 else OSError(error, os.strerror(error))


def threads_named(pid, name):
    return [int(task.name) for task in pathlib.Path(f"/proc/{pid}/task").iterdir()
            if (task / "comm").read_text().strip() == name]


@contextlib.contextmanager
def frozen_thread(pid, name):
    """The thread of that name does not run within the `with`. PermissionError where tracing is forbidden."""
    (thread,) = threads_named(pid, name)
    _ptrace(_SEIZE, thread)
    try:
        _ptrace(_INTERRUPT, thread)
        os.waitpid(thread, _WALL)  # until it has stopped; only a stopped thread can be detached
        yield thread
    finally:
        _ptrace(_DETACH, thread)
