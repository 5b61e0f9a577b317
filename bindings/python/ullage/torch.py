"""The pool as PyTorch's allocator, in one line."""

import os
import threading
import warnings

from ullage import _library
from ullage._errors import StartedError, UllageError

# Of the object behind CUDAPluggableAllocator, and what each of them is given. PyTorch 2.2 has all.
_CALLBACKS = {
    "set_record_stream_fn": "ullage_torch_record_stream",
    "set_reset_fn": "ullage_torch_empty_cache",
    "set_memory_fraction_fn": "ullage_torch_memory_fraction",
    "set_begin_allocate_to_pool": "ullage_torch_begin_pool",
    "set_end_allocate_to_pool_fn": "ullage_torch_end_pool",
    "set_release_pool": "ullage_torch_release_pool",
}
_GRAPHS = ("set_begin_allocate_to_pool", "set_end_allocate_to_pool_fn", "set_release_pool")

_lock = threading.Lock()
_allocator = None  # PyTorch holds the object behind it only
_settings = None


def in_use():
    """Is the pool PyTorch's allocator in this process?"""
    return _allocator is not None


def _reason_against(torch):
    """Why PyTorch's allocator cannot be changed any more; None if it can."""
    if getattr(torch.version, "hip", None) or not getattr(torch.version, "cuda", None):
        return "this PyTorch ({}) is not built for CUDA".format(torch.__version__)
    if torch.cuda._is_in_bad_fork():
        return "this process was forked from one that uses CUDA: start it with 'spawn'"
    if not torch.cuda.is_initialized():
        return None
    backend = torch.cuda.get_allocator_backend()
    if backend == "pluggable":
        return "another allocator was set already"
    held = sum(torch.cuda.memory_allocated(i) for i in range(torch.cuda.device_count()))
    if held:
        return "CUDA memory is in use already ({} bytes of tensors)".format(held)
    return "PyTorch has started CUDA already, and with it its own allocator ({})".format(backend)


def use(memory=None, growth=None, wait=0):
    """Makes the pool PyTorch's allocator. Call it before the first use of CUDA.

    memory: the most that the pool of a device may hold: "4GiB", "40%" of the device, bytes.
    growth=False takes all of it when a device is first used, True pages when they are needed. What
    lies outside the pool (the context, libraries) is not in it; `ullage run -m` bounds all of it.

    What is None is as the environment says: ULLAGE_MEMORY, ULLAGE_GROWTH, the configuration files,
    and ULLAGE_CONFIG of a parent (export_to_children). Where that says nothing either, the pool
    grows up to all that the device has, and without growth takes what is free, less what contexts
    and libraries need. TF_FORCE_GPU_ALLOW_GROWTH, true or false, wins over growth.

    wait: seconds that a request which is short waits for another thread to free, if one could.

    Raises StartedError, which names the reason, once CUDA memory is in use; ValueError for a bad
    value, also of the environment. A second call with the same settings does nothing. Programs that
    are spawned call it again.
    """
    import torch

    global _allocator, _settings
    wanted = (memory, None if growth is None else bool(growth), wait)
    with _lock:
        if _allocator is not None:
            if wanted == _settings:
                return
            raise StartedError(
                "ullage.torch.use(memory={!r}, growth={!r}, wait={!r}) was called already, and a "
                "second call cannot change that; ullage.set_memory() changes the limit".format(
                    *_settings
                )
            )
        reason = _reason_against(torch)
        if reason:
            raise StartedError(
                "{}; ullage.torch.use() must come before the first use of CUDA".format(reason)
            )
        path = _library.path()
        _library.configure(memory, growth, wait=wait)
        allocator = torch.cuda.memory.CUDAPluggableAllocator(
            path, "ullage_torch_alloc", "ullage_torch_free"
        )
        _register(torch, allocator.allocator())
        torch.cuda.memory.change_current_allocator(allocator)
        _allocator, _settings = allocator, wanted
    for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        if os.environ.get(name):
            warnings.warn(
                "{}={} is for PyTorch's own allocator, which is not used".format(
                    name, os.environ[name]
                ),
                stacklevel=2,
            )


def export_to_children():
    """Puts the settings in force into ULLAGE_CONFIG, for processes that are spawned from here.

    Their use(), without arguments, does then what this one's did, and they do not fall back to the
    whole card; cards are named by UUID, since a child may see them in another order. It asks the
    driver for its cards, after which children must be spawned, not forked.
    """
    os.environ["ULLAGE_CONFIG"] = _library.export()


def _register(torch, native):
    import ctypes

    library = _library.load()
    missing = [setter for setter in _CALLBACKS if not hasattr(native, setter)]
    if "set_record_stream_fn" in missing:
        raise UllageError(
            "PyTorch {} does not tell an allocator of Tensor.record_stream, without which memory "
            "could be reused too early: expected 2.2 or later".format(torch.__version__)
        )
    for setter, function in _CALLBACKS.items():
        if setter not in missing:
            address = ctypes.cast(getattr(library, function), ctypes.c_void_p).value
            getattr(native, setter)(address)
    if any(setter in missing for setter in _GRAPHS):
        # The library refuses requests in captures then, with an error that says so.
        warnings.warn("PyTorch {} has no CUDA graphs with this allocator".format(torch.__version__))
    else:
        library.ullage_torch_callbacks_registered()
