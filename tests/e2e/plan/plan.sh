#!/usr/bin/env bash
#
# `ullage plan`: figures for scripts, the table for people, promises on either side of a budget, bad input.
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

plan resnet20 --batch 64 --memory 1GiB --device h200 -o json
is 'a budget that is enough' "$CODE:$(figure 'd["feasible"]')" 0:true
is '... for a published model' "$(figure 'd["parameters"]')" 269722
is '... is kept' "$(figure 'd["peak_bytes"] + d["outside_arena_bytes"] <= d["budget_bytes"]')" true
is '... with components that are the peak' "$(figure 'sum(d["components"].values()) == d["peak_bytes"]')" true
is '... and a batch that is kept' "$(figure 'd["micro_batch"] * d["accumulation"] >= d["batch"] == 64')" true
smallest=$(figure 'd["smallest_feasible_bytes"]')
fast=$(figure 'd["step_seconds"]')

plan resnet20 --batch 64 --memory "$smallest" --device h200 -o json
is 'the smallest budget works' "$CODE:$(figure 'd["feasible"]')" 0:true
is '... and is slower' "$(figure "d['step_seconds'] > $fast")" true
plan resnet20 --batch 64 --memory $((smallest - 1)) --device h200 -o json
is 'a byte less does not' "$CODE:$(figure 'd["feasible"]')" 1:false
like '... and says which would' "$ERR" "$smallest bytes"
is '... also in JSON' "$(figure 'd["smallest_feasible_bytes"]')" "$smallest"

plan resnet20 --batch 64 --memory 700MiB --device h200 -o json
first=$(figure '{k: v for k, v in d.items() if k != "planning_seconds"}')
plan resnet20 --batch 64 --memory 700MiB --device h200 -o json
is 'the same question has the same answer' "$(figure '{k: v for k, v in d.items() if k != "planning_seconds"}')" "$first"

plan resnet18 --batch 64 --memory 1GiB --device h200 --ladder
is 'the table' "$CODE:$ERR" 0:
like '... has components' "$OUT" 'optimizer state +89\.[0-9] MiB'
like '... and reasons' "$OUT" 'The smallest budget that works is'
like '... and the rule of thumb' "$OUT" 'By rule of thumb'
like '... and a ladder' "$OUT" '> +[0-9.]+ [MG]iB'
is '... in 80 columns' "$(awk 'length > 80' <<<"$OUT" | wc -l)" 0

plan resnet20 --batch 64 --memory 1GiB --device h200 --html "$T/page.html"
is 'a page' "$CODE:$(grep -c '<script>' "$T/page.html")" 0:1
unlike '... that loads nothing' "$(cat "$T/page.html")" '(src|href)='
refused 'a page that cannot be written' 1 'no such folder|No such file' resnet20 --device h200 --html "$T/none/page.html" -o json

plan resnet50:image=2160x3840 --batch 4 --memory 8GiB --device h200 -o json
is 'pictures of 8 million points in 8 GiB' "$CODE:$(figure 'd["feasible"]')" 0:true
is '... by making much again' "$(figure 'd["recomputed_bytes"] > 5e9')" true
plan gpt2-1558m --batch 8 --memory 24GiB --device h200 -o json
is 'a model of over a billion weights' "$CODE:$(figure 'd["feasible"]')" 0:true
is '... its state is what weighs most' "$(figure 'max(d["components"], key=d["components"].get)')" optimizer_state
plan mlp --batch 10 --memory 1GiB --precision fp32 --optimizer sgd --device cpu -o json
is 'a small one in 32 bits' "$CODE:$(figure 'd["precision"]')" 0:fp32
is '... without any technique' "$(figure 'len(d["techniques"])')" 0

plan resnet20 --batch 64 --device h200 --like torch:amp+ga8,fp32 -o json
is "PyTorch's need, in the modes that were asked for" "$(figure '[t["mode"] for t in d["torch"]]')" '["amp+ga8", "fp32"]'
is '... smaller in parts' "$(figure '0 < d["torch"][0]["peak_bytes"] < d["torch"][1]["peak_bytes"]')" true
plan resnet20 --batch 64 --device h200 --like torch
like '... or in all of them' "$OUT" 'amp-fp16\+ga8 +[0-9.]+ MiB'
plan mlp --batch 64 --device h200 --fit -o json
is 'devices that hold it' "$(figure '[f["memory_bytes"] for f in d["fit"]] == sorted(f["memory_bytes"] for f in d["fit"]) and len(d["fit"]) == 7')" true
refused 'a mode that is none' 2 "'amp\+x' of it is not known" resnet20 --like torch:fp32,amp+x

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
refused 'a profile that cannot be written' 1 'none' --calibrate "$T/none/here.json"
refused 'two things on standard output' 2 'expected a file' lenet --calibrate -
refused 'a device that is measured and named' 2 'expected no --device' --calibrate "$T/here.json" --device t4

refused 'an unknown model' 2 'did you mean resnet50' resnet51
refused 'a bad argument' 2 "no argument 'size=3'" resnet50:size=3
refused 'a budget that is none' 2 'expected' resnet18 --memory much
refused 'a batch of 0' 2 "batch is '0'" resnet18 --batch 0
refused 'a batch that is no number' 2 "batch is 'x'" resnet18 --batch x
refused 'an unknown device' 2 'expected a file .* h200' resnet18 --device h300
refused 'a missing profile' 1 'none\.json' resnet18 --device ./none.json
echo '{"name": "mine", "memory_bytes": -1}' >"$T/bad.json"
refused 'a bad profile' 1 'memory_bytes' resnet18 --device "$T/bad.json"
refused 'groups that do not divide' 2 'groups of 5' resnet18 --batch 64 --bn-group 5
refused 'shapes that do not fit' 2 'smaller' unet:image=3
refused 'no model' 2 'no model'
refused 'two models' 2 'too much' resnet18 resnet34
refused 'a size that overflows' 2 'larger than there can be' gpt2-124m:context=16777216,width=16777152 --batch 4294967296
plan resnet18 --memory 1MiB --device h200
is 'a budget below the parameters' "$CODE" 1
like '... names the smallest' "$ERR" 'the smallest plan needs [0-9]+ bytes'

done_testing
