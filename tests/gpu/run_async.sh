#!/usr/bin/env bash
# Memory that streams order, on a real card, under `run --suspendable`: from a pool of ours, which moves. Programs at random,
# PyTorch with its cudaMallocAsync backend, and CuPy or JAX with their asynchronous allocators are suspended three times and
# must compute what they compute alone, bit for bit; and what an allocation and free takes beside the driver's own pool.
# A minute on an H200. Exit 0 if all checks passed.
#
#   tests/gpu/run_async.sh [OUTPUT_DIR [PART...]]     PART: pairs, random, torch, arrays; all of them if none is named
#
# BUILD names a build that is there already (cmake without tests is enough); else build/gpu is made. DRIVER: the libcuda.so.1
# to link with.
set -u
cd "$(dirname "$0")/../.." || exit 1
out=${1:-build/gpu-results}
build=${BUILD:-build/gpu}
parts=" ${*:2} "
mkdir -p "$out"
# shellcheck source=tests/gpu/lib.sh
. tests/gpu/lib.sh

part() { its_turn "$parts" "$@"; } # NAME TITLE

build_for async ullage
ullage=$build/ullage
worker_for async
state=$(mktemp -d -p /dev/shm)
trap 'rm -rf "$state"' EXIT
export ULLAGE_SHM_DIR=$state XDG_STATE_HOME=$state CUBLAS_WORKSPACE_CONFIG=:4096:8
what_runs_here

alive() { kill -0 "$1" 2>/dev/null; }
figure() { # JOB KEY, in MiB
    "$ullage" ps -o json 2>/dev/null | python3 -c '
import json, sys
print(sum((j.get(sys.argv[2]) or 0) >> 20 for j in json.load(sys.stdin)["jobs"] if j["name"] == sys.argv[1]))' "$1" "$2"
}

# compare NAME READY PAUSE COMMAND...: alone, then as a job that is suspended three times once READY succeeds
compare() {
    local name=$1 ready=$2 pause=$3 suspended=0 moved=0 job code before tries=300
    shift 3
    timeout 60 "$@" >"$out/$name.alone" 2>"$out/$name.alone.err"
    code=$?
    [ $code != 77 ] || { echo "$name: not installed"; return; }
    check "$name: alone it ends well ($(tail -n 1 "$out/$name.alone"))" [ $code = 0 ]
    before=$SECONDS
    timeout 90 "$ullage" run -q -m 100GiB --suspendable --name "$name" -- "$@" >"$out/$name.held" 2>"$out/$name.err" &
    job=$!
    until $ready "$name" || [ $tries = 0 ] || ! alive $job; do
        sleep 0.1
        tries=$((tries - 1))
    done
    while alive $job && [ $suspended -lt 3 ]; do
        sleep "$pause"
        timeout 30 "$ullage" suspend "$name" 2>>"$out/$name.err" >>"$out/$name.err" || continue
        suspended=$((suspended + 1))
        echo "   suspended: $(figure "$name" evicted_bytes) MiB out, $(figure "$name" resident_bytes) MiB on the card"
        [ "$(figure "$name" evicted_bytes)" -le 8 ] || moved=$((moved + 1))
        timeout 30 "$ullage" resume "$name" 2>>"$out/$name.err" >>"$out/$name.err"
    done
    wait $job
    code=$?
    check "$name: suspended $suspended times in $((SECONDS - before)) s, exit code $code, the same bit for bit" \
        cmp "$out/$name.alone" "$out/$name.held"
    check "$name: its memory was out each time" [ "$moved" = 3 ]
    grep -h 'suspended:\|running again' "$out/$name.err" | sed 's/^/   /'
    [ $code = 0 ] || tail -n 5 "$out/$name.err"
}
at_once() { sleep 0.3; }
is_ready() { grep -q ready "$out/$1.err"; }
holds_much() {
    "$ullage" ps -o json 2>/dev/null | python3 -c '
import json, sys
sys.exit(not any(v["held_bytes"] >> 20 > 3000 for j in json.load(sys.stdin)["jobs"] if j["name"] == sys.argv[1] for v in j["devices"]))' "$1"
}

if part pairs "cuMemAllocAsync and cuMemFreeAsync of a size that was just freed (ns a pair, in turn)"; then
    for _ in 1 2 3; do
        "$worker" init 0 pairs 100000 | sed 's/^/free /'
        "$ullage" run -q -m 100GiB -- "$worker" init 0 pairs 100000 | sed 's/^/held /'
        "$ullage" run -q -m 100GiB --suspendable --driver-pools -- "$worker" init 0 pairs 100000 | sed 's/^/drivers /'
        "$ullage" run -q -m 100GiB --suspendable -- "$worker" init 0 pairs 100000 | sed 's/^/ours /'
    done | tee "$out/pairs.txt" | awk '{ n[$1 " " $3] = n[$1 " " $3] " " $5 } END { for (k in n) print "   " k ":" n[k] }' | sort -k2,2n -k1,1
    # shellcheck disable=SC2016 # for awk
    check "ours: below 1,000 ns a call at its best" awk '$1 == "ours" && (!b || $5 < b) { b = $5 } END { exit !(b > 0 && b < 2000) }' "$out/pairs.txt"
fi

if part random "programs at random"; then
    for seed in 1 2 3; do
        timeout 60 "$worker" seed $seed init 0 ordered 3000 0 idle >"$out/ordered.alone" 2>&1
        timeout 60 "$ullage" run -q -m 100GiB --suspendable -- "$worker" seed $seed init 0 ordered 3000 0 idle >"$out/ordered.held" 2>&1
        check "seed $seed: $(tail -n 1 "$out/ordered.held"), the same" cmp "$out/ordered.alone" "$out/ordered.held"
    done
    compare ordered at_once 0.5 "$worker" init 0 keep 64MiB 32 ordered 1500 2 verify
    "$worker" init 0 about >"$out/about.alone"
    "$ullage" run -q -m 100GiB --suspendable -- "$worker" init 0 about >"$out/about.held"
    check "what is told of the pool and of addresses in it" cmp "$out/about.alone" "$out/about.held"
    diff "$out/about.alone" "$out/about.held"
fi

if part torch "PyTorch, backend:cudaMallocAsync"; then
    export PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync
    compare torch holds_much 0.7 python3 tests/gpu/train.py --steps 150 --width 6144 --batch 8192
    unset PYTORCH_CUDA_ALLOC_CONF
fi

if part arrays "CuPy and JAX, asynchronous allocators"; then
    compare cupy is_ready 0.2 python3 tests/gpu/async_arrays.py cupy
    compare jax is_ready 0.2 python3 tests/gpu/async_arrays.py jax
fi

over
