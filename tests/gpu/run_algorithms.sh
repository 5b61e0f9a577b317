#!/usr/bin/env bash
# What the cost tables in device profiles are made of, measured on a real card: algorithms of cuDNN for convolutions and of
# cuBLASLt for products with their workspaces and times, PyTorch's ways to compute attention; and what PyTorch holds at the peak of
# a checkpointed step. In under SECONDS on an H200.
#
#   tests/gpu/run_algorithms.sh [OUTPUT_DIR] [SECONDS]     on a machine with a GPU, nvcc's headers, cuDNN, PyTorch
#
# Then: tests/gpu/algorithms.py OUTPUT_DIR makes tables of it.
set -u
cd "$(dirname "$0")/../.." || exit 1
out=${1:-build/gpu-results}
limit=${2:-240}
mkdir -p "$out"
# shellcheck source=tests/gpu/lib.sh
. tests/gpu/lib.sh

left() { # left SHARE: seconds of what is left, in percent
    local rest=$(((limit - SECONDS) * $1 / 100))
    echo $((rest > 5 ? rest : 5))
}

say "machine"
what_runs_here

say "build"
# Headers and libraries of the toolkit, and those of Python's packages, whichever are there.
mapfile -t folders < <(
    echo "${CUDA_HOME:-/usr/local/cuda}"
    python3 -c 'import nvidia; print(*nvidia.__path__, sep="\n")' 2>/dev/null | while read -r packages; do
        find "$packages" -mindepth 1 -maxdepth 1 -type d
    done
)
flags=()
for folder in "${folders[@]}"; do
    [ -d "$folder/include" ] && flags+=("-I$folder/include")
    for libraries in "$folder/lib64" "$folder/lib"; do
        [ -d "$libraries" ] && flags+=("-L$libraries" "-Wl,-rpath,$libraries")
    done
done
check "builds here" gcc -O2 -w tests/gpu/algorithms.c -o "$out/algorithms" "${flags[@]}" \
    -l:libcudnn.so.9 -l:libcublasLt.so.13 -l:libcudart.so.13

say "the peak of a checkpointed step under PyTorch"
# Names of C++ frames take long to find out; without them, or without any, if that does not work.
peak() {
    local frames
    for frames in all python none; do
        timeout 80 python3 tests/gpu/torch_memory.py peak "$out/peak.json" --frames "$frames" && return
    done
    return 1
}
check "peak" peak

if [ -x "$out/algorithms" ]; then
    say "products"
    check "products" timeout 60 "$out/algorithms" matmul "$(left 15)" >"$out/products.jsonl"
    say "attention"
    check "attention" timeout 60 python3 tests/gpu/torch_memory.py attention >"$out/attention.jsonl"
    say "convolutions"
    check "convolutions" timeout "$((limit - SECONDS + 30))" "$out/algorithms" conv "$(left 90)" 24 >"$out/convolutions.jsonl"
    wc -l "$out"/*.jsonl
fi

over
