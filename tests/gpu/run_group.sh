#!/usr/bin/env bash
# Ranks of NCCL on two cards, suspended together between two of their collectives: `run --suspendable --group`. Three rounds: the
# way NCCL takes by itself, without peer access, and for comparison without suspensions. About 100 s on two H200.
# Exit 0 if all checks passed.
#
#   BUILD=build/release tests/gpu/run_group.sh [OUTPUT_DIR]     PyTorch and two cards
set -u
cd "$(dirname "$0")/../.." || exit 1
out=${1:-build/gpu-results}
build=$(cd "${BUILD:-build/gpu}" && pwd)
ullage=$build/ullage
mkdir -p "$out"
# shellcheck source=tests/gpu/lib.sh
. tests/gpu/lib.sh

state=$(mktemp -d)
export ULLAGE_SHM_DIR=$state/shm XDG_STATE_HOME=$state
mkdir -p "$state/shm" "$state/ullage"
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
ended() { ! kill -0 "$1" 2>/dev/null && ! kill -0 "$2" 2>/dev/null; }
# ranks NAME SUSPENSIONS ENV...: sums in $out/NAME
ranks() {
    local name=$1 times=$2 rank pids=() good=0
    shift 2
    for rank in 0 1; do
        env "$@" timeout 90 "$ullage" run -q -m 40GiB --suspendable --group ranks --name "$name$rank" -- \
            python3 tests/gpu/group_torch.py $rank 2 4000 "$state/$name" >"$out/group-$name.$rank" 2>"$out/group-$name.$rank.err" &
        pids+=($!)
    done
    for _ in $(seq 600); do
        [ -e "$state/$name.0.ready" ] && [ -e "$state/$name.1.ready" ] && break
        sleep 0.1
    done
    for _ in $(seq "$times"); do
        ended "${pids[@]}" && break
        start=$(date +%s%N)
        if timeout 40 "$ullage" suspend "$name$((good % 2))" 2>"$out/group-suspend.err"; then
            good=$((good + 1))
            echo "   suspended in $((($(date +%s%N) - start) / 1000000)) ms: $("$ullage" ps -o json | python3 -c 'import json, sys
print([(j["name"], j["state"]) for j in json.load(sys.stdin)["jobs"]])')"
            timeout 40 "$ullage" resume "$name$((good % 2))"
        else
            echo "   refused: $(tail -n 1 "$out/group-suspend.err")"
        fi
        sleep 1
    done
    wait "${pids[@]}"
    cat "$out/group-$name".[01]
    echo "   $good suspensions"
    [ "$times" -eq 0 ] || check "$name: was suspended" [ "$good" -gt 0 ]
}
ranks plain 0
ranks own 4
check "with the same sums" cmp -s <(cat "$out"/group-plain.[01]) <(cat "$out"/group-own.[01])
ranks apart 4 NCCL_P2P_DISABLE=1
check "without peer access too" [ "$(grep -c sum "$out/group-apart.0")" = 1 ]
tail -n 3 "$out"/group-*.err
over
