#!/bin/bash
# documents.sh: `ullage train` and `ullage eval` on documents of their own lengths: plans for some lengths over the same weights.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

of() {
    json "$1" <<<"$OUT"
}
python3 - "$T/text.txt" "$T/ids.bin" <<'PYTHON'
import random, struct, sys
random.seed(4)
lengths = [random.choice((3, 5, 7, 12, 14, 22, 26, 40)) for _ in range(300)]
words = ["".join(random.choice("abcdefgh") for _ in range(n)) for n in lengths]
open(sys.argv[1], "w").write("\n".join(words) + "\n")
open(sys.argv[2], "wb").write(b"".join(struct.pack(f"<{n + 1}H", *[random.randrange(1, 9) for _ in range(n)], 0) for n in lengths))
PYTHON
GPT=gpt-char:context=32,layers=1,width=16,heads=2
RUN=("$GPT" --data "$T/text.txt,documents=lines" --memory 128MiB --precision fp32 --batch 8 --max-steps 24 --save-every 6 --threads 1 -o ndjson)

capture "$ULLAGE" train "${RUN[@]}" --save "$T/whole"
is "documents by lines" "$CODE" 0
like "longer ones are in pieces" "$ERR" "[0-9]+ of 300 documents are longer than the longest sample, 32 tokens, and are cut into pieces"
check "steps have several lengths, and as many tokens as they say" python3 - <<PYTHON
import json
steps = [json.loads(line) for line in '''$OUT'''.splitlines()]
end = steps.pop()
lengths = [bucket['length'] for bucket in end['buckets']]
assert 2 <= len(lengths) <= 4 and lengths == sorted(lengths) and lengths[-1] == 32, lengths
assert {step['length'] for step in steps} == set(lengths), (lengths, [step['length'] for step in steps])
assert end['measured_peak_bytes'] == end['predicted_peak_bytes'] == end['expected_peak_bytes'], end
assert steps[0]['tokens_per_second'] > 0
PYTHON
LOSS=$(tail -n 1 <<<"$OUT" | json "d['eval_loss']")
capture "$ULLAGE" eval "$T/whole" --data "$T/text.txt" -o json
is "evaluated as it was trained" "$CODE:$(of "abs(d['loss'] - $LOSS) < 1e-4")" 0:true
capture "$ULLAGE" eval "$T/whole" --data "$T/text.txt,documents=none" -o json
is "lines' ends are no characters of these documents" "$CODE" 1
like "which is said" "$ERR" "U\+000A at byte [0-9]+ is not in the vocabulary"
mkdir -p "$T/pictures/a"
cp "$(dirname "${BASH_SOURCE[0]}")/../../fuzz/corpus/small.png" "$T/pictures/a"
capture "$ULLAGE" eval "$T/whole" --data "$T/pictures"
is "data of another format" "$CODE" 1
like "are refused" "$ERR" "the model takes tokens: .* has pictures"
capture "$ULLAGE" eval "$T/whole" --data "$T/text.txt" --generate 30
is "it writes documents" "$CODE" 0

(
    "$ULLAGE" train "${RUN[@]}" --save "$T/cut" >"$T/cut.out" 2>/dev/null &
    PID=$!
    until [ "$(wc -l <"$T/cut.out")" -ge 8 ] || ! kill -0 "$PID" 2>/dev/null; do sleep 0.02; done
    kill -KILL "$PID"
    wait "$PID" 2>/dev/null
)
capture "$ULLAGE" train "${RUN[@]}" --save "$T/cut" --resume --buckets 16,32
is "gone on with other lengths" "$CODE" 1
like "is refused" "$ERR" "was trained with --buckets [0-9,]+: give it again"
capture "$ULLAGE" train "${RUN[@]}" --save "$T/cut" --resume
is "killed and gone on with" "$CODE" 0
# From a save of the whole run, since times are measured anew by each run and another plan adds in another order.
cp -r "$T/whole" "$T/again"
rm -r "$T/again/step-00000024"
capture "$ULLAGE" train "${RUN[@]}" --save "$T/again" --resume
is "gone on with from an earlier save" "$CODE" 0
is "it is the training that was never stopped" \
    "$(cmp "$T/whole/step-00000024/model.safetensors" "$T/again/step-00000024/model.safetensors" && echo same)" same

# --- less memory: other plans, the same documents ---
PEAK=$(tail -n 1 <<<"$OUT" | json "d['predicted_peak_bytes']")
capture "$ULLAGE" train "$GPT" --data "$T/ids.bin,documents=at:0" --memory $((PEAK * 3 / 4 + 50331648)) --precision fp32 --batch 8 \
    --buckets 9,20,41 --max-steps 2 -o json
is "lengths above the context" "$CODE" 1
like "are refused" "$ERR" "--buckets: 41 is above the 32 tokens that 'gpt-char:"
capture "$ULLAGE" train "$GPT" --data "$T/ids.bin,documents=at:0" --memory $((PEAK * 3 / 4 + 50331648)) --precision fp32 --batch 8 \
    --buckets 9,20,30 --max-steps 12 -o json
is "token files, in less memory" "$CODE" 0
is "it stays below" "$(of "d['measured_peak_bytes'] == d['expected_peak_bytes'] <= $((PEAK * 3 / 4))")" true
is "the lengths are those" "$(of "[b['length'] for b in d['buckets']]")" '[9, 20, 30]'

# --- a file of ONNX with an open length ---
FILE=$(dirname "${BASH_SOURCE[0]}")/../../data/onnx/gpt-small-time.onnx
RUN=("$FILE:time=16" --data "$T/text.txt,documents=lines" --memory 128MiB --precision fp32 --batch 8 --max-steps 9 --save-every 6 --threads 1 -o ndjson)
capture "$ULLAGE" train "${RUN[@]}" --buckets 6,11,16 --save "$T/file"
is "a file's model on documents" "$CODE" 0
like "as long as was said" "$ERR" "longer than the longest sample, 16 tokens"
check "steps of several lengths are those of one" python3 - <<PYTHON
import json, subprocess
def run(lengths):
    return [json.loads(line) for line in lengths.splitlines()]
several = run('''$OUT''')
assert [b['length'] for b in several[-1]['buckets']] == [6, 11, 16], several[-1]
assert len({step['length'] for step in several[:-1]}) > 1
one = run(subprocess.run(['$ULLAGE', 'train', *'''$(printf '%s\n' "${RUN[@]}")'''.split('\n'), '--buckets', '16'], capture_output=True, text=True, check=True).stdout)
assert {step['length'] for step in one[:-1]} == {16}
for a, b in zip(several[:-1], one[:-1]):
    assert abs(a['loss'] - b['loss']) < 1e-3 * b['loss'], (a, b)
PYTHON
cp -r "$T/file" "$T/file.again"
rm -r "$T/file.again/step-00000009"
capture "$ULLAGE" train "${RUN[@]}" --buckets 6,11,16 --save "$T/file.again" --resume
is "gone on with" "$CODE" 0
is "it is the same training" "$(cmp "$T/file/step-00000009/model.safetensors" "$T/file.again/step-00000009/model.safetensors" && echo same)" same
capture "$ULLAGE" eval "$T/file" --data "$T/text.txt" --generate 30
is "it writes what is in the text, though it has more classes" "$CODE:$(tr -d 'a-h\n' <<<"$OUT")" 0:
capture "$ULLAGE" train "$FILE:time=16" --data synthetic --max-steps 1 --eval-samples 2
is "made-up data has the file's classes" "$CODE" 0

# --- what is refused ---
for list in 20,9 9,9 0,4 a '9,'; do
    capture "$ULLAGE" train "$GPT" --data "$T/text.txt,documents=lines" --buckets "$list"
    is "--buckets $list" "$CODE" 2
    like "says what it takes" "$ERR" "expected up to 16 ascending numbers of tokens"
done
capture "$ULLAGE" train "$GPT" --data "$T/text.txt" --buckets 9,20
is "lengths for what are no documents" "$CODE" 1
like "are refused" "$ERR" "--buckets is for documents"
printf 'aaaa\nbbbb\n\ncccc\n' >"$T/same.txt"
capture "$ULLAGE" train "$GPT" --data "$T/same.txt,documents=lines,split=none" --memory 128MiB --batch 2 --max-steps 3 -o json
is "all of one length" "$CODE:$(of "[b['length'] for b in d['buckets']]")" 0:'[8]'

done_testing
