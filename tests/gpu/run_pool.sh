#!/usr/bin/env bash
# The pool under PyTorch on a real card: what PyTorch does over it, and training against PyTorch's own
# allocators (default and expandable_segments), then jobs side by side on a part of the card (bench/growth.sh), in
# under 260 s on an H200. Exit 0 if all checks passed.
#
#   tests/gpu/run_pool.sh [OUTPUT_DIR]     on a machine with a GPU, PyTorch and torchvision
#
# BUILD names a build that is there already (cmake without tests is enough); else build/gpu is made.
set -u
cd "$(dirname "$0")/../.." || exit 1
out=${1:-build/gpu-results}
build=${BUILD:-build/gpu}
mkdir -p "$out"
# shellcheck source=tests/gpu/lib.sh
. tests/gpu/lib.sh

build_for pool libullage-torch.so
export ULLAGE_TORCH_LIBRARY=$build/libullage-torch.so PYTHONPATH=$PWD/bindings/python PYTHONDONTWRITEBYTECODE=1

say "machine"
what_runs_here

say "PyTorch over the pool"
python3 tests/gpu/pool_torch.py checks >"$out/pool-checks.txt" 2>&1
code=$?
cat "$out/pool-checks.txt"
check "PyTorch over the pool" [ $code = 0 ]
check "use() after the first tensor is refused" python3 tests/gpu/pool_torch.py late
check "the pool meets the budget of ullage run" \
    "$build/ullage" run -q -m 4GiB -- python3 tests/gpu/pool_torch.py budget

say "training: ullage against PyTorch's own"
results=$out/pool-train.jsonl
: >"$results"
run() { # run MODEL ALLOCATOR STEPS
    local line=$out/pool-train.line
    check "$1 with $2" python3 tests/gpu/pool_torch.py train "$1" "$2" --steps "$3" >"$line" 2>&1
    if ! grep '^{' "$line" >>"$results"; then tail -n 12 "$line"; fi
    tail -n 1 "$line"
}
# A ResNet's step waits for the host, whose speed varies by a third from run to run: so all take turns, while there is time.
for round in 1 2 3 4; do
    for allocator in default ullage expandable; do
        if [ $round = 1 ] || [ "$SECONDS" -lt 110 ]; then run resnet50 $allocator 25; fi
    done
done
for model in gpt2 gpt2_varlen; do
    steps=25
    [ $model = gpt2_varlen ] && steps=40 # its lengths repeat every ten steps
    for allocator in default ullage expandable; do
        run $model $allocator $steps
    done
done

say "comparison"
python3 tests/gpu/pool_torch.py compare "$results" | tee "$out/pool-compare.txt"
check "losses and steady state" [ "${PIPESTATUS[0]}" = 0 ]

# Under a budget, so that all jobs together take little of the card; plain allocations, nothing is computed.
say "jobs side by side: growing against preallocating"
if [ -e "$build/bench/bench_growth" ] || cmake --build "$build" --target bench_growth >"$out/build-growth.log" 2>&1; then
    check "bench/growth" timeout 60 bench/growth.sh "$build" --real --card 16GiB --jobs 1,4 --rounds 1 --seconds 1 \
        >"$out/growth.txt" 2>&1
    grep -v '^{' "$out/growth.txt"
else
    echo "left out: this build has no benchmarks (BUILD_TESTING)"
fi

over
