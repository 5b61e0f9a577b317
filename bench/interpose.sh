#!/usr/bin/env bash
# What the interposer adds to a driver call and to a program's start, over a driver that does nothing.
#
#   bench/interpose.sh [BUILD_DIR] [ROUNDS]
#
# Free, held, gated (--suspendable) and recorded runs (with call stacks too) take turns; medians, the range, and their differences are
# printed, then one line of JSON with commit and machine.
set -eu
build=$(cd "${1:-build/release}" && pwd)
rounds=${2:-9}
state=$(mktemp -d)
trap 'rm -rf "$state"' EXIT
export LD_LIBRARY_PATH=$build/bench/null:$build/tests/fakecuda
export ULLAGE_FAKE_STATE=$state/cards ULLAGE_FAKE_GPUS=16TiB ULLAGE_SHM_DIR=$state XDG_STATE_HOME=$state

for _ in $(seq "$rounds"); do
    echo "free $("$build/bench/bench_interpose")"
    echo "held $("$build/ullage" run -q -m 100% -- "$build/bench/bench_interpose")"
    echo "gated $("$build/ullage" run -q -m 100% --suspendable -- "$build/bench/bench_interpose")"
    echo "recorded $("$build/ullage" run -q -m 100% --record "$state/record" -- "$build/bench/bench_interpose")"
    echo "stacks $("$build/ullage" run -q -m 100% --record "$state/stacks" --stacks -- "$build/bench/bench_interpose")"
done >"$state/calls"

# Start of a program that never uses CUDA: the two libraries are loaded and nothing else happens.
preload="$build/libullage-preload.so $build/libullage-nvml.so"
for _ in $(seq "$rounds"); do
    for name in free held; do
        start=$(date +%s%N)
        for _ in 1 2 3 4 5 6 7 8 9 10; do
            if [ $name = held ]; then LD_PRELOAD=$preload /bin/true; else /bin/true; fi
        done
        echo "$name $((($(date +%s%N) - start) / 10))"
    done
done >"$state/starts"

PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$(dirname "${BASH_SOURCE[0]}") python3 - "$state/calls" "$state/starts" <<'PY'
import json
import statistics
import sys

import where

calls, starts = sys.argv[1:3]
times = {}
for line in open(calls):
    name, values = line.split(" ", 1)
    for key, value in json.loads(values).items():
        times.setdefault(key, {}).setdefault(name, []).append(value)
for line in open(starts):
    name, value = line.split()
    times.setdefault("start_of_a_program", {}).setdefault(name, []).append(float(value))
result = {**where.facts(), "added_ns": {}, "gate_adds_ns": {}, "recording_adds_ns": {}, "stacks_add_ns": {}}
print(f"{'nanoseconds':20} {'free':>10} {'held':>10} {'added':>10}   range of held")
for key, both in times.items():
    free, held = statistics.median(both["free"]), statistics.median(both["held"])
    result["added_ns"][key] = round(held - free, 1)
    print(f"{key:20} {free:10.1f} {held:10.1f} {held - free:10.1f}   {min(both['held']):.1f} to {max(both['held']):.1f}")
print(f"{'nanoseconds':20} {'held':>10} {'gated':>10} {'added':>10}   range of gated")
for key, each in times.items():
    if "gated" not in each:
        continue
    held, gated = statistics.median(each["held"]), statistics.median(each["gated"])
    result["gate_adds_ns"][key] = round(gated - held, 1)
    print(f"{key:20} {held:10.1f} {gated:10.1f} {gated - held:10.1f}   {min(each['gated']):.1f} to {max(each['gated']):.1f}")
print(f"{'nanoseconds':20} {'held':>10} {'recorded':>10} {'added':>10} {'stacks':>10} {'added':>10}")
for key, both in times.items():
    if "recorded" not in both:
        continue
    held, recorded, stacks = (statistics.median(both[kind]) for kind in ("held", "recorded", "stacks"))
    result["recording_adds_ns"][key] = round(recorded - held, 1)
    result["stacks_add_ns"][key] = round(stacks - recorded, 1)
    print(f"{key:20} {held:10.1f} {recorded:10.1f} {recorded - held:10.1f} {stacks:10.1f} {stacks - recorded:10.1f}")
print(json.dumps(result))
PY
