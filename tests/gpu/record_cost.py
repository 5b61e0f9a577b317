"""What recording costs a training step. Programs of both kinds, recorded and not, are alive at the same time and take
turns of a few steps on the card, so that what changes with time meets both; two of each kind show how much two
equal programs differ. Neighbouring turns are a pair.

usage: record_cost.py [--each N] [--rounds N] [--steps N] [--run=OPTION]... [--record=OPTION]... ULLAGE PLACE -- PROGRAM...
       PROGRAM: see recorded.py --turns; its record goes to PLACE. The last line: "recorded / unrecorded = RATIO".
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

parser = argparse.ArgumentParser()
parser.add_argument("ullage")
parser.add_argument("place")
parser.add_argument("--each", type=int, default=2, help="programs of each kind")
parser.add_argument("--rounds", type=int, default=8)
parser.add_argument("--steps", type=int, default=8, help="of a turn")
parser.add_argument("--run", action="append", default=[], help="options of ullage run for all")
parser.add_argument("--record", action="append", default=[], help="further options for those that are recorded")
parser.add_argument("program", nargs=argparse.REMAINDER)
args = parser.parse_args()
program = args.program[1:] if args.program[:1] == ["--"] else args.program
KINDS = ("unrecorded", "recorded")


def start(kind, number):
    record = os.path.join(args.place, f"cost-{number}.ull")
    options = ["--record", record, *args.record] if kind == "recorded" else []
    return subprocess.Popen(
        [args.ullage, "run", "-q", *args.run, *options, "--", *program],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )


def take_turn(process):
    process.stdin.write(f"{args.steps}\n")
    process.stdin.flush()
    line = process.stdout.readline()
    if not line:
        sys.exit(f"a program ended early, with exit code {process.wait()}")
    return statistics.median(json.loads(line))


def spread(values):
    return f"median {statistics.median(values):.3f}, {min(values):.3f} to {max(values):.3f}"


workers = [[start(kind, number) for kind in KINDS] for number in range(args.each)]
for pair in workers:
    for process in pair:
        if process.stdout.readline() != "ready\n":
            sys.exit(f"a program did not start: exit code {process.wait()}")
times = {(kind, number): [] for kind in KINDS for number in range(args.each)}
ratios = []
for round_number in range(args.rounds):
    for number, pair in enumerate(workers):
        turn = {}
        for which in (0, 1) if (round_number + number) % 2 == 0 else (1, 0):
            turn[which] = take_turn(pair[which])
            times[KINDS[which], number].append(turn[which])
        ratios.append(turn[1] / turn[0])
for pair in workers:
    for process in pair:
        process.stdin.close()
        if process.wait() != 0:
            sys.exit(f"a program ended with exit code {process.returncode}")
for (kind, number), values in times.items():
    print(f"{kind} {number}: {spread(values)} ms, {len(values)} turns of {args.steps} steps")
print(f"{len(ratios)} pairs: {spread(ratios)}")
print(f"recorded / unrecorded = {statistics.median(ratios):.4f}")
