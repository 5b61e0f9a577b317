"""A training of some layers that is recorded from outside, and says of itself what PyTorch knows: the most that its
caching allocator held from the driver, and the time of a step.

usage: recorded.py [--steps N] [--leak BYTES]     prints one line of JSON
"""
import argparse
import json
import time

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--leak", type=int, default=0, help="bytes kept at every step")
args = parser.parse_args()
torch.manual_seed(7)
model = torch.nn.Sequential(
    *[layer for _ in range(8) for layer in (torch.nn.Linear(2048, 2048), torch.nn.GELU())], torch.nn.Linear(2048, 10)
).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
kept, times = [], []
for step in range(args.steps):
    x = torch.randn(4096, 2048, device="cuda")
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
times = sorted(times[10:])  # the first steps load code and choose algorithms
print(json.dumps({
    "step_ms": times[len(times) // 2] * 1e3,
    "reserved_peak": torch.cuda.max_memory_reserved(),
    "segments": torch.cuda.memory_stats()["segment.all.allocated"],
    "loss": loss.item(),
}))
