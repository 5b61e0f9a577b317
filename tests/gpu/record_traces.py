#!/usr/bin/env python3
"""Records what PyTorch programs ask the caching allocator for, in the format of bench/traces.

usage: record_traces.py OUT [--together N] [PROGRAM...]   all of traced_programs.py by default, N (4) at a time
       record_traces.py --try [PROGRAM...]                runs them, small, on the processor, and records nothing

OUT gets PROGRAM.csv.gz of each and recorded.jsonl, a line a program, with what PyTorch's own allocator did. Sizes are as
asked for (PyTorch's history has them before it rounds), and a block is freed when PyTorch may use it again: if it was
used on another stream, after that stream has passed. Each program is a process of its own. A program that
fails is told of on standard error, is not in OUT, and the status is 1. Needs a card, PyTorch 2.11 and, for some,
torchvision, transformers and torch_geometric.
"""

import argparse
import collections
import concurrent.futures
import gc
import gzip
import json
import os
import subprocess
import sys

try:
    import traced_programs
except ModuleNotFoundError as missing:
    sys.exit(f"record_traces.py: there is no module {missing.name!r} for {sys.executable}: expected PyTorch 2.11 there")

PROGRAMS = {program.__name__: program for program in traced_programs.PROGRAMS}
LONGEST = 240  # seconds for one program


def rows(history):
    """The lines of a trace; raises ValueError where the history has no beginning or does not fit together."""
    streams, live, count, begin = {}, {}, 0, None
    for event in history:
        if event["action"] not in ("alloc", "free_completed"):
            continue
        begin = event["time_us"] if begin is None else begin
        stream = streams.setdefault(event["stream"], len(streams))
        time = event["time_us"] - begin
        if event["action"] == "alloc":
            if event["addr"] in live:
                raise ValueError(f"address {event['addr']:#x} is given out twice")
            live[event["addr"]] = (count, event["size"], stream)
            yield time, "a", count, event["size"], stream
            count += 1
        else:
            if event["addr"] not in live:
                raise ValueError(f"address {event['addr']:#x} is freed and was never given out")
            name, size, stream = live.pop(event["addr"])
            yield time, "f", name, size, stream


def peak(lines):
    now = most = 0
    for _, action, _, size, _ in lines:
        now += size if action == "a" else -size
        most = max(most, now)
    return most


def record(name, out):
    """In a process of its own: plays the program, and writes its trace. Prints its line of recorded.jsonl."""
    import torch

    torch.manual_seed(7)
    torch.cuda.memory._record_memory_history("all", context=None, max_entries=4_000_000)
    PROGRAMS[name](traced_programs.Run("cuda", small=False))
    gc.collect()
    torch.cuda.synchronize()
    torch.empty(1, device="cuda")  # what waited for another stream is freed by the next request
    history = torch.cuda.memory._snapshot()["device_traces"][0]
    stats = torch.cuda.memory_stats()
    torch.cuda.memory._record_memory_history(None)
    lines = list(rows(history))
    if peak(lines) != stats["requested_bytes.all.peak"]:
        raise ValueError(f"the trace has a peak of {peak(lines)} bytes, PyTorch one of {stats['requested_bytes.all.peak']}")
    with gzip.GzipFile(os.path.join(out, f"{name}.csv.gz"), "wb", compresslevel=9, mtime=0) as file:
        file.write(b"time_us,action,id,size,stream\n")
        file.write("".join(f"{','.join(map(str, line))}\n" for line in lines).encode())
    print(json.dumps({
        "trace": name, "events": len(lines), "streams": len({line[4] for line in lines}),
        "peak_requested": peak(lines), "peak_alloc": stats["allocated_bytes.all.peak"],
        "peak_reserved": stats["reserved_bytes.all.peak"],
        "kinds": collections.Counter(event["action"] for event in history)}))


def start(name, out):
    """The program's line, or None."""
    try:
        done = subprocess.run([sys.executable, __file__, out, "--one", name], stdout=subprocess.PIPE, timeout=LONGEST)
    except subprocess.TimeoutExpired:
        print(f"record_traces.py: {name}: not done after {LONGEST} s", file=sys.stderr)
        return None
    lines = done.stdout.decode().splitlines()
    if done.returncode != 0 or not lines:
        print(f"record_traces.py: {name}: status {done.returncode}", file=sys.stderr)
        return None
    return lines[-1]


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n")[2].removeprefix("usage: "))
    parser.add_argument("--together", type=int, default=4)
    parser.add_argument("--try", action="store_true", dest="attempt")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("rest", nargs="*")
    args = parser.parse_intermixed_args()
    out = None if args.attempt else args.rest.pop(0) if args.rest else parser.error("expected a folder for the traces")
    names = [args.one] if args.one else args.rest or list(PROGRAMS)
    unknown = [name for name in names if name not in PROGRAMS]
    if unknown:
        sys.exit(f"record_traces.py: no program {unknown[0]!r}; there are {', '.join(PROGRAMS)}")
    if args.one:
        return record(args.one, out)
    if args.attempt:
        for name in names:
            PROGRAMS[name](traced_programs.Run("cpu", small=True))
            print(f"{name}: ran")
        return 0
    os.makedirs(out, exist_ok=True)
    with concurrent.futures.ThreadPoolExecutor(args.together) as pool:
        lines = list(pool.map(lambda name: start(name, out), names))
    with open(os.path.join(out, "recorded.jsonl"), "w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines if line)
    return 1 if None in lines else 0


if __name__ == "__main__":
    sys.exit(main())
