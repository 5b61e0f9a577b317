"""libullage-torch.so through ctypes: where it is, and what its functions take (ullage_torch.h)."""

import ctypes
import os
import threading

from ullage._errors import OutOfMemory, StartedError, UllageError

NAME = "libullage-torch.so"
OK, E_INVALID, E_NO_MEMORY, E_NOT_FOUND, E_FULL, E_STARTED = 0, -1, -2, -5, -8, -10
DEVICES = 16  # most that the library knows: ULL_CARDS

_u64, _double = ctypes.c_uint64, ctypes.c_double

# The fields of struct ull_stats after size and version, in order (include/ullage/stats.h).
STATS = (
    ("in_use", _u64),
    ("peak_in_use", _u64),
    ("average_in_use", _u64),
    ("peak_to_average", _double),
    ("requested", _u64),
    ("peak_requested", _u64),
    ("waste", _u64),
    ("count", _u64),
    ("allocations", _u64),
    ("frees", _u64),
    ("refusals", _u64),
    ("largest", _u64),
    ("limit", _u64),
    ("reserve", _u64),
    ("held", _u64),
    ("peak_held", _u64),
    ("free", _u64),
    ("free_pages", _u64),
    ("pending", _u64),
    ("largest_free", _u64),
    ("fragmentation", _double),
    ("mapped", _u64),
    ("maps", _u64),
    ("unmaps", _u64),
    ("pages_created", _u64),
    ("pages_returned", _u64),
    ("waits", _u64),
    ("latency_p50_ns", _u64),
    ("latency_p99_ns", _u64),
    ("latency_p999_ns", _u64),
    ("latency_max_ns", _u64),
)


class Stats(ctypes.Structure):
    """struct ull_stats."""

    _fields_ = [("size", ctypes.c_uint32), ("version", ctypes.c_uint32)] + list(STATS)


_int, _size, _pointer, _text = ctypes.c_int, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_char_p
_SIGNATURES = {
    "ullage_torch_callbacks_registered": (None, []),
    "ullage_torch_configure": (_int, [_text, _int, _text, _u64, _text, _size]),
    "ullage_torch_export": (_int, [_text, _size, _text, _size]),
    "ullage_torch_add_callback": (_int, [_text, _pointer, _pointer]),
    "ullage_torch_remove_callback": (_int, [_pointer, _pointer]),
    "ullage_torch_open": (_int, [_int, _text, _size]),
    "ullage_torch_is_open": (_int, [_int]),
    "ullage_torch_stats": (_int, [_int, ctypes.POINTER(Stats)]),
    "ullage_torch_stats_reset": (_int, [_int]),
    "ullage_torch_set_limit": (_int, [_int, _u64]),
    "ullage_torch_trim": (_int, [_int, _u64, ctypes.POINTER(_u64)]),
    "ullage_torch_guard_begin": (
        _int,
        [_int, _u64, _u64, _pointer, ctypes.POINTER(_pointer), _text, _size],
    ),
    "ullage_torch_guard_end": (_int, [_pointer]),
    "ullage_torch_memory": (_int, [_int, ctypes.POINTER(_u64), ctypes.POINTER(_u64)]),
    "ullage_torch_report": (_size, [_text, _size]),
    "ullage_torch_free": (None, [_pointer, ctypes.c_ssize_t, _int, _pointer]),
    "ullage_torch_try_alloc": (
        _int,
        [ctypes.c_ssize_t, _int, _pointer, ctypes.POINTER(_pointer), _text, _size],
    ),
}

_lock = threading.Lock()
_loaded = None


def path():
    """The library's file. UllageError if there is none."""
    named = os.environ.get("ULLAGE_TORCH_LIBRARY")
    if named:
        return named
    here = os.path.dirname(os.path.abspath(__file__))
    candidates = [
        os.path.join(here, NAME),
        # PREFIX/share/ullage/python/ullage, and PREFIX/lib
        os.path.join(here, *[os.pardir] * 4, "lib", NAME),
        os.path.join("/usr/local/lib", NAME),
        os.path.join("/usr/lib", NAME),
    ]
    for candidate in candidates:
        if os.path.exists(candidate):
            return os.path.realpath(candidate)
    raise UllageError(
        "{} was not found in {}: install ullage, or set ULLAGE_TORCH_LIBRARY to its path".format(
            NAME, ", ".join(os.path.dirname(os.path.normpath(c)) for c in candidates)
        )
    )


def load():
    """The library, loaded once."""
    global _loaded
    with _lock:
        if _loaded is None:
            library = ctypes.CDLL(path())
            for name, (result, arguments) in _SIGNATURES.items():
                function = getattr(library, name)
                function.restype, function.argtypes = result, arguments
            _loaded = library
        return _loaded


def loaded():
    """The library if it was loaded already, else None."""
    return _loaded


def check(status, text):
    """Raises what belongs to a status that is not OK."""
    if status == OK:
        return
    if status == E_NO_MEMORY:
        raise OutOfMemory(text)
    raise (StartedError if status == E_STARTED else UllageError)(text)


def configure(memory=None, growth=None, device=None, wait=0):
    """What pools will be like. ValueError for a bad size, also of the environment; StartedError
    once there is a pool."""
    if not 0 <= wait <= 3600:
        raise ValueError("wait={!r}: expected seconds, 0 to 3600".format(wait))
    message = ctypes.create_string_buffer(1024)
    status = load().ullage_torch_configure(
        None if memory is None else str(memory).encode(),
        -1 if growth is None else bool(growth),
        None if device is None else device.encode(),
        int(wait * 1e9),
        message,
        len(message),
    )
    text = message.value.decode(errors="replace")
    if status == E_INVALID:
        raise ValueError(text)
    check(status, text)


def export():
    """The settings in force as text for ULLAGE_CONFIG."""
    text, message = ctypes.create_string_buffer(1 << 13), ctypes.create_string_buffer(1024)
    status = load().ullage_torch_export(text, len(text), message, len(message))
    check(status, message.value.decode(errors="replace"))
    return text.value.decode()


def open_pool(device):
    """Makes the pool of a device if it is not there."""
    message = ctypes.create_string_buffer(1024)
    status = load().ullage_torch_open(device, message, len(message))
    check(status, message.value.decode(errors="replace"))


def read_stats(device):
    """A Stats of the pool of a device, or None if there is none."""
    result = Stats()
    result.size = ctypes.sizeof(result)
    if _loaded is None or _loaded.ullage_torch_stats(device, ctypes.byref(result)) != OK:
        return None
    return result


def device_memory(device):
    """(free, total) bytes of the device of an existing pool, or (None, None)."""
    free, total = _u64(), _u64()
    if (
        _loaded is None
        or _loaded.ullage_torch_memory(device, ctypes.byref(free), ctypes.byref(total)) != OK
    ):
        return None, None
    return free.value, total.value
