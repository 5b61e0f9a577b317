"""What a framework sees of a card under a budget, and whether it survives asking for too much.

usage: sees.py torch|jax|cupy WANTED_GIB
Prints one line: total and free as the framework says, the exception that a tensor of WANTED_GIB
raised, and whether a small one worked afterwards.
"""
import sys

framework, wanted = sys.argv[1], float(sys.argv[2])
count = int(wanted * 2**30 / 4)

if framework == "torch":
    import torch

    total = torch.cuda.get_device_properties(0).total_memory
    free, total_info = torch.cuda.mem_get_info(0)
    assert total == total_info, (total, total_info)
    try:
        torch.empty(count, dtype=torch.float32, device="cuda")
        raised = None
    except torch.cuda.OutOfMemoryError as error:
        raised = type(error).__name__
    small = torch.ones(1000, device="cuda").sum().item() == 1000
elif framework == "jax":
    import jax
    import jax.numpy as jnp

    device = jax.devices()[0]
    jnp.ones(8).block_until_ready()
    stats = device.memory_stats() or {}
    total, free = stats.get("bytes_limit", 0), stats.get("bytes_limit", 0) - stats.get("bytes_in_use", 0)
    try:
        jnp.zeros(count, dtype=jnp.float32).block_until_ready()
        raised = None
    except Exception as error:  # XlaRuntimeError: RESOURCE_EXHAUSTED
        raised = type(error).__name__ + (" RESOURCE_EXHAUSTED" if "RESOURCE_EXHAUSTED" in str(error) else "")
    small = float(jnp.ones(1000).sum()) == 1000
elif framework == "cupy":
    import cupy

    free, total = cupy.cuda.runtime.memGetInfo()
    try:
        cupy.empty(count, dtype=cupy.float32)
        raised = None
    except cupy.cuda.memory.OutOfMemoryError as error:
        raised = type(error).__name__
    small = float(cupy.ones(1000, dtype=cupy.float32).sum()) == 1000
else:
    sys.exit(f"sees.py: unknown framework {framework!r}, expected torch, jax or cupy")

print(f"{framework}: total {total} free {free} raised {raised} small tensor afterwards {'ok' if small else 'WRONG'}")
sys.exit(0 if raised and small else 1)
