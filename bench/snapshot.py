#!/usr/bin/env python3
"""How long `ullage report` takes over a large snapshot of PyTorch's, and how much memory.

usage: snapshot.py [BUILD_DIR] [--entries N] [--frames N] [--protocol N]

Makes a snapshot of N entries (1,000,000) with N frames each (40; each entry has a list of its own, as PyTorch writes
it) by CPython's pickle, then reads it, and writes it again. Prints one line of JSON: seconds and the most resident
memory of each command (the best of three), with where that was.
"""
import argparse
import json
import os
import pickle
import random
import subprocess
import sys
import tempfile
import time

import where

MIB = 1 << 20
BASE = 0x7F0000000000


def make(entries, depth):
    """Blocks in slots of a MiB each, allocated and freed at random over a segment of 8 GiB."""
    dice = random.Random(1)
    frames = [{"name": f"function_{i}", "filename": f"/usr/lib/python3/site-packages/torch/part_{i % 50}.py", "line": i}
              for i in range(2000)]
    stacks = [[frames[(i * 7 + j * 13) % 2000] for j in range(depth)] for i in range(500)]
    now, free, live, trace = 1_700_000_000_000_000, list(range(8192)), [], []
    dice.shuffle(free)

    def add(action, slot, size, stack):
        trace.append({"action": action, "addr": BASE + slot * MIB, "size": size, "stream": 0, "time_us": now,
                      "compile_context": "N/A", "user_metadata": "", "frames": stack, "pool_id": (0, 0)})

    add("segment_alloc", 0, 8192 * MIB, list(stacks[0]))
    while len(trace) < entries:
        now += dice.randint(1, 50)
        if free and (len(live) < 1000 or dice.random() < 0.4):
            live.append((free.pop(), dice.randint(1, MIB)))
            add("alloc", *live[-1], list(dice.choice(stacks)))
        else:
            at = dice.randrange(len(live))
            live[at], live[-1] = live[-1], live[at]
            slot, size = live.pop()
            free.append(slot)
            stack = list(dice.choice(stacks))
            add("free_requested", slot, size, stack)
            add("free_completed", slot, size, stack)
    blocks = []
    sizes = dict(live)
    for slot in range(8192):
        size = sizes.get(slot, 0)
        for length, asked in ((-(-size // 512) * 512, size), (MIB - -(-size // 512) * 512, 0)):
            if length:
                blocks.append({"address": BASE + slot * MIB + (MIB - length if not asked else 0), "size": length,
                               "requested_size": asked, "state": "active_allocated" if asked else "inactive",
                               "frames": stacks[1] if asked else []})
    active = sum(b["size"] for b in blocks if b["state"] != "inactive")
    segment = {"device": 0, "address": BASE, "total_size": 8192 * MIB, "allocated_size": active, "active_size": active,
               "requested_size": sum(sizes.values()), "stream": 0, "segment_type": "large", "segment_pool_id": (0, 0),
               "is_expandable": False, "frames": stacks[0], "blocks": blocks}
    return {"segments": [segment], "device_traces": [trace], "allocator_settings": {}, "external_annotations": []}


def measure(command):
    """Seconds and MiB; the command must succeed. (It counts as this program's memory until it is executed, so the
    snapshot is made by another.)"""
    best = None
    for _ in range(3):
        begin = time.monotonic()
        process = os.posix_spawn(command[0], command, os.environ)
        _, status, usage = os.wait4(process, 0)
        seconds = time.monotonic() - begin
        if status != 0:
            sys.exit(f"{' '.join(command)}: status {status}")
        if best is None or seconds < best["seconds"]:
            best = {"seconds": round(seconds, 3), "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 3),
                    "mib": usage.ru_maxrss // 1024}
    return best


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("build", nargs="?", default=os.path.join(os.path.dirname(__file__), "../build/release"))
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--frames", type=int, default=40)
    parser.add_argument("--protocol", type=int, default=4)
    parser.add_argument("--make", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.make:
        with open(options.make, "wb") as file:
            pickle.dump(make(options.entries, options.frames), file, protocol=options.protocol)
        return
    with tempfile.TemporaryDirectory() as folder:
        path, copy = os.path.join(folder, "snapshot.pickle"), os.path.join(folder, "copy.pickle")
        subprocess.run([sys.executable, __file__, *sys.argv[1:], "--make", path], check=True)
        ullage = os.path.abspath(os.path.join(options.build, "ullage"))
        result = {"bench": "snapshot", "entries": options.entries, "frames": options.frames,
                  "protocol": options.protocol, "file_mib": os.path.getsize(path) // MIB,
                  "json": measure([ullage, "report", path, "-f", "json", "-o", "/dev/null"]),
                  "torch": measure([ullage, "report", path, "-f", "torch", "-o", copy]),
                  "copy_mib": os.path.getsize(copy) // MIB, **where.facts()}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
