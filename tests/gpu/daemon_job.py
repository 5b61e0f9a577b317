"""A PyTorch job that shares a card: holds memory, works on all of it, and says whether every element came out right.

usage: daemon_job.py NAME GIB SECONDS     prints one line when its memory is there, one at its end
"""
import sys
import time

began = time.time()
import torch  # noqa: E402  the time to load it is part of what a user waits for

name, gib, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
torch.zeros(1, device="cuda")
loaded = time.time()
kept = [torch.full((1 << 28,), float(i), device="cuda") for i in range(gib)]
torch.cuda.synchronize()
there = time.time()
print(f"{name}: {gib} GiB are there after {there - began:.2f} s, {there - loaded:.2f} s of it for the memory", flush=True)
steps = 0
longest = 0.0
last = time.time()
while time.time() - there < seconds:
    for x in kept:
        x.add_(1)
    torch.cuda.synchronize()
    steps += 1
    now = time.time()
    longest, last = max(longest, now - last), now
wrong = sum(int((x != i + steps).sum()) for i, x in enumerate(kept))
print(f"{name}: {steps} steps, {wrong} elements wrong, longest step {longest:.1f} s", flush=True)
sys.exit(wrong != 0)
