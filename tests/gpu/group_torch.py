"""A rank of an unmodified training with NCCL: steps of a product and an all-reduce, until a file exists.

usage: group_torch.py RANK WORLD STEPS STORE    one card each; prints the sum of the weights, the same with any number of suspensions
"""
import sys
import time

import torch
import torch.distributed as distributed

rank, world, steps, store = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
torch.cuda.set_device(rank % torch.cuda.device_count())
torch.use_deterministic_algorithms(False)
distributed.init_process_group("nccl", init_method="file://" + store, rank=rank, world_size=world)
torch.manual_seed(1)
weight = torch.randn(2048, 2048, device="cuda") / 45
for step in range(steps):
    torch.manual_seed(1000 * step + rank)
    x = torch.randn(512, 2048, device="cuda")
    gradient = x.T @ (x @ weight) / 512
    distributed.all_reduce(gradient)
    weight -= 1e-3 * gradient
    if step == 20:
        torch.cuda.synchronize()
        open(f"{store}.{rank}.ready", "w").close()
    if step % 50 == 0:
        torch.cuda.synchronize()
torch.cuda.synchronize()
print(f"rank {rank} sum {weight.double().sum().item():.17g}", flush=True)
time.sleep(0.2)
distributed.destroy_process_group()
