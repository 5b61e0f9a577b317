"""Memory set aside for a piece of the program before it runs."""

import ctypes
import sys

from ullage import _library
from ullage._errors import OutOfMemory, UllageError
from ullage.memory import current_device
from ullage.sizes import parse_size, size_text


class guard:
    """Sets max_memory aside when the block begins, so that the block does not run out in its
    middle.

        with ullage.guard(max_memory="2GiB", fallback=[cache.clear, smaller_batch]):
            train_step()

    max_memory is a size, or a share of the device, on top of what is in use: so much is taken from
    the pool now, and handed out to requests of this process until the block ends; what goes beyond
    it is an ordinary request. On shortage the fallbacks run in order, at most max_fallbacks of
    them, then it is tried once more; if that fails, OutOfMemory is raised, the block does not run,
    and nothing stays set aside. A fallback is called without arguments and gives memory back:
    clears a cache, makes the batch smaller.

    max_request refuses single requests above that size while the block runs, with the exception
    that tensors raise anyway: a bug's usual size. Guards nest: an inner one takes from what the
    outer one has left. A guard is ended by the thread that began it, and may be used again
    afterwards.
    """

    def __init__(
        self, max_memory=None, fallback=(), max_request=None, max_fallbacks=None, device=None
    ):
        if max_memory is None and max_request is None:
            raise ValueError("a guard needs max_memory, max_request, or both")
        self._memory, self._request, self._device = max_memory, max_request, device
        fallbacks = list(fallback) if isinstance(fallback, (list, tuple)) else [fallback]
        for function in fallbacks:
            if not callable(function):
                raise TypeError("{!r} is no fallback: expected a function".format(function))
        self._fallbacks = fallbacks[:max_fallbacks]
        for size in (max_memory, max_request):
            if size is not None:
                parse_size(size, total=100)  # a bad text is known before the block begins
        self._guard = None

    def __enter__(self):
        if self._guard is not None:
            raise UllageError("this guard is open already: make another one to nest them")
        device = current_device(self._device)
        _library.open_pool(device)
        total = _library.device_memory(device)[1]
        # A guard for max_request alone sets the smallest piece aside.
        size = 1 if self._memory is None else parse_size(self._memory, total=total)
        largest = 0 if self._request is None else parse_size(self._request, total=total)
        status, text = self._begin(device, size, largest)
        if status == _library.E_NO_MEMORY and self._fallbacks:
            for function in self._fallbacks:
                function()
            status, text = self._begin(device, size, largest)
        if status == _library.E_NO_MEMORY:
            tried = " after {} fallbacks".format(len(self._fallbacks)) if self._fallbacks else ""
            raise OutOfMemory(
                "guard: {} could not be set aside on device {}{}: {}".format(
                    size_text(size), device, tried, text
                )
            )
        _library.check(status, text)
        return self

    def __exit__(self, *exception):
        begun, self._guard = self._guard, None
        status = _library.load().ullage_torch_guard_end(begun)
        if status != _library.OK:
            self._guard = begun
            raise UllageError(
                "a guard ends in the thread that began it, and the innermost one first"
            )
        return False

    def _begin(self, device, size, largest):
        begun, message = ctypes.c_void_p(), ctypes.create_string_buffer(4096)
        status = _library.load().ullage_torch_guard_begin(
            device, size, largest, _stream(device), ctypes.byref(begun), message, len(message)
        )
        if status == _library.OK:
            self._guard = begun
        return status, message.value.decode(errors="replace")


def _stream(device):
    """The stream that PyTorch works on, whose memory is reused without waiting; else the default
    one."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    return torch.cuda.current_stream(device).cuda_stream
