#!/usr/bin/env bash
# Everything that needs a real card, in one run: builds ullage, then runs unmodified PyTorch, JAX and CuPy
# under a budget and prints what they saw, what was held and what it cost. Exit 0 if all checks passed.
#
#   tests/gpu/run.sh [OUTPUT_DIR]      on a machine with a GPU, PyTorch, JAX and CuPy
#   tests/gpu/run.sh --fake            the parts that need no framework, on the fake card (a dry run)
set -u
cd "$(dirname "$0")/../.." || exit 1
fake=0
[ "${1:-}" = --fake ] && fake=1 && shift
out=${1:-build/gpu-results}
build=build/gpu
mkdir -p "$out"
# shellcheck source=tests/gpu/lib.sh
. tests/gpu/lib.sh
have() { python3 -c "import $1" 2>/dev/null; }

say "build"
cmake -S . -B $build -DCMAKE_BUILD_TYPE=RelWithDebInfo "-DBUILD_TESTING=$([ $fake = 1 ] && echo ON || echo OFF)" \
    >"$out/build.log" 2>&1 && cmake --build $build -j "$(nproc)" >>"$out/build.log" 2>&1
check "builds here" [ -x $build/ullage ] || { tail -n 20 "$out/build.log"; exit 1; }
ullage=$PWD/$build/ullage
cc -O2 -o $build/driver_facts tests/gpu/driver_facts.c -Itests/include -Isrc/device -x none \
    "$(find / -name 'libcuda.so*' -path '*stubs*' 2>/dev/null | head -n 1)" -lpthread 2>>"$out/build.log" ||
    cc -O2 -o $build/driver_facts tests/gpu/driver_facts.c -Itests/include -Isrc/device \
        -L$build/tests/fakecuda -lcuda -lpthread
cc -O2 -o $build/bench_interpose bench/interpose.c -Isrc/device -ldl
if [ $fake = 1 ]; then
    export LD_LIBRARY_PATH=$PWD/$build/tests/fakecuda ULLAGE_FAKE_GPUS=16GiB
fi

say "machine"
what_runs_here
python3 - <<'PY' 2>/dev/null
for name in ("torch", "jax", "cupy"):
    try:
        print(name, __import__(name).__version__)
    except ImportError:
        print(name, "not here")
PY

say "driver facts"
$build/driver_facts >"$out/driver_facts.txt" 2>&1
check "the driver behaves as recorded" diff <(grep -v '^info\.' "$out/driver_facts.txt") \
    <(grep -v '^info\.' tests/gpu/driver_facts.h200.txt)

say "driver facts inside a budget: the interposer changes none of them, and the books are empty at the end"
"$ullage" run -m 100% --report "$out/facts-report.json" -- $build/driver_facts >"$out/driver_facts_held.txt" 2>"$out/facts.err"
cat "$out/facts.err"
check "held driver behaves as recorded" diff <(grep -v '^info\.' "$out/driver_facts_held.txt") \
    <(grep -v '^info\.' tests/gpu/driver_facts.h200.txt)

say "threads that free in one page at once: the card is never above the budget"
check "the card's peak" python3 tests/gpu/together.py "$ullage"

say "what frameworks see under -m 4GiB, and what a tensor of 5 GiB does"
for framework in torch jax cupy; do
    have $framework || continue
    check "$framework raises its own error and goes on" \
        "$ullage" run -q -m 4GiB -- python3 tests/gpu/sees.py $framework 5
done
have jax && check "jax with --growth" "$ullage" run -m 4GiB --growth -- python3 tests/gpu/sees.py jax 5

if have torch; then
    say "training: the same losses with and without"
    python3 tests/gpu/train.py >"$out/losses-free.txt"
    "$ullage" run -m 4GiB --report "$out/train-report.json" -- python3 tests/gpu/train.py >"$out/losses-held.txt"
    head -c 200 "$out/losses-held.txt"; echo
    check "bit for bit the same losses" cmp "$out/losses-free.txt" "$out/losses-held.txt"

    say "DataLoader workers and spawned children share one budget"
    check "workers" "$ullage" run -m 4GiB -- python3 tests/gpu/train.py --steps 4 --batch 512 --workers 4
    check "spawned children" "$ullage" run -m 8GiB -- python3 tests/gpu/train.py --steps 4 --spawn 3

    say "PyTorch's other allocators"
    for conf in backend:cudaMallocAsync expandable_segments:True; do
        check "$conf" env PYTORCH_CUDA_ALLOC_CONF=$conf PYTORCH_ALLOC_CONF=$conf \
            "$ullage" run -q -m 4GiB -- python3 tests/gpu/sees.py torch 5
        PYTORCH_CUDA_ALLOC_CONF=$conf PYTORCH_ALLOC_CONF=$conf "$ullage" run -m 4GiB -- python3 tests/gpu/train.py >"$out/losses-other.txt"
        check "$conf: the same losses" cmp "$out/losses-free.txt" "$out/losses-other.txt"
    done
    check "torch.compile and CUDA graphs" "$ullage" run -m 8GiB -- python3 tests/gpu/compiled.py

    say "two jobs side by side"
    "$ullage" run -m 40% --name first -- python3 tests/gpu/train.py --hold 6 >"$out/first.txt" 2>&1 &
    first=$!
    "$ullage" run -m 40% --name second -- python3 tests/gpu/train.py --hold 6 >"$out/second.txt" 2>&1 &
    second=$!
    for _ in $(seq 300); do
        [ "$(cat "$out/first.txt" "$out/second.txt" | grep -c holding)" = 2 ] && break
        sleep 0.1
    done
    sleep 1.5
    "$ullage" ps --tree
    "$ullage" ps -o json >"$out/ps.json"
    nvidia-smi --query-compute-apps=pid,used_memory --format=csv,noheader,nounits >"$out/nvml.csv"
    check "held by our account against NVML's figure" python3 tests/gpu/compare.py "$out/ps.json" "$out/nvml.csv"
    wait $first; check "first job" [ $? = 0 ]
    wait $second; check "second job" [ $? = 0 ]
    cat "$out/first.txt" "$out/second.txt" | grep ullage:

    say "what contexts take beyond NVML's figures"
    check "the account is the card's" python3 tests/gpu/contexts.py "$ullage" >"$out/contexts.txt" 2>&1
    cat "$out/contexts.txt"

    say "nvidia-smi inside a budget"
    "$ullage" run -q -m 4GiB -- nvidia-smi | tee "$out/nvidia-smi.txt" | head -n 16
    check "nvidia-smi shows the budget" grep -q "4096MiB" "$out/nvidia-smi.txt"

    say "speed of a training step, free and held in turn"
    for _ in 1 2 3 4 5 6; do
        python3 tests/gpu/train.py --steps 45 --width 8192 --batch 8192 --time | sed 's/step_ms/free/'
        "$ullage" run -q -m 100% -- python3 tests/gpu/train.py --steps 45 --width 8192 --batch 8192 --time |
            sed 's/step_ms/held/'
    done | tee "$out/step.txt"
    python3 tests/gpu/ratio.py "$out/step.txt"
fi

say "cost of a call, free and held in turn (nanoseconds)"
for _ in 1 2 3; do
    echo "free $($build/bench_interpose)"
    echo "held $("$ullage" run -q -m 100% -- $build/bench_interpose)"
done

over
