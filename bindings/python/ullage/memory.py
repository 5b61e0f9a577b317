"""What is used, by whom, and why something was refused."""

import ctypes
import sys

from ullage import _library
from ullage.sizes import parse_size


def current_device(device=None):
    """The number of a device: as given, else PyTorch's current one, else 0."""
    if isinstance(device, int) and not isinstance(device, bool):
        return device
    if isinstance(device, str):
        name, _, number = device.partition(":")
        if name != "cuda" or (number and not number.isdigit()):
            raise ValueError("'{}' is no device: expected a number, or cuda:NUMBER".format(device))
        if number:
            return int(number)
    elif device is not None and getattr(device, "index", None) is not None:
        return device.index  # a torch.device
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return torch.cuda.current_device()
    return 0


def stats(device=None):
    """All that the pool of a device counts, by the names of include/ullage/stats.h.

    Empty before the device is used.
    """
    found = _library.read_stats(current_device(device))
    return {name: getattr(found, name) for name, _ in _library.STATS} if found else {}


def memory_info(device=None):
    """What the pool of a device holds, in bytes; zeros before it is used.

    current and peak are as in tf.config.experimental.get_memory_info: in use by tensors, now and at
    most. held and peak_held are pages taken from the device; available is what this program could
    have in use at most as things are now: under the limit, and with what others have left.
    device_free and device_total are None before the first use.
    """
    device = current_device(device)
    found = _library.read_stats(device) or _library.Stats()
    free, total = _library.device_memory(device)
    available = found.limit
    if free is not None:
        available = min(found.limit, found.held + free)
    return {
        "current": found.in_use,
        "peak": found.peak_in_use,
        "requested": found.requested,
        "held": found.held,
        "peak_held": found.peak_held,
        "limit": found.limit,
        "available": available,
        "largest_free": found.largest_free,
        "fragmentation": found.fragmentation,
        "device_free": free,
        "device_total": total,
    }


def reset_memory_stats(device=None):
    """Peaks, averages and counts begin anew from what is now."""
    if _library.loaded():
        _library.loaded().ullage_torch_stats_reset(current_device(device))


def set_memory(memory, device=None):
    """Changes the limit while running. Lowering gives free pages back, and refuses until it
    fits."""
    device = current_device(device)
    _library.open_pool(device)
    size = parse_size(memory, total=_library.device_memory(device)[1])
    status = _library.load().ullage_torch_set_limit(device, size)
    _library.check(status, "the limit of device {} cannot be {}".format(device, memory))


def report():
    """Why the last request was refused, if one was, then who holds what now; "" before the first
    use."""
    library = _library.loaded()
    if library is None:
        return ""
    text = ctypes.create_string_buffer(1 << 14)
    library.ullage_torch_report(text, len(text))
    return text.value.decode(errors="replace")
