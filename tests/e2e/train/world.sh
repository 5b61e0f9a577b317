#!/bin/bash
# world.sh: `ullage train --devices N`: the training of one process over several, as one job; ranks that are killed, saves.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)

GPT=("gpt-char:context=32,layers=2,width=32,heads=2,dropout=0.1" --data "synthetic,samples=600" --memory 96MiB --precision fp32
    --batch 12 --eval-samples 30 --threads 1)
train() {
    capture "$ULLAGE" train "$@"
}
of() {
    json "$1" <<<"$OUT"
}

# --- the same training ---
train "${GPT[@]}" --max-steps 8 -o ndjson
is "in one process" "$CODE:$ERR" "0:"
ALONE=$OUT
for ranks in 2 3; do
    train "${GPT[@]}" --max-steps 8 --devices "$ranks" --parallel data -o ndjson
    is "over $ranks" "$CODE:$ERR" "0:"
    is "only one of them speaks" "$(wc -l <<<"$OUT")" 9
    check "the losses of $ranks are those of one" python3 - "$ALONE" "$OUT" <<'PYTHON'
import json, sys
alone, world = ([json.loads(line) for line in text.split('\n')] for text in sys.argv[1:])
for a, b in zip(alone[:-1], world[:-1]):
    assert abs(a['loss'] - b['loss']) < 1e-6, (a, b)
assert abs(alone[-1]['eval_loss'] - world[-1]['eval_loss']) < 1e-5, (alone[-1], world[-1])
PYTHON
    OUT=$(tail -n 1 <<<"$OUT")
    is "in each, memory is what was predicted" \
        "$(of "[len(d['ranks']), all(r['measured_peak_bytes'] == r['predicted_peak_bytes'] > 0 for r in d['ranks'])]")" "[$ranks, true]"
done

# A plan is written once, and where standard error is a file, behind what is there.
echo before >"$T/err"
"$ULLAGE" train "${GPT[@]}" --max-steps 1 --devices 2 --save-plan /dev/stderr -o json >"$T/out" 2>>"$T/err"
is "a plan of two to standard error" "$?:$(head -n 1 "$T/err"):$(grep -c '"version"' "$T/err")" "0:before:1"
tail -n +2 "$T/err" >"$T/plan.json"

train "${GPT[@]}" --max-steps 1 --devices 2 --plan "$T/plan.json" -o json
is "a plan that is given to two" "$CODE" 0
like "is not all that they run, which is said" "$ERR" "what is recomputed and sent is chosen anew"

# --- pictures, statistics of batch norm, 16 bits ---
train resnet20 --data synthetic,samples=400 --memory 96MiB --precision bf16 --batch 16 --max-steps 3 --eval-samples 20 --devices 2 -o json
is "pictures, in 16 bits" "$CODE:$ERR" "0:"
is "... measured is predicted" "$(of "all(r['measured_peak_bytes'] == r['predicted_peak_bytes'] for r in d['ranks'])")" true

# --- pictures in files: each rank opens its own alone, over the ends of epochs and after a resume over another number; one process
# opens each once ---
for class in train/cat train/dog val/cat val/dog; do
    mkdir -p "$T/pictures/$class"
    for i in {1..25}; do cp "$ROOT/tests/fuzz/corpus/small.jpg" "$T/pictures/$class/$i.jpg"; done
done
opened() { # expected, by the processes; the rest is for ullage train
    local expected=$1
    shift
    rm -rf "$T/opened"
    mkdir "$T/opened"
    PICTURES=$T/opened LD_PRELOAD=$GUESTS/preload_pictures.so train lenet:image=16,channels=3 --data "$T/pictures" --memory 96MiB \
        --precision fp32 --batch 12 --max-accumulation 1 --eval-samples 15 --threads 1 --save "$T/pictures.save" -o json "$@"
    is "pictures over some ranks" "$CODE" 0
    is "are opened by those that take them" "$(stat -c %s "$T"/opened/* | sort -n | xargs)" "$expected"
}
# 9 steps of 4 pictures each are two epochs and a bit, with two evaluations. Then 7 of 3 and two evaluations, and a step and one.
opened "46 46 46" --max-steps 9 --epochs 9 --devices 3
opened "27 29 29 29" --max-steps 16 --epochs 9 --devices 4 --resume
opened "27" --max-steps 17 --epochs 9 --resume

# Broken ones are told of once and counted, whichever ranks meet them, and however often.
echo "no picture" | tee "$T/pictures/train/cat/3.jpg" "$T/pictures/train/dog/4.jpg" "$T/pictures/train/dog/24.jpg" >"$T/pictures/val/cat/2.jpg"
train lenet:image=16,channels=3 --data "$T/pictures" --memory 96MiB --precision fp32 --batch 12 --epochs 4 --threads 1 --devices 3 -o json
is "pictures of which some are broken" "$CODE:$(of "d['broken_samples']")" "0:3"
is "each is told of" "$(sed -n "s,.*/pictures/\\(.*\\)' cannot be read.*,\\1,p" <<<"$ERR" | sort | xargs)" \
    "train/cat/3.jpg train/dog/24.jpg train/dog/4.jpg val/cat/2.jpg"

# --- saves: of a model that has but one plan with this much memory ---
LENET=(lenet --data "synthetic,samples=400" --memory 96MiB --precision fp32 --batch 12 --max-accumulation 1 --optimizer adamw
    --schedule constant --warmup 0 --eval-samples 20 --threads 1)
train "${LENET[@]}" --max-steps 8 --devices 2 --save "$T/straight" -o json
is "a training that saves" "$CODE:$ERR" "0:"
train "${LENET[@]}" --max-steps 4 --devices 2 --save "$T/cut" -o json
train "${LENET[@]}" --max-steps 8 --devices 2 --save "$T/cut" --resume -o json
is "goes on" "$CODE:$(of "d['steps']")" "0:8"
check "as if it had not been stopped" cmp "$T/cut/step-00000008/model.safetensors" "$T/straight/step-00000008/model.safetensors"
train "${LENET[@]}" --max-steps 10 --devices 3 --save "$T/cut" --resume -o json
is "over another number" "$CODE:$(of "[d['steps'], len(d['ranks'])]")" "0:[10, 3]"
train "${LENET[@]}" --max-steps 12 --save "$T/cut" --resume -o json
is "and in one" "$CODE:$(of "d['steps']")" "0:12"

# --- one job, and what becomes of it when ranks end ---
# Until the one that was started has made two steps, or has ended.
works() {
    until [ "$(wc -l <"$T/out")" -ge 2 ] || ! kill -0 "$PID"; do sleep 0.1; done
}
begin() {
    : >"$T/out" # or the lines of the run before are taken for those of this one
    "$ULLAGE" train "${GPT[@]}" --epochs 100000 --devices 3 -o ndjson "$@" >"$T/out" 2>"$T/err" &
    PID=$!
    works
    mapfile -t KIDS < <(pgrep -P "$PID")
}
finish() {
    wait "$PID" 2>"$T/null"
    CODE=$? ERR=$(<"$T/err")
}
# shellcheck disable=SC2317 # by wait_for
none_of_them() { ! kill -0 "${KIDS[@]}"; }
# Whether none of the other ranks is left, in a while.
# shellcheck disable=SC2317 # called by check
all_gone() {
    wait_for 15 none_of_them
}
begin
capture "$ULLAGE" ps -o json
is "is one job with three processes" "$(of "[[j['name'], len(j['processes']), j['devices'][0]['budget_bytes']] for j in d['jobs']]")" \
    "[[\"gpt-char\", 3, $((3 * 96 << 20))]]"
kill -KILL "${KIDS[1]}"
finish
is "a rank that is killed ends it" "$CODE" 1
like "and is named" "$ERR" 'rank 2 of 3 has ended'
like "with its signal" "$ERR" 'rank 2 was ended by signal 9'
check "the others end, too" all_gone

begin --save "$T/stopped"
kill -TERM "${KIDS[0]}"
finish
is "a rank that is told to stop stops all" "$CODE:$ERR" "0:"
is "after a save" "$(tail -n 1 "$T/out" | json "[d['event'], d['stopped']]")" '["end", "SIGTERM"]'
check "which is there" test -n "$(ls -d "$T"/stopped/step-*)"

# A rank that is not in the job's account follows its budget all the same: both take the next plan down.
LD_PRELOAD=$GUESTS/preload_deny.so "$ULLAGE" train "${GPT[@]}" --batch 32 --epochs 100000 --devices 2 -o ndjson >"$T/out" 2>"$T/err" &
PID=$!
works
capture "$ULLAGE" ps -o json
is "a rank without a place in the ledger" "$(of "[len(j['processes']) for j in d['jobs']]")" "[1]"
capture "$ULLAGE" budget gpt-char 104000000
is "its job's budget can be changed" "$CODE" 0
until grep -q 'the budget is' "$T/err" || ! kill -0 "$PID"; do sleep 0.1; done
kill -TERM "$PID"
finish
is "and it goes on" "$CODE:$(tail -n 1 "$T/out" | json "[d['plan_switches'], d['ranks'][0] == dict(d['ranks'][1], outside_arena_bytes=d['ranks'][0]['outside_arena_bytes'])]")" "0:[1, true]"
like "it is told that it has none" "$ERR" "rank 1 is not in the job's account"

begin
kill -KILL "$PID"
finish
check "without rank 0 the others end" all_gone
ERR=$(<"$T/err")
like "and say so" "$ERR" 'rank 0 of 3 has ended'

# --- bad input ---
train "${GPT[@]}" --batch 13 --devices 2 --max-steps 1
is "a batch that does not divide" "$CODE" 1
is "is told once" "$ERR" 'ullage: a batch of 13 does not divide over 2 devices'
train "${GPT[@]}" --devices 2 --parallel pipeline
is "what is planned only" "$CODE" 2
like "is told" "$ERR" "expected data; layers over devices are planned only"
train "${GPT[@]}" --devices 2 --memory auto
is "what is for one" "$CODE" 2
done_testing
