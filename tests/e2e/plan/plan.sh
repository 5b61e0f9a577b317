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

refused 'an unknown model' 2 'did you mean resnet50' resnet51
refused 'a bad argument' 2 "no argument 'size=3'" resnet50:size=3
refused 'a budget that is none' 2 'expected' resnet18 --memory much
refused 'a batch of 0' 2 "batch is '0'" resnet18 --batch 0
refused 'a batch that is no number' 2 "batch is 'x'" resnet18 --batch x
refused 'an unknown device' 2 'expected a file .* h200' resnet18 --device h300
refused 'threads of a card' 2 'expected device cpu, not h200' lenet --device h200 --threads 4
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
