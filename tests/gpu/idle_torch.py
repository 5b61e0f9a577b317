"""A training's pool that keeps what an evaluation needed once: idle_torch.py KEEP_MIB DONE_FILE STOP_FILE

Takes KEEP_MIB as tensors of 1 GiB through ullage's pool, drops them, makes DONE_FILE, and then works with 1 GiB until
STOP_FILE is there. Prints one line of JSON: sums before and after, which must be equal, and steps.
"""

import json
import os
import sys
import time

import ullage.torch

ullage.torch.use()
import torch  # noqa: E402 - the pool comes first

GIB = 1 << 30


def step(weights):
    return float((weights @ weights).sum(dtype=torch.float64))


keep, done, stop = int(sys.argv[1]) // 1024, sys.argv[2], sys.argv[3]
weights = torch.ones(1 << 14, 1 << 14, device="cuda") / (1 << 14)
first = step(weights)
pieces = [torch.empty(GIB, dtype=torch.uint8, device="cuda").fill_(1) for _ in range(keep)]
torch.cuda.synchronize()
del pieces
with open(done, "w"):
    pass
steps, last = 0, first
while not os.path.exists(stop):
    last = step(weights)
    steps += 1
    time.sleep(0.01)
print(json.dumps({"first": first, "last": last, "steps": steps}))
