#!/bin/bash
# train.sh: the figures of `ullage train`: accuracy on Fashion-MNIST, the ablation table, nats a character on the King James text,
# and time in a quarter of the memory. Each uses two processors; where there are more, they run side by side.
#
#   bench/train.sh ULLAGE FASHION_MNIST KING_JAMES.txt OUT
#
# About 10 minutes on 16 processors, 45 on two. OUT gets a file for each.
set -u
ULLAGE=$1 FASHION=$2 TEXT=$3 OUT=$4
mkdir -p "$OUT"
PAIRS=$(($(nproc) / 2))
FIRST=0
# Runs a command on the next two processors, in the background if there are others.
two() {
    local name=$1
    shift
    if [ "$PAIRS" -gt 1 ]; then
        (
            taskset -cp $((FIRST % PAIRS * 2)),$((FIRST % PAIRS * 2 + 1)) "$BASHPID" >/dev/null
            "$@"
        ) >"$OUT/$name" 2>"$OUT/$name.err" &
    else
        "$@" >"$OUT/$name" 2>"$OUT/$name.err"
    fi
    FIRST=$((FIRST + 1))
}
# Peak of a plan, bytes, from the last line of a stream.
peak() {
    tail -n 1 "$1" | grep -o '"predicted_peak_bytes": *[0-9]*' | grep -o '[0-9]*$'
}
# Plain, and a quarter of its memory (the 48 MiB outside the regions are not part of it).
quarter() {
    local name=$1
    shift
    "$ULLAGE" train "$@" --precision fp32 --max-accumulation 1 --recompute-min 1TiB --max-steps 4 -o ndjson >"$OUT/$name.plain" 2>&1
    "$ULLAGE" train "$@" --memory $(($(peak "$OUT/$name.plain") / 4 + 50331648)) --max-steps 4 -o ndjson >"$OUT/$name.quarter" 2>&1
    for part in plain quarter; do
        grep -o '"samples_per_second": *[0-9.]*' "$OUT/$name.$part" | tail -n 3
        tail -n 1 "$OUT/$name.$part"
    done
}

PARTS=${PARTS:-fashion text ablation resnet18 gpt}
wanted() { [[ " $PARTS " == *" $1 "* ]]; }
wanted fashion && two fashion "$ULLAGE" train resnet20:width=8 --data "$FASHION" --memory 128MiB --epochs "${EPOCHS:-13}" --lr 0.1 --precision fp32 -o ndjson
for rate in ${RATES:-0.001 0.002 0.004}; do
    wanted text && two "text.$rate" timeout 540 "$ULLAGE" train gpt-char:context=128 --data "$TEXT" --memory 512MiB --batch 32 --lr "$rate" \
        --max-steps "${STEPS:-2200}" --precision fp32 --save "$OUT/save.$rate" -o ndjson
done
wanted ablation && two ablation "$ULLAGE" train resnet20:width=8 --data "$FASHION" --epochs "${TABLE_EPOCHS:-2}" --ablation
wanted resnet18 && two quarter.resnet18 quarter resnet18 resnet18:stem=3,image=28,channels=1,classes=10 --data "$FASHION" --batch 512 --optimizer sgd --bn-group 64
wanted gpt && two quarter.gpt quarter gpt gpt-char:context=256,layers=6,width=192,heads=6 --data "$TEXT" --batch 64
wait
for file in "$OUT"/*; do
    [ -f "$file" ] && echo "== ${file##*/}" && tail -n 12 "$file" | cut -c1-400
done
if [ -d "$OUT/save.0.002" ]; then
    "$ULLAGE" eval "$OUT/save.0.002" --data "$TEXT" -o json
    "$ULLAGE" eval "$OUT/save.0.002" --data "$TEXT" --generate 400
fi
