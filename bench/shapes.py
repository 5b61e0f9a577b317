#!/usr/bin/env python3
"""How much the pool holds for programs of other shapes than the recorded ones, as one line of JSON.

usage: shapes.py [BUILD_DIR] [--seeds N] [--keep DIR] [SHAPE...]      build/release, 4 seeds, all shapes by default

The traces are made up: of each shape one a seed. Each is played over the host device: once, growing and without a
limit; four times over one pool, of which the last repetition counts; and once with a limit of 1.02 of its peak. Nothing
in the pool may be tuned to them. --keep: leave the traces there.
"""

import argparse
import gzip
import json
import os
import random
import subprocess
import sys
import tempfile

import where

MIB = 1 << 20


class Trace:
    """What a program asked for and freed, in the format of bench/traces."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.rows = []
        self.sizes = {}  # of what is in use: (bytes, stream)
        self.count = self.time = 0

    def get(self, size, stream=0):
        name, size = self.count, max(1, int(size))
        self.count += 1
        self.time += self.random.randint(1, 40)
        self.rows.append(f"{self.time},a,{name},{size},{stream}")
        self.sizes[name] = (size, stream)
        return name

    def free(self, *names):
        for name in names:
            size, stream = self.sizes.pop(name)
            self.time += self.random.randint(1, 20)
            self.rows.append(f"{self.time},f,{name},{size},{stream}")

    def size(self, name):
        return self.sizes[name][0]

    def passing(self, size):
        self.free(self.get(size))

    def write(self, path):
        self.free(*list(self.sizes))
        with gzip.open(path, "wt", compresslevel=1) as out:
            out.write("time_us,action,id,size,stream\n" + "\n".join(self.rows) + "\n")


def caches(t):
    """A language model that answers six requests at a time; keys and values grow by a token a step, by concatenation."""
    layers, width, answers = 16, 2048, []
    for _ in range(layers):
        t.get(width * width * 8), t.get(width * width * 16)
    t.get(32000 * width * 2)
    for _ in range(160):
        while len(answers) < 6:
            length = t.random.randint(32, 1500)
            kept = [[t.get(length * width * 2) for _ in range(2)] for _ in range(layers)]
            answers.append({"now": length, "end": length + t.random.randint(10, 400), "kept": kept})
        for answer in list(answers):
            answer["now"] += 1
            for pair in answer["kept"]:
                token, projected = t.get(width * 2), t.get(3 * width * 2)
                for i in range(2):
                    longer = t.get(answer["now"] * width * 2)
                    t.free(pair[i])
                    pair[i] = longer
                scores, shares = t.get(16 * answer["now"] * 4), t.get(16 * answer["now"] * 2)
                t.free(scores, shares, projected)
                t.passing(width * 8)
                t.free(token)
            t.passing(32000 * 4)
            if answer["now"] >= answer["end"]:
                t.free(*[name for pair in answer["kept"] for name in pair])
                answers.remove(answer)


def images(t):
    """An encoder and decoder with connections across, on images of all sizes."""
    weights = [64 * 4 * 4**i * 9 for i in range(6)]
    for size in weights:
        t.get(size * 4), t.get(size * 8)
    for _ in range(60):
        height, width = (t.random.randrange(200, 1300, 8) for _ in range(2))
        batch, channels = t.random.randint(1, 4), 32
        kept = [t.get(batch * 3 * height * width * 4)]
        for _ in range(5):
            for _ in range(3):
                workspace = t.get(t.random.choice([0.5, 1, 4, 16]) * MIB)
                kept.append(t.get(batch * channels * height * width * 2))
                t.free(workspace)
                kept += [t.get(channels * 4), t.get(channels * 4)]
            height, width, channels = height // 2, width // 2, channels * 2
        for _ in range(5):
            height, width, channels = height * 2, width * 2, channels // 2
            up = t.get(batch * channels * 2 * height * width * 2)
            kept.append(t.get(batch * channels * 2 * height * width * 2))
            t.free(up)
            kept.append(t.get(batch * channels * height * width * 2))
        gradient, gradients = None, []
        while kept:
            name = kept.pop()
            following = t.get(t.size(name))
            if t.random.random() < 0.4:
                t.passing(t.size(name))
            if gradient is not None:
                t.free(gradient)
            gradient = following
            t.free(name)
            if t.random.random() < 0.2 and len(gradients) < 6:
                gradients.append(t.get(weights[len(gradients)] * 4))
        t.free(gradient, *gradients)


def foreach(t):
    """An optimizer that does each of its operations for all parameters at once."""
    sizes = [int(4 * 10 ** t.random.uniform(2, 7.3)) for _ in range(180)]
    steps = [[4 * 10 ** t.random.uniform(3, 7.2) for _ in range(120)] for _ in range(3)]
    state = [t.get(size) for size in sizes]
    for step in range(12):
        kept = [t.get(size) for size in steps[step % 3]]
        gradients = []
        for i, size in enumerate(reversed(sizes)):
            gradients.append(t.get(size))
            if kept:
                t.free(kept.pop())
            if i % 3 == 0:
                t.passing(size)
        if step == 0:
            state += [t.get(size) for size in sizes * 2]
        first, second = [t.get(size) for size in sizes], [t.get(size) for size in sizes]
        t.free(*first)
        third = [t.get(size) for size in sizes]
        t.free(*second, *third)
        if t.random.random() < 0.5:
            gradients.reverse()
        t.free(*gradients)


def shards(t):
    """Parameters in shards, gathered on a second stream when they are needed, two layers ahead."""
    layers = 32
    sizes = [int(t.random.choice([1, 1.01, 0.77]) * t.random.randint(20, 60) * MIB) for _ in range(layers)]
    for size in sizes:
        t.get(size // 8), t.get(size // 8 * 6)
    for _ in range(14):
        length, gathered, kept = t.random.randint(128, 2048), {}, []

        def need(layer):
            if 0 <= layer < layers and layer not in gathered:
                gathered[layer] = t.get(sizes[layer], 1)

        for layer in range(layers):
            for ahead in range(3):
                need(layer + ahead)
            kept.append([t.get(length * 8192) for _ in range(4)])
            scores, hidden = t.get(length * length * 16), t.get(length * 22016)
            t.free(scores, hidden, gathered.pop(layer))
        for layer in reversed(range(layers)):
            for ahead in range(3):
                need(layer - ahead)
            gradient, hidden = t.get(sizes[layer] * 2), t.get(length * 22016)
            reduced = t.get(sizes[layer] // 8 * 2, 1)
            t.free(hidden, gradient, *kept.pop(), gathered.pop(layer), reduced)


def experts(t):
    """A mixture of experts: what each of them gets differs from layer to layer and from step to step."""
    tokens, width = 4096, 1024
    for _ in range(96):
        t.get(width * 4 * width * 2)
    for _ in range(16):
        kept = []
        for _ in range(12):
            kept += [t.get(tokens * width * 2), t.get(tokens * 16 * 4)]
            shares, outputs = [t.random.expovariate(1) for _ in range(16)], []
            for share in shares:
                own = max(1, int(2 * tokens * share / sum(shares)))
                x, hidden, active = t.get(own * width * 2), t.get(own * width * 8), t.get(own * width * 8)
                outputs.append(t.get(own * width * 2))
                t.free(hidden)
                kept += [x, active]
            kept.append(t.get(tokens * width * 2))
            t.free(*outputs)
        while kept:
            name = kept.pop()
            gradient = t.get(t.size(name))
            t.free(name)
            if t.random.random() < 0.5:
                t.passing(t.size(gradient))
            t.free(gradient)


def phases(t):
    """Phases of random sizes, of which a few survive."""
    kept = []
    for _ in range(40):
        names = [t.get(2 ** t.random.uniform(8, 25)) for _ in range(t.random.randint(50, 300))]
        t.random.shuffle(names)
        cut = int(len(names) * 0.93)
        t.free(*names[:cut])
        kept += names[cut:]
        while len(kept) > 120:
            t.free(kept.pop(t.random.randrange(len(kept))))


def resizing(t):
    """Sequences that are longer with each step, and checkpoints that stay for a while."""
    kept = []
    for step in range(80):
        length, names = 64 + step * 24, []
        for _ in range(12):
            names += [t.get(8 * length * 768 * 2) for _ in range(5)] + [t.get(8 * 12 * length * length * 2)]
            t.passing(8 * 12 * length * length * 4 if length < 1024 else 8 * length * 3072 * 4)
        if step % 7 == 0:
            kept.append(t.get(t.random.randint(1, 90) * MIB // 3))
        if len(kept) > 5:
            t.free(kept.pop(0))
        t.free(*reversed(names))


def servers(t):
    """Eight streams with models of their own, in turns by chance."""
    models = [
        [t.random.choice([1, 2, 3, 5, 8, 13]) * t.random.randint(1, 1 << t.random.randint(10, 22))
         for _ in range(t.random.randint(20, 60))]
        for _ in range(8)
    ]
    for _ in range(48):
        t.get(t.random.randint(1, 40) * MIB)
    states = [None] * 8
    for _ in range(60000):
        stream = t.random.randrange(8)
        state = states[stream]
        if state is None:
            states[stream] = {"at": 0, "kept": [], "batch": t.random.choice([1, 2, 4, 8])}
        elif state["at"] < len(models[stream]):
            kept = state["kept"]
            kept.append(t.get(models[stream][state["at"]] * state["batch"] // 4 + 1, stream))
            state["at"] += 1
            if len(kept) > 3 and t.random.random() < 0.8:
                t.free(kept.pop(t.random.randrange(len(kept))))
        elif state["kept"]:
            t.free(state["kept"].pop())
        else:
            states[stream] = None


def middling(t):
    """600 to 900 of 0.9 to 5 MiB; half of what is freed is the newest, half any."""
    names = []
    for _ in range(30000):
        if len(names) < 600 or t.random.random() < 0.5:
            names.append(t.get(t.random.uniform(0.9, 5) * MIB))
        else:
            t.free(names.pop(t.random.randrange(len(names)) if t.random.random() < 0.5 else -1))


def small(t):
    """Nothing above half a MiB; now and then two thirds of all go."""
    names = []
    for i in range(60000):
        if len(names) < 5000 or t.random.random() < 0.49:
            names.append(t.get(2 ** t.random.uniform(2, 19)))
        else:
            t.free(names.pop(t.random.randrange(len(names))))
        if i % 9000 == 8999:
            t.random.shuffle(names)
            cut = len(names) * 2 // 3
            t.free(*names[:cut])
            names = names[cut:]


SHAPES = [caches, images, foreach, shards, experts, phases, resizing, servers, middling, small]


def play(ullage, path, *options):
    command = [ullage, "replay", path, "--pool", "--device", "host", "--growth", "-o", "json", *options]
    # What was refused is counted; the report of each would only be in the way.
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    if done.returncode not in (0, 1):
        sys.exit(f"shapes.py: {' '.join(command)}: status {done.returncode}")
    return json.loads(done.stdout)


def measure(ullage, shape, seeds, folder):
    ratios, repeated, maps, first_maps, failures, operations = [], [], [], [], [], []
    for seed in range(1, seeds + 1):
        path = os.path.join(folder, f"{shape.__name__}{seed}.csv.gz")
        trace = Trace(seed)
        shape(trace)
        trace.write(path)
        once, again = play(ullage, path), play(ullage, path, "--repeat", "4")
        tight = play(ullage, path, "--memory", str(once["peak_requested_bytes"] * 51 // 50))
        ratios.append(round(once["ratio"], 4))
        first_maps.append(once["maps"])
        repeated.append(round(again["ratio"], 4))
        maps.append(again["maps"] + again["unmaps"])
        failures.append(tight["failures"])
        operations.append(once["operations"])
    return {"shape": shape.__name__, "ratio": ratios, "maps": first_maps, "ratio_of_4": repeated,
            "maps_and_unmaps_of_4th": maps, "failures_at_1.02": failures, "operations": operations}


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    names = {shape.__name__: shape for shape in SHAPES}
    parser = argparse.ArgumentParser(usage=__doc__.split("\n")[2].removeprefix("usage: "))
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--keep")
    parser.add_argument("rest", nargs="*")
    args = parser.parse_intermixed_args()
    build = os.path.join(here, "..", "build", "release")
    if args.rest and os.path.isdir(args.rest[0]):
        build = args.rest.pop(0)
    unknown = [name for name in args.rest if name not in names]
    if unknown:
        sys.exit(f"shapes.py: no shape {unknown[0]!r}; there are {', '.join(names)}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.keep or temporary
        results = [measure(os.path.join(build, "ullage"), names[name], args.seeds, folder)
                   for name in args.rest or names]
    print(json.dumps({**where.facts(), "results": results}))


if __name__ == "__main__":
    main()
