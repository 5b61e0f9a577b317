#!/usr/bin/env bash
#
# `ullage plan` of files of ONNX: a renamed copy of a model of the zoo has its plan, and wrong files say what is wrong.
#
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

MODELS=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../data/onnx" && pwd)

plan() {
    capture "$ULLAGE" plan "$@" --device h200
}
facts() { # of the last plan in JSON: all but its name and how long it took
    # Names are those of the file; that they are as many is what counts.
    json 'd["decision"].update(drop=len(d["decision"]["drop"]), send=len(d["decision"]["send"])) or
        {k: v for k, v in d.items() if k not in ("model", "graph", "planning_seconds")}' <<<"$OUT"
}
refused() { # NAME EXIT PATTERN OPTION...
    plan "${@:4}"
    is "$1" "$CODE" "$2"
    like '... says why' "$ERR" "$3"
    is '... and prints no result' "$OUT" ''
}

cp "$MODELS/resnet18.onnx" "$T/some model"
plan resnet18 --batch 48 --memory 900MiB --like torch -o json
wanted=$(facts)
plan "$T/some model" --batch 48 --memory 900MiB --like torch -o json
is 'a renamed ResNet without its weights has a plan' "$CODE:$ERR" 0:
is '... that is the one of the zoo, PyTorch included' "$(facts)" "$wanted"

plan "$MODELS/attentions.onnx" --batch 7 --memory 4GiB -o json
is 'a file with a split whose parts are views has a plan' "$CODE:$ERR" 0:

cd "$T" || exit 1
cp "$MODELS/gpt-small-time.onnx" .
plan gpt-small-time.onnx:time=12,loss=mse --memory 1GiB -o json
is 'a size that is open, and another loss' "$CODE:$ERR" 0:
plan gpt-small-time.onnx:time=12 --memory 1GiB
is 'the table' "$CODE:$ERR" 0:
like '... names the file' "$OUT" 'gpt-small-time.onnx:time=12, '

refused 'an open size' 2 "'input' is open: give it a size, as MODEL:time=" gpt-small-time.onnx
refused 'a size that is not open' 2 "no open size 'tim'" gpt-small-time.onnx:time=12,tim=3
refused 'a size of 0' 2 'time=0: expected a number of at least 1' gpt-small-time.onnx:time=0
refused 'a loss that there is not' 2 'expected cross-entropy or mse' gpt-small-time.onnx:time=12,loss=l1
refused 'no such file' 1 'No such file' none.onnx
refused 'a folder' 1 'a folder' ./
refused 'another file' 1 'no model in the format of ONNX' "$ULLAGE"
head -c 20000 gpt-small-time.onnx >cut.onnx
refused 'a file that is cut off' 1 'cut off' cut.onnx:time=12
: >empty.onnx
refused 'an empty file' 1 'it is empty' empty.onnx
refused 'neither a name nor a file' 2 'a file of ONNX, or' xyzzyplugh
done_testing
