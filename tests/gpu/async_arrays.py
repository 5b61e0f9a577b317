"""A loop of some array work whose memory is ordered by streams, with what is installed of CuPy and JAX: prints sums bit for bit.

usage: async_arrays.py cupy|jax [--steps N]     exits with 77 if it is not installed
"""
import argparse
import os
import sys
import time

parser = argparse.ArgumentParser()
parser.add_argument("library", choices=["cupy", "jax"])
parser.add_argument("--steps", type=int, default=120)
args = parser.parse_args()

SIZE = 6144


def with_cupy(cupy):
    cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]
    random = cupy.random.RandomState(7)
    kept = [random.rand(SIZE, SIZE, dtype=cupy.float32) for _ in range(16)]
    cupy.cuda.Device().synchronize()
    print("ready", file=sys.stderr, flush=True)
    for step in range(args.steps):
        stream, other = streams[step % 2], streams[1 - step % 2]
        with stream:
            stream.wait_event(other.record())
            a = kept[step % 16]
            b = cupy.sqrt(cupy.abs(a * 0.5 + kept[(step + 5) % 16])) - cupy.roll(a, step + 1) * 0.5
            kept[step % 16] = b
            rest = [cupy.arange(1000 * (step % 7 + 1) + k) for k in range(20)]
            total = b.sum() + sum(r.sum() for r in rest)
            if step % 10 == 9:
                # On this stream: the null stream does not wait for streams that do not block it.
                print(step, float(total.get(stream=stream)).hex(), flush=True)
        if step % 10 == 9:
            time.sleep(0.05)
    cupy.cuda.Device().synchronize()
    print("end", float(sum(k.sum() for k in kept)).hex())


def with_jax(jax):
    import jax.numpy as jnp

    kept = [jax.random.uniform(jax.random.PRNGKey(i), (SIZE, SIZE)) for i in range(16)]
    work = jax.jit(lambda a, b, n: jnp.sqrt(jnp.abs(a * 0.5 + b)) - jnp.roll(a, n) * 0.5)
    kept[0].block_until_ready()
    print("ready", file=sys.stderr, flush=True)
    for step in range(args.steps):
        kept[step % 16] = work(kept[step % 16], kept[(step + 5) % 16], step + 1)
        if step % 10 == 9:
            print(step, float(kept[step % 16].sum()).hex(), flush=True)
            time.sleep(0.05)
    print("end", float(sum(k.sum() for k in kept)).hex())


os.environ.setdefault("XLA_PYTHON_CLIENT_ALLOCATOR", "cuda_async")
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
try:
    library = __import__(args.library)
except ImportError:
    sys.exit(77)
(with_cupy if args.library == "cupy" else with_jax)(library)
