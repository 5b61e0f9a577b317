#!/usr/bin/env bash
# `ullage query` against the real nvidia-smi on a real card, byte for byte, while two processes hold
# memory there. Exit 0 if all is equal.
#
#   tests/gpu/query.sh [OUTPUT_DIR]        ULLAGE names the program; without it, it is built
#   tests/gpu/query.sh --fake [OUTPUT_DIR] a dry run over the fake card, which is asked in place of both
set -u
cd "$(dirname "$0")/../.." || exit 1
fake=0
[ "${1:-}" = --fake ] && fake=1 && shift
out=${1:-build/gpu-results}
mkdir -p "$out"
if [ -z "${ULLAGE:-}" ]; then
    build=build/gpu
    testing=OFF
    [ $fake = 1 ] && testing=ON
    if ! { cmake -S . -B $build -DCMAKE_BUILD_TYPE=RelWithDebInfo -DBUILD_TESTING=$testing &&
        cmake --build $build -j "$(nproc)"; } >"$out/query-build.log" 2>&1; then
        tail -n 20 "$out/query-build.log"
        exit 1
    fi
    ULLAGE=$PWD/$build/ullage
fi
export ULLAGE
if [ $fake = 1 ]; then
    LD_LIBRARY_PATH=$(dirname "$ULLAGE")/tests/fakecuda
    ULLAGE_FAKE_STATE=$(mktemp -d)/cards
    export LD_LIBRARY_PATH ULLAGE_FAKE_STATE ULLAGE_FAKE_GPUS=32GiB,32GiB
    export SMI="$ULLAGE query"
fi
python3 tests/gpu/query.py bench/traces/resnet50_b64.csv.gz 2>&1 | tee "$out/query.txt"
exit "${PIPESTATUS[0]}"
