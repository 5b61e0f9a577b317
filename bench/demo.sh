#!/usr/bin/env bash
#
# demo.sh: what ullage does, on the processor and on a card that is not there. `make demo` runs it.
#
# First a small residual network is trained on Fashion-MNIST at three budgets, the last one a quarter of what it needs
# by itself. Part 1 replays a training run of ResNet-50 that was recorded from PyTorch (bench/traces) on a fake card
# of 6 GiB under several settings; part 2 starts two programs that each take all free memory, as TensorFlow
# does. All numbers come from these runs. Allocation only: nothing is computed.
#
# Usage: bench/demo.sh [BUILD_FOLDER]    (default build/release)

set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$(cd "${1:-$root/build/release}" && pwd)
ullage=$build/ullage
trace=$root/bench/traces/resnet50_b64.csv.gz
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

export LC_ALL=C.UTF-8
export LD_LIBRARY_PATH=$build/tests/fakecuda
export ULLAGE_FAKE_GPUS=6GiB
export ULLAGE_FAKE_STATE=$work/card
export XDG_STATE_HOME=$work/state
export XDG_CONFIG_HOME=$work/config
export ULLAGE_SHM_DIR=$work/shm
unset CUDA_VISIBLE_DEVICES ULLAGE_MEMORY ULLAGE_GROWTH ULLAGE_REPORT ULLAGE_LOG
unset TF_FORCE_GPU_ALLOW_GROWTH XLA_PYTHON_CLIENT_PREALLOCATE
mkdir -p "$work/shm"

if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then
    bold=$'\e[1m' green=$'\e[32m' red=$'\e[31m' plain=$'\e[0m'
else
    bold='' green='' red='' plain=''
fi

# field FILE KEY: the first value of a key in JSON as ullage writes it (one key a line).
field() {
    sed -n "s/^ *\"$2\": \"\{0,1\}\([^\"]*[^\",]\)\"\{0,1\},\{0,1\}\$/\1/p" "$1" | head -n 1
}

gib() {
    case $1 in
    '' | null) printf -- '-' ;;
    *) awk -v bytes="$1" 'BEGIN { printf "%.1f GiB", bytes / 1073741824 }' ;;
    esac
}

thousands() {
    case $1 in
    '' | null) printf -- '-' ;;
    *) awk -v n="$1" 'BEGIN { s = sprintf("%d", n); while (s ~ /[0-9][0-9][0-9][0-9]/)
                              sub(/[0-9][0-9][0-9]($|,)/, ",&", s); print s }' ;;
    esac
}

# row SETTING RESULT OUTCOME GOOD: a line of the table from the JSON of a replay.
row() {
    local color=$green
    [ "$4" = yes ] || color=$red
    printf '%-21s %8s %10s %11s  %s%s%s\n' "$1" "$(gib "$(field "$2" limit_bytes)")" \
        "$(gib "$(field "$2" held_bytes)")" "$(thousands "$(field "$2" operations_per_second)")" \
        "$color" "$3" "$plain"
}

# The outcome in few words: what the replay says, without sizes.
outcome() {
    field "$1" outcome | sed 's/:.*//'
}

# budget_row SETTING: a replay under a budget. Whether it stayed below comes from the job's ledger.
budget_row() {
    local name result report text good=no
    name=${1//[^a-zA-Z0-9]/}
    result=$work/$name.json report=$work/$name.report
    "$ullage" run -m "${1#-m }" --report "$report" -- "$ullage" replay "$trace" -o json \
        >"$result" 2>"$work/$name.err" || true
    text=$(outcome "$result")
    if [ "$(field "$result" completed)" = true ]; then
        if [ "$(field "$report" peak_bytes)" -le "$(field "$report" budget_bytes)" ]; then
            text="$text, never above" good=yes
        else
            text="$text, but above the line"
        fi
    fi
    row "$1" "$result" "$text" "$good"
}

for needed in "$ullage" "$LD_LIBRARY_PATH/libcuda.so.1" "$trace"; do
    if [ ! -e "$needed" ]; then
        printf 'demo: %s is missing: run make first\n' "$needed" >&2
        exit 1
    fi
done

# --- a training ------------------------------------------------------------------------------------

# train BUDGET OPTION...: 200 steps; the last object of the stream into a file.
train() {
    local budget=$1
    shift
    "$ullage" train resnet20:width=8 --data "${FASHION:-/usr/share/datasets/fashion-mnist}" --memory "$budget" --max-steps 200 \
        --eval-samples 2000 -o ndjson "$@" 2>"$work/train.err" | tail -n 1 | sed 's/,"/,\n"/g; s/^{/{\n/; s/}$/\n}/' >"$work/train.json"
}

train_row() {
    printf '%-14s %8s  %10s %6.0f  %8.3f  %s\n' "$1" "$2" "$(awk -v b="$(field "$work/train.json" measured_peak_bytes)" \
        'BEGIN { printf "%.1f MiB", b / 1048576 }')" "$(awk -v s="$(field "$work/train.json" seconds)" 'BEGIN { print 200 * 128 / s }')" \
        "$(field "$work/train.json" accuracy)" "$(field "$work/train.json" plan)"
    [ "$(field "$work/train.json" measured_peak_bytes)" = "$(field "$work/train.json" predicted_peak_bytes)" ] ||
        printf '  the peak is not what was predicted\n'
}

mib() {
    awk -v bytes="$1" 'BEGIN { printf "%.0f MiB", bytes / 1048576 }'
}

if [ -d "${FASHION:-/usr/share/datasets/fashion-mnist}" ]; then
    printf '%sA residual network, 200 steps of 128 pictures, on the processor%s (48 MiB of a budget are for the program itself)\n\n' \
        "$bold" "$plain"
    printf '%-14s %8s  %10s %6s  %8s  %s\n' '' '' 'peak, as' 'per' '' ''
    printf '%-14s %8s  %10s %6s  %8s  %s\n' setting budget 'predicted' second accuracy plan
    train 1GiB --precision fp32 --max-accumulation 1 --recompute-min 1TiB
    need=$(field "$work/train.json" measured_peak_bytes)
    train_row plain 1024MiB
    for part in 2 4; do
        budget=$((need / part + 48 * 1048576))
        train $budget
        train_row "1/$part of that" "$(mib $budget | tr -d ' ')"
    done
    printf '\n'
fi

# --- part 1 ----------------------------------------------------------------------------------------

printf '%sResNet-50, batch 64, 8 steps, on a card of 6 GiB%s (recorded; peak 3.3 GiB live)\n\n' "$bold" "$plain"
printf '%-21s %8s %10s %11s\n' '' '' 'held by' 'operations'
printf '%-21s %8s %10s %11s  %s\n' setting limit 'process' 'a second' outcome

"$ullage" replay "$trace" --preallocate -o json >"$work/none.json" 2>/dev/null || true
share=$(awk -v held="$(field "$work/none.json" held_bytes)" \
    -v all="$(field "$work/none.json" limit_bytes)" 'BEGIN { printf "%.0f", held * 100 / all }')
row 'none, --preallocate' "$work/none.json" "$(outcome "$work/none.json"), card $share% taken" no

"$ullage" run --growth -- "$ullage" replay "$trace" --preallocate -o json \
    >"$work/growth.json" 2>"$work/growth.err" || true
row '--growth' "$work/growth.json" "$(outcome "$work/growth.json"), as needed" yes

for setting in '-m 5GiB' '-m 75%' '-m 50%' '-m 2048M' '-m 20%'; do
    budget_row "$setting"
done

printf '\n%sWhat -m 50%% said%s\n\n' "$bold" "$plain"
sed "s|$work/||g" "$work/m50.err" | fold -s -w 78 | sed 's/^/  /'
printf '\n  the report says: '
gib "$(field "$work/m50.report" sufficient_bytes)"
printf ' would have been enough for that request\n'

# --- part 2 ----------------------------------------------------------------------------------------

# A program of one allocation: it starts as TensorFlow does, and stays for a while.
printf 'time_us,action,id,size,stream\n0,a,0,1073741824,0\n1,f,0,1073741824,0\n' |
    gzip -n >"$work/start.csv.gz"

# start NAME [ullage run OPTION...]: starts one in the background, held for two seconds.
start() {
    local name=$1
    shift
    if [ $# -gt 0 ]; then
        "$ullage" run "$@" -- "$ullage" replay "$work/start.csv.gz" --preallocate --hold 2 -o json \
            >"$work/$name.json" 2>"$work/$name.err" &
    else
        "$ullage" replay "$work/start.csv.gz" --preallocate --hold 2 -o json \
            >"$work/$name.json" 2>"$work/$name.err" &
    fi
    sleep 0.7
}

start_row() {
    local color=$red result=$work/$2.json text
    text=$(outcome "$result")
    [ "$(field "$result" completed)" = true ] && color=$green text='runs'
    printf '%-21s %8s %10s  %s%s%s\n' "$1" "$(gib "$(field "$result" limit_bytes)")" \
        "$(gib "$(field "$result" held_bytes)")" "$color" "$text" "$plain"
}

printf '\n%sTwo programs that take all free memory at their start, on one card%s\n\n' "$bold" "$plain"
printf '%-21s %8s %10s  %s\n' setting limit process outcome
start first
start second
wait
start_row 'none, first' first
start_row 'none, second' second
start left -m 45%
start right -m 45%
wait
start_row '-m 45%, first' left
start_row '-m 45%, second' right

if compgen -G '/dev/nvidia[0-9]*' >/dev/null || [ -e /dev/dxg ]; then
    printf '\nA real card is here. The same on it:\n'
else
    printf '\nNo real card was found here. Where there is one:\n'
fi
printf '  %s run -m 75%% -- %s replay %s\n' "${ullage#"$root/"}" "${ullage#"$root/"}" "${trace#"$root/"}"
