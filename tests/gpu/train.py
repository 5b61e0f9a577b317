"""A training loop of some layers, deterministic: prints the losses bit for bit and the time of a step.

usage: train.py [--steps N] [--workers N] [--spawn N] [--time] [--hold SECONDS]
"""
import argparse
import os
import time

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--spawn", type=int, default=0)
parser.add_argument("--width", type=int, default=2048)
parser.add_argument("--batch", type=int, default=4096)
parser.add_argument("--time", action="store_true")
parser.add_argument("--hold", type=float, default=0)
args = parser.parse_args()

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
import torch

torch.use_deterministic_algorithms(True)


def child(rank, results):
    x = torch.full((1024, 1024), float(rank + 1), device="cuda")
    free, total = torch.cuda.mem_get_info()
    results.put((rank, x.sum().item(), free, total))
    time.sleep(2)


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return args.batch * args.steps

    def __getitem__(self, i):
        generator = torch.Generator().manual_seed(i)
        return torch.randn(args.width, generator=generator)


def main():
    if args.spawn:
        context = torch.multiprocessing.get_context("spawn")
        results = context.Queue()
        children = [context.Process(target=child, args=(rank, results)) for rank in range(args.spawn)]
        for process in children:
            process.start()
        for _ in children:
            rank, total, free, card = results.get()
            print(f"child {rank}: sum {total} free {free} of {card}")
        for process in children:
            process.join()
    torch.manual_seed(7)
    model = torch.nn.Sequential(
        *[layer for _ in range(6) for layer in (torch.nn.Linear(args.width, args.width), torch.nn.GELU())],
        torch.nn.Linear(args.width, 10),
    ).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    if args.workers:
        batches = iter(torch.utils.data.DataLoader(Numbers(), batch_size=args.batch, num_workers=args.workers))
    losses, times = [], []
    for step in range(args.steps):
        if args.workers:
            x = next(batches).cuda(non_blocking=True)
        else:
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
        losses.append(loss.item())
    if args.time:
        times = sorted(times[5:])  # the first steps load code and choose algorithms
        print(f"step_ms {times[len(times) // 2] * 1e3:.4f}")
    else:
        print("losses " + " ".join(loss.hex() for loss in losses))
    if args.hold:
        print("holding", flush=True)
        time.sleep(args.hold)


if __name__ == "__main__":
    main()
