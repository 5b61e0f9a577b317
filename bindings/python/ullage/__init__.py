"""ullage: one memory line for a GPU program, from Python.

    import ullage
    ullage.torch.use(memory="4GiB")          # before the first CUDA tensor

    with ullage.guard(max_memory="2GiB", fallback=cache.clear):
        train_step()
    print(ullage.memory_info(), ullage.report())

Nothing is compiled and nothing beyond Python is needed; the pool is in libullage-torch.so, which is
found beside this package, where ullage is installed, or by ULLAGE_TORCH_LIBRARY. It is loaded when
it is first needed: sizes and the batcher work without it.
"""

from ullage import torch
from ullage._errors import OutOfMemory, StartedError, UllageError
from ullage.batcher import DynamicBatcher, MemoryCallback
from ullage.guard import guard
from ullage.memory import memory_info, report, reset_memory_stats, set_memory, stats
from ullage.shortage import add_callback, remove_callback
from ullage.sizes import parse_size, size_text

__all__ = [
    "DynamicBatcher",
    "MemoryCallback",
    "OutOfMemory",
    "StartedError",
    "UllageError",
    "add_callback",
    "guard",
    "memory_info",
    "parse_size",
    "remove_callback",
    "report",
    "reset_memory_stats",
    "set_memory",
    "size_text",
    "stats",
    "torch",
]
