"""A training of some layers that is recorded from outside, and says of itself what PyTorch knows: the most that its
caching allocator held from the driver, and the time of a step.

usage: recorded.py [--steps N] [--leak BYTES] [--width N] [--batch N]     prints one line of JSON
       recorded.py --turns ...    says "ready" when it has warmed up, then, for every line with a number on its standard
                                  input, makes that many steps and prints their times in ms as a line of JSON
"""
import argparse
import json
import sys
import time

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--leak", type=int, default=0, help="bytes kept at every step")
parser.add_argument("--width", type=int, default=2048)
parser.add_argument("--batch", type=int, default=4096)
parser.add_argument("--turns", action="store_true")
args = parser.parse_args()
torch.manual_seed(7)
layers = [layer for _ in range(8) for layer in (torch.nn.Linear(args.width, args.width), torch.nn.GELU())]
model = torch.nn.Sequential(*layers, torch.nn.Linear(args.width, 10)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
kept, times = [], []
WARM_UP = 10  # the first steps load code and choose algorithms


def step():
    x = torch.randn(args.batch, args.width, device="cuda")
    torch.cuda.synchronize()
    start = time.perf_counter()
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(x).float().square().mean()
    loss.backward()
    optimizer.step()
    torch.cuda.synchronize()
    times.append(time.perf_counter() - start)
    if args.leak:
        kept.append(torch.empty(args.leak, dtype=torch.uint8, device="cuda"))
    return loss


if args.turns:
    for _ in range(WARM_UP):
        step()
    print("ready", flush=True)
    for line in sys.stdin:
        times.clear()
        for _ in range(int(line)):
            step()
        print(json.dumps([seconds * 1e3 for seconds in times]), flush=True)
    sys.exit()
for _ in range(args.steps):
    loss = step()
times = sorted(times[WARM_UP:])
print(json.dumps({
    "step_ms": times[len(times) // 2] * 1e3,
    "reserved_peak": torch.cuda.max_memory_reserved(),
    "segments": torch.cuda.memory_stats()["segment.all.allocated"],
    "loss": loss.item(),
}))
