"""What gives memory back before a request is refused."""

import atexit
import ctypes
import threading

from ullage import _library
from ullage._errors import UllageError

_RELIEF = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p, ctypes.c_uint64)
_lock = threading.Lock()
_registered = []  # (function, what the library calls)


def _in_use():
    found = (_library.read_stats(device) for device in range(_library.DEVICES))
    return sum(stats.in_use for stats in found if stats)


def add_callback(function, name=None):
    """Calls function(wanted) when a request of `wanted` bytes is short, before it is refused.

    It empties a cache of the program, and the request is tried again if that freed memory of any
    device's pool. Callbacks run in the order of their registration, on the thread whose request is
    short (a backward pass has threads of its own); what they allocate themselves is refused without
    further steps. name is for the report, by default the function's. An exception is printed and
    counts as nothing freed. At most 16.
    """
    if not callable(function):
        raise TypeError("{!r} is no callback: expected a function".format(function))
    if name is None:
        name = getattr(function, "__qualname__", type(function).__name__)

    def relieve(_, wanted):
        before = _in_use()
        function(wanted)
        return max(0, before - _in_use())

    kept = _RELIEF(relieve)
    with _lock:
        if any(one is function or one == function for one, _ in _registered):
            raise ValueError("{!r} is a callback already".format(function))
        status = _library.load().ullage_torch_add_callback(str(name).encode(), kept, None)
        if status == _library.E_FULL:
            raise UllageError("there are {} callbacks: no more fit".format(len(_registered)))
        _library.check(status, "a callback cannot be added ({})".format(status))
        _registered.append((function, kept))


def remove_callback(function):
    """Takes a callback out, and waits until no other thread is in it. ValueError if it is none."""
    with _lock:
        found = [one for one in _registered if one[0] is function or one[0] == function]
        if not found:
            raise ValueError("{!r} is no callback".format(function))
        _registered.remove(found[0])
    _library.load().ullage_torch_remove_callback(found[0][1], None)


@atexit.register
def _remove_all():
    """Tensors live longer than the interpreter: it must not be called any more then."""
    for function, _ in list(_registered):
        remove_callback(function)
