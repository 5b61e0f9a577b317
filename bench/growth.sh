#!/usr/bin/env bash
# Jobs side by side on one card whose pools grow, or take their memory at the start (growth.c).
#
#   bench/growth.sh [BUILD_DIR] [--real] [--card SIZE] [OPTION...]     options of bench_growth: see growth.c
#
# On a fake card (80GiB by default). With --real on the first real card, under `ullage run -m SIZE` (16GiB), so
# that all jobs together, with their contexts, take no more than that; it is refused if less is free.
# Prints a table and one line of JSON. Exit code 1 if a job ended in another way than it should.
set -eu -o pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build/release
case ${1:-} in '' | -*) ;; *)
    build=$(cd "$1" && pwd)
    shift
    ;;
esac
real=no card='' options=()
while [ $# -gt 0 ]; do
    case $1 in
    --real) real=yes ;;
    --card)
        card=${2:?--card needs a size}
        shift
        ;;
    *) options+=("$1") ;;
    esac
    shift
done

state=$(mktemp -d)
trap 'rm -rf "$state"' EXIT
unset ULLAGE_MEMORY ULLAGE_GROWTH ULLAGE_CONFIG TF_FORCE_GPU_ALLOW_GROWTH
export ULLAGE_SHM_DIR=$state XDG_STATE_HOME=$state XDG_CONFIG_HOME=$state
bench=("$build/bench/bench_growth" "${options[@]}" "$root"/bench/traces/*.csv.gz)
if [ $real = yes ]; then
    card=${card:-16GiB} gpu=${CUDA_VISIBLE_DEVICES:-0} free=''
    free=$(nvidia-smi -i "${gpu%%,*}" --query-gpu=memory.free --format=csv,noheader,nounits 2>/dev/null || true)
    if [ -n "$free" ] && [ "$((free << 20))" -lt "$(numfmt --from=auto "${card%B}")" ]; then
        echo "growth.sh: $free MiB are free on the card, less than --card $card" >&2
        exit 3
    fi
    bench=("$build/ullage" run -q -m "$card" -- "${bench[@]}")
    name=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | head -n 1 || true)
    card="$card of ${name:-a card}"
else
    export LD_LIBRARY_PATH=$build/tests/fakecuda ULLAGE_FAKE_STATE=$state/cards ULLAGE_FAKE_GPUS=${card:-80GiB}
    card="a fake one of ${card:-80GiB}"
fi
"${bench[@]}" >"$state/growth.json"
PYTHONDONTWRITEBYTECODE=1 python3 "$root/bench/growth.py" "$card" <"$state/growth.json"
