"""Unmodified PyTorch to be suspended: a captured graph that is replayed, or a tensor that two processes share.

usage: suspend_torch.py graph|ipc FILE     goes on until FILE exists, prints sums that tell whether all is right
"""
import os
import sys
import time

import torch
import torch.multiprocessing as multiprocessing


def wait(path):
    while not os.path.exists(path):
        time.sleep(0.02)


def graph(path):
    x = torch.zeros(1 << 24, device="cuda")
    weight = torch.eye(512, device="cuda")
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        y = (x.view(-1, 512) @ weight).view(-1) + 1
    torch.cuda.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        y = (x.view(-1, 512) @ weight).view(-1) + 1
        x.copy_(y)
    print("ready", flush=True)
    replays = 0
    while not os.path.exists(path):
        captured.replay()
        replays += 1
        if replays % 50 == 0:
            torch.cuda.synchronize()
    torch.cuda.synchronize()
    wrong = (x != float(replays)).sum().item()
    print(f"replays {'some' if replays > 10 else replays} wrong {wrong}")
    return wrong == 0


def child(queue, path, done):
    shared = queue.get()
    print("child ready", flush=True)
    wait(path)
    shared += 1
    torch.cuda.synchronize()
    print(f"child sum {shared.double().sum().item()}", flush=True)
    done.set()
    del shared


def ipc(path):
    multiprocessing.set_start_method("spawn")
    queue, done = multiprocessing.Queue(), multiprocessing.Event()
    process = multiprocessing.Process(target=child, args=(queue, path, done))
    process.start()
    shared = torch.full((1 << 26,), 2.0, device="cuda")
    own = torch.full((1 << 28,), 5.0, device="cuda")
    queue.put(shared)
    print("ready", flush=True)
    done.wait()
    process.join()
    print(f"sum {shared.double().sum().item()} own {own.double().sum().item()}")
    return shared.double().sum().item() == 3.0 * (1 << 26) and own.double().sum().item() == 5.0 * (1 << 28)


if __name__ == "__main__":
    sys.exit(0 if {"graph": graph, "ipc": ipc}[sys.argv[1]](sys.argv[2]) else 1)
