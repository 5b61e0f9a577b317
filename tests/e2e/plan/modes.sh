#!/usr/bin/env bash
#
# `ullage plan` of an inference, over several cards, and for the machine it runs on.
#
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

plan() {
    capture "$ULLAGE" plan "$@"
}
figure() { # EXPRESSION: of the last plan in JSON
    json "$1" <<<"$OUT"
}
refused() { # NAME EXIT PATTERN OPTION...
    plan "${@:4}"
    is "$1" "$CODE" "$2"
    like '... says why' "$ERR" "$3"
    is '... and prints no result' "$OUT" ''
}

plan gpt2-124m --mode inference --weights int8 --context 512 --requests 64 --device t4 -m 8GiB -o json
is 'an inference' "$CODE:$(figure '[d["mode"], d["weights"], d["feasible"]]')" '0:["inference", "int8", true]'
is '... has a cache of keys and values' "$(figure 'd["components"]["cache"]')" $((2 * 12 * 768 * 2 * 512 * 64))
is '... components are the peak' "$(figure 'sum(d["components"].values()) == d["peak_bytes"]')" true
most=$(figure 'd["requests_most"]')
plan gpt2-124m --mode inference --weights int8 --context 512 --requests "$most" --device t4 -m 8GiB
is '... as many requests as are said fit' "$CODE:$ERR" 0:
is '... in 80 columns' "$(awk 'length > 80' <<<"$OUT" | wc -l)" 0
plan gpt2-124m --mode inference --weights int8 --context 512 --requests $((most + 1)) --device t4 -m 8GiB -o json
is '... one more does not' "$CODE:$(figure 'd["feasible"]')" 1:false
smallest=$(figure 'd["smallest_feasible_bytes"]')
plan gpt2-124m --mode inference --weights int8 --context 512 --requests $((most + 1)) --device t4 -m "$smallest"
is '... but with the budget that is said' "$CODE" 0
plan llama --mode inference --weights bf16 --device h200 --requests 300 --fit --ladder -o json
is '... devices that hold one' "$(figure '[f["device"] for f in d["fit"]]')" '["rtx4090", "jetson-agx", "a100-80g", "h200"]'
is '... and budgets' "$(figure 'd["ladder"][-1]["budget_bytes"] == d["smallest_feasible_bytes"]')" true
plan llama --mode inference --weights bf16 --device h200 --requests 300 --fit
like '... those that do not, and why' "$OUT" 't4 .* cannot compute in bf16.*cpu .*does not hold it: [0-9.]+ GiB'
refused 'a batch that overflows' 2 'larger than there can be' resnet50:image=2160x3840 --mode inference -b 4294967296
refused 'requests of what keeps nothing' 2 'no causal attention' resnet18 --mode inference --requests 4
refused 'an option of the other mode' 2 '--optimizer is not of --mode inference' mlp --mode inference --optimizer sgd
refused 'and the other way round' 2 '--weights is not of --mode training' mlp --weights fp8
refused 'weights that are none' 2 'expected fp32, fp16' mlp --mode inference --weights fp4
refused 'a mode that is none' 2 'expected training or inference' mlp --mode both

plan llama:layers=4,width=1024,heads=4,kv_heads=4,hidden=2048,vocab=1000,context=512 --batch 24 --devices 3 --parallel pipeline --device t4 -o json
is 'a pipeline' "$CODE:$(figure '[d["parallel"]["kind"], len(d["parallel"]["stages"])]')" '0:["pipeline", 3]'
is '... what most needs is the peak' "$(figure 'max(s["peak_bytes"] for s in d["parallel"]["stages"]) == d["peak_bytes"]')" true
is '... with micro-batches in flight' "$(figure '[s["in_flight"] for s in d["parallel"]["stages"]]')" '[3, 2, 1]'
run=$(figure 'd["parallel"]["run"]')
like '... budgets for a run' "$run" '^-m 0=[0-9]+MiB,1=[0-9]+MiB,2=[0-9]+MiB$'
plan gpt-char --batch 16 --devices 3 --parallel model --device t4
is 'layers over cards' "$CODE:$ERR" 0:
like '... say which lie where' "$OUT" '2  h\.[0-9]+ \.\. ln_f\.weight'
like '... and how to run it' "$OUT" 'ullage run -m 0=[0-9]+MiB,1='
is '... in 80 columns' "$(awk 'length > 80' <<<"$OUT" | wc -l)" 0
plan gpt-char --batch 16 --devices 4 --device t4
like 'shared by the batch' "$OUT" 'whole model and 4 samples.*ullage run -m 0=([0-9]+)MiB,1=\1MiB,2='
refused 'more cards than parts' 2 'too few for 40 devices' gpt-char --devices 40 --parallel model
refused 'a way to share that is none' 2 'expected data, model or pipeline' gpt-char --devices 2 --parallel tensor
refused 'sharing with nobody' 2 'expected --devices 2' gpt-char --parallel model
refused 'one card only' 2 'are of one device' gpt-char --devices 2 --parallel model --ladder

plan --calibrate "$T/here.json"
is 'this machine, measured' "$CODE:$OUT:$ERR" 0::
is '... has all figures above 0' "$(OUT=$(cat "$T/here.json") && figure 'all(v > 0 for v in d.values() if isinstance(v, (int, float)))')" true
plan lenet --device "$T/here.json" -o json
is '... is a device' "$CODE:$(figure 'd["device"]')" 0:cpu
# A table of one's own: fast with a workspace of four times the pictures, slow without.
table() { # OP SLOWDOWN FILE
    python3 - "$T/here.json" "$T/$3" "$1" "$2" <<'EOF'
import json, sys
d = json.load(open(sys.argv[1]))
d["algorithms"] = [{"op": sys.argv[3], "algorithms": [
    {"name": "copies", "input": 4, "output": 4, "slowdown": 1},
    {"name": "bare", "slowdown": float(sys.argv[4])}]}]
json.dump(d, open(sys.argv[2], "w"))
EOF
}
table conv2d 1.01 table.json
plan resnet20 --batch 64 --precision fp32 --host-memory 0 --device "$T/table.json" -o json
is 'a table of algorithms: with room all are the fastest' "$CODE:$(figure 'd["decision"]["algorithms"]')" '0:[]'
smallest=$(figure 'd["smallest_feasible_bytes"]') fastest=$(figure 'd["step_seconds"]')
plan resnet20 --batch 64 --precision fp32 --host-memory 0 --device "$T/table.json" -m "$smallest" -o json
is '... with little, some take less' "$(figure '{(a["algorithm"], a["workspace_bytes"]) for a in d["decision"]["algorithms"]} == {("bare", 0)}')" true
plan resnet20 --batch 64 --precision fp32 --host-memory 0 --device "$T/table.json" --max-workspace 1KiB -o json
is '... within a bound all are the slower ones' "$CODE:$(figure "d['decision']['algorithms'] == [] and d['step_seconds'] > $fastest")" 0:true
table conv3d 1.01 bad.json
refused 'a table for an operator that there is not' 1 'class 1: "op"' lenet --device "$T/bad.json"
table conv2d 0.5 bad.json
refused 'an algorithm that is faster than the fastest' 1 'class 1: "slowdown"' lenet --device "$T/bad.json"
refused 'a profile that cannot be written' 1 'none' --calibrate "$T/none/here.json"
refused 'two things on standard output' 2 'expected a file' lenet --calibrate -
refused 'a device that is measured and named' 2 'expected no --device' --calibrate "$T/here.json" --device t4

done_testing
