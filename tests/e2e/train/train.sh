#!/bin/bash
# train.sh: `ullage train` and `ullage eval`: a training within its budget, killed, gone on with, changed while it runs.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

DATA=synthetic,samples=4000
train() {
    capture "$ULLAGE" train "$@"
}
of() {
    json "$1" <<<"$OUT"
}
# The last line of a stream of objects.
last() {
    OUT=$(tail -n 1 <<<"$OUT")
}

train lenet --data "$DATA" --memory 64MiB --max-steps 25 --eval-samples 200 -o ndjson
is "a training" "$CODE:$ERR" "0:"
is "an object for each step, and one more" "$(wc -l <<<"$OUT")" 26
is "with what scripts rely on" \
    "$(head -n 1 <<<"$OUT" | json "[d['step'], d['loss_scale'], d['micro_batch'], d['skipped'], d['loss'] > 1, d['epoch'] > 0, d['samples_per_second'] > 0]")" \
    '[1, 1, 128, false, true, true, true]'
is "and how long it was to take" "$(tail -n 2 <<<"$OUT" | head -n 1 | json "d['predicted_step_seconds'] > 0")" true
last
is "the end" "$(of "[d['event'], d['steps'], d['accuracy'] > 0.2, d['seconds'] > 0, d['outside_arena_bytes'] > 0, len(d['plan']) > 4]")" \
    '["end", 25, true, true, true, true]'
is "memory is what was predicted" "$(of "d['measured_peak_bytes'] == d['predicted_peak_bytes']")" true
is "time is what steps have shown" \
    "$(of "[abs(d['predicted_step_seconds'] / d['measured_step_seconds'] - 1) < 0.001, d['predicted_step_seconds_at_start'] > 0]")" '[true, true]'
PLAIN=$(of "d['predicted_peak_bytes']")

# --- less memory: the same training ---
OUTSIDE=50331648
train lenet --data "$DATA" --memory $((PLAIN / 2 + OUTSIDE)) --precision fp32 --max-steps 5 --eval-samples 50 -o json
is "in half of the memory" "$CODE" 0
is "it stays below" "$(of "d['measured_peak_bytes'] == d['predicted_peak_bytes'] <= $((PLAIN / 2))")" true
train lenet --data "$DATA" --memory 49MiB --batch 4096 --precision fp32 --max-accumulation 1 --max-steps 1
is "what cannot fit" "$CODE" 1
like "is told with what would do" "$ERR" "no plan .* fits 51380224 bytes; the smallest needs [0-9]+"

# --- a second region: copies go on while kernels run ---
train gpt-char:context=64,layers=2,width=64,heads=2 --data synthetic,samples=2000 --memory $((OUTSIDE + 7600000)) --host-memory 64MiB \
    --precision fp32 --batch 32 --max-accumulation 1 --max-steps 4 --eval-samples 8 --trace "$T/trace.json" -o json
is "with state and activations in a second region" "$CODE:$ERR" "0:"
is "which has its own bytes" "$(of "[d['host_bytes'] > 0, d['measured_peak_bytes'] == d['predicted_peak_bytes'] <= 7600000]")" '[true, true]'
check "copies overlap with kernels" python3 - "$T/trace.json" <<'PYTHON'
import json, sys
events = [e for e in json.load(open(sys.argv[1]))['traceEvents'] if e['ph'] == 'X']
kernels = sorted((e['ts'], e['ts'] + e['dur']) for e in events if e['tid'] == 1 and e['name'] not in ('copy', 'wait'))
copies = [(e['ts'], e['ts'] + e['dur']) for e in events if e['tid'] > 1 and e['name'] == 'copy']
assert len(copies) > 20, len(copies)
overlap = sum(any(k[0] < c[1] and c[0] < k[1] for k in kernels) for c in copies)
assert overlap > 10, (overlap, len(copies)) # how many is up to who else uses the processors
PYTHON

# --- saves ---
RUN=(lenet --data "$DATA" --memory 64MiB --precision fp32 --max-steps 30 --save-every 10 --eval-samples 100 --optimizer adamw -o ndjson)
train "${RUN[@]}" --save "$T/whole"
is "a training that saves" "$CODE" 0
(
    "$ULLAGE" train "${RUN[@]}" --save "$T/cut" >"$T/cut.out" 2>&1 &
    PID=$!
    until [ -d "$T/cut/step-00000010" ] || ! kill -0 $PID; do sleep 0.01; done
    kill -9 $PID
    wait $PID
) 2>/dev/null
train "${RUN[@]}" --save "$T/cut" --resume
is "killed, and gone on with" "$CODE" 0
like "from its last save" "$(head -n 1 <<<"$OUT")" '"step": (11|21|31),|"event": "end"'
for file in model state; do
    check "bit for bit the same $file" cmp "$T"/{whole,cut}/step-00000030/$file.safetensors
done
is "the last two are kept" "$(cd "$T/whole" && echo step-*)" "step-00000020 step-00000030"
train mlp --data "$DATA" --max-steps 1 --save "$T/whole" --resume
is "a save of another model" "$CODE" 1
like "is told" "$ERR" "is a save of model 'lenet.*', this is 'mlp"

capture "$ULLAGE" eval "$T/whole" --data "$DATA" -o json
is "what was saved is evaluated" "$CODE:$ERR" "0:"
is "on what was held out" "$(of "[d['samples'] > 100, 0 <= d['accuracy'] <= 1, d['loss'] > 0]")" '[true, true, true]'

capture "$ULLAGE" train "${RUN[@]}" --save "$T/whole" --resume --batch 64
is "gone on with another batch" "$CODE" 1
like "is refused" "$ERR" "was trained with --batch 128, not 64"
capture "$ULLAGE" train lenet --data "$DATA" --save "$T/whole" --resume --precision bf16
is "gone on with another precision" "$CODE" 1
like "is refused" "$ERR" "was trained with --precision fp32, not bf16"
"$ULLAGE" train lenet --data "$DATA" --max-steps 2 --eval-samples 2 --save "$T/closed" <&- >&- 2>"$T/closed.err"
is "without a standard output" "$?:$(cat "$T/closed.err")" "1:ullage: the result could not be written"

# --- a signal while it evaluates, which would go on for long: it saves at once ---
"$ULLAGE" train lenet --data synthetic,samples=600000 --max-steps 2 --save "$T/evaluates" -o ndjson >"$T/evaluates.out" 2>&1 &
PID=$!
wait_for 20 grep -q '"step": 2' "$T/evaluates.out"
kill -TERM $PID
wait $PID
is "an evaluation is ended" "$?:$(tail -n 1 "$T/evaluates.out" | json "[d['accuracy'], d['stopped']]")" '0:[null, "SIGTERM"]'
is "what was trained is saved" "$(cd "$T/evaluates" && echo step-*)" step-00000002

# --- a signal: what was trained is saved ---
"$ULLAGE" train lenet --data "$DATA" --precision fp32 --epochs 1000 --save "$T/term" -o ndjson >"$T/term.out" 2>"$T/term.err" &
PID=$!
wait_for 10 grep -q '"step": 3' "$T/term.out"

# --- it is a job: others see it and change its budget ---
"$ULLAGE" ps -o json >"$T/ps.json"
is "it is listed" "$(json "[j['name'] for j in d['jobs'] if j['processes'][0]['pid'] == $PID]" <"$T/ps.json")" '["lenet"]'
JOB=$(json "[j['id'] for j in d['jobs'] if j['processes'][0]['pid'] == $PID][0]" <"$T/ps.json" | tr -d '"')
capture "$ULLAGE" budget "$JOB" $((OUTSIDE + 2500000))
is "its budget is lowered" "$CODE" 0
wait_for 10 grep -q "the budget is" "$T/term.err"
like "it takes another plan" "$(cat "$T/term.err")" "step [0-9]+: the budget is .*: now .*micro-batches of"
kill -TERM $PID
wait $PID
is "stopped" $? 0
is "and saved" "$(tail -n 1 "$T/term.out" | json "[d['stopped'], d['plan_switches']]")" '["SIGTERM", 1]'
check "with a save of that moment" test -d "$T/term/step-$(printf %08d "$(tail -n 1 "$T/term.out" | json "d['steps']")")"
like "the job is gone" "$("$ULLAGE" ps 2>&1 | grep -c "$JOB")" '^0$'

# --- text ---
printf 'In the beginning was the word, and the word was good. %.0s' $(seq 400) >"$T/text.txt"
train gpt-char:context=32,layers=1,width=32,heads=2 --data "$T/text.txt" --memory 128MiB --batch 16 --max-steps 60 --lr 0.01 \
    --eval-samples 16 --save "$T/text" --html "$T/page.html" -o json
is "a model of text" "$CODE:$ERR" "0:"
is "learns" "$(of "d['eval_loss'] < 1.5")" true
check "a page" grep -q '<polyline' "$T/page.html"
train gpt-char:context=32,layers=1,width=32,heads=2 --data "$T/text.txt" --memory 128MiB --batch 2000 --max-steps 1 --eval-samples 16 -o json
like "a batch that is more than there is" "$CODE:$ERR" '^0:.*a batch of 2000 is more than the [0-9]* samples .* several times'
capture "$ULLAGE" eval "$T/text" --data "$T/text.txt" --generate 40 --prompt "In the" --temperature 0
is "and writes" "$CODE" 0
like "what it learned" "$OUT" "^In the [a-z ,.I]{34,}"

# --- plans that are given ---
capture "$ULLAGE" plan lenet:image=28,channels=1,classes=10 --device cpu --memory 1GiB --batch 64 --precision fp32 --optimizer sgd -o json
echo "$OUT" >"$T/plan.json"
train lenet --data "$DATA" --plan "$T/plan.json" --max-steps 2 -o json
is "a plan of a file" "$CODE" 0
is "is run" "$(of "[d['micro_batch'], d['precision']]")" "$(json "[d['micro_batch'], d['precision']]" <"$T/plan.json")"
# What is recomputed and sent, too: the same bytes, and the same file again from a training.
SMALL=gpt-char:context=64,layers=2,width=64,heads=2,vocab=65
capture "$ULLAGE" plan $SMALL --device cpu --memory $((OUTSIDE + 7000000)) --host-memory 64MiB --batch 32 --precision fp32 --max-accumulation 1 -o json
echo "$OUT" >"$T/sends.json"
is "a plan that recomputes and sends" "$(of "[len(d['decision'][k]) > 0 for k in ('drop', 'send')]")" '[true, true]'
train $SMALL --data synthetic,samples=64 --plan "$T/sends.json" --save-plan "$T/again.json" --max-steps 1 --eval-samples 8 -o json
is "is run as it is written" "$CODE:$ERR" "0:"
is "to the byte" "$(of "[d['predicted_peak_bytes'], d['measured_peak_bytes']]")" "$(json "[d['peak_bytes']] * 2" <"$T/sends.json")"
for key in decision pins optimizer clip bn_group graph peak_bytes budget_bytes host_bytes micro_batch recomputed_bytes offloaded_bytes; do
    is "written again it has the same $key" "$(json "d['$key']" <"$T/again.json")" "$(json "d['$key']" <"$T/sends.json")"
done
json "dict(d, pins=dict(d['pins'], threads=1, backend='another 1.0', algorithms={'conv2d.9': {'name': 'fast'}}))" <"$T/sends.json" >"$T/other.json"
train $SMALL --data synthetic,samples=64 --plan "$T/other.json" --memory 256MiB --threads 2 --max-steps 1 --eval-samples 8 -o json
is "one for another machine" "$CODE" 0
like "is fitted to this one, which says so" "$ERR" "the plan is for another 1.0, 1 threads, here are .*, 2 threads: 1 other algorithms"
json "dict(d, decision=dict(d['decision'], drop=['nothing.7']))" <"$T/sends.json" >"$T/strange.json"
train $SMALL --data synthetic,samples=64 --plan "$T/strange.json"
is "one that drops what there is not" "$CODE" 1
like "names it" "$ERR" "the plan drops 'nothing.7'"
train $SMALL --data synthetic,samples=64 --plan "$T/sends.json" --optimizer sgd
is "an option against the plan" "$CODE" 1
like "is told" "$ERR" "is a plan for adamw, --optimizer says sgd"
json "dict(d, optimizer='lion')" <"$T/sends.json" >"$T/strange.json"
train $SMALL --data synthetic,samples=64 --plan "$T/strange.json"
is "one for an optimizer that there is not" "$CODE" 1
like "is told" "$ERR" "is a plan for optimizer 'lion': expected sgd, adam or adamw"
train mlp --data "$DATA" --plan "$T/plan.json" --max-steps 2
is "one for another model" "$CODE" 1
like "is refused" "$ERR" "is a plan for model 'lenet.*', not for 'mlp'"

# --- what is wrong ---
train lenet --data "$T/none"
is "no data" "$CODE" 1
like "are named" "$ERR" "$T/none"
mkdir "$T/empty"
train lenet --data "$T/empty"
is "empty data" "$CODE" 1
train lenet --data "$DATA" --lr 1e9 --epochs 1 --max-steps 50
is "a training that explodes" "$CODE:${ERR:0:7}" "2:ullage:"
train lenet --data "$DATA" --lr 900 --precision fp32 --momentum 0.99 --max-steps 200 --save "$T/boom"
is "a loss that is no number" "$CODE" 1
like "ends it, with the reason" "$ERR" "the loss is .*no number to go on from: lower --lr"
train nonsense --data "$DATA"
is "an unknown model" "$CODE" 2
for option in html trace save-plan; do
    train lenet --data "$DATA" --max-steps 2 --$option "$T/none/x" -o json
    is "--$option where nothing can be is told before the training" "$CODE:$OUT" "1:"
    like "with the path" "$ERR" "$T/none/x"
done
for option in devices threads; do # too large for an int
    train lenet --data "$DATA" --$option 4294967298
    is "--$option of 2^32 and two" "$CODE" 2
    like "is told" "$ERR" "--$option is '4294967298': expected 1 to 64"
done
for seed in 99999999999999999999 ' -1' ''; do
    train lenet --data "$DATA" --seed "$seed"
    is "--seed '$seed'" "$CODE" 2
done
train lenet
is "without data" "$CODE" 2
like "it says so" "$ERR" "--data is missing"
mkdir "$T/locked"
: >"$T/file"
train lenet --data "$DATA" --max-steps 2 --save "$T/file/x"
is "where nothing can be saved" "$CODE" 1
done_testing
