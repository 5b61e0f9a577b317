#!/usr/bin/env bash
# Recording, reports and monitors on a real card: what they say of a PyTorch training against PyTorch, NVML and
# nvidia-smi, and what recording costs; under 240 s on an H200. Exit 0 if all checks passed.
#
#   tests/gpu/run_report.sh [OUTPUT_DIR]     on a machine with a GPU and PyTorch
#
# BUILD names a build that is there already (cmake without tests is enough); else build/gpu is made.
# QUICK=1 leaves out what query.sh and snapshot.py check; COST=1 measures what recording costs and nothing else (60 s).
set -u
cd "$(dirname "$0")/../.." || exit 1
out=${1:-build/gpu-results}
build=${BUILD:-build/gpu}
mkdir -p "$out"
# shellcheck source=tests/gpu/lib.sh
. tests/gpu/lib.sh

# value FILE EXPRESSION: of the JSON document d
value() { python3 -c 'import json, sys; d = json.loads(open(sys.argv[1]).read().strip().splitlines()[-1] if sys.argv[1].endswith(".line") else open(sys.argv[1]).read()); print(eval(sys.argv[2]))' "$1" "$2"; }
true_is() { python3 -c 'import sys; sys.exit(not eval(sys.argv[1]))' "$1"; }

what_recording_costs() {
    say "what recording costs"
    # A step takes some 50 ms; 16 pairs of turns. 2 %: the aim.
    python3 tests/gpu/record_cost.py --run=-m32GiB "$ullage" "$out" -- \
        python3 tests/gpu/recorded.py --turns --width 8192 --batch 8192 2>"$out/record-cost.err" | tee "$out/record-cost.txt"
    check "a step is long enough to tell" true_is "$(sed -n 's/^unrecorded 0: median \([0-9.]*\),.*/\1/p' "$out/record-cost.txt") >= 38"
    check "under 2 % of a step" true_is "$(sed -n 's/.* = //p' "$out/record-cost.txt") < 1.02"
    # Where every tensor is a call of the driver, with stacks: the most that recording has to do. Only told.
    echo "without PyTorch's cache, with --stacks:"
    PYTORCH_NO_CUDA_MEMORY_CACHING=1 python3 tests/gpu/record_cost.py --each 1 --rounds 7 --steps 5 \
        --run=-m32GiB --record=--stacks "$ullage" "$out" -- python3 tests/gpu/recorded.py --turns --width 8192 --batch 8192 \
        2>>"$out/record-cost.err" | tee "$out/record-cost-uncached.txt"
    "$ullage" report "$out/cost-0.ull" | head -n 12
}

build_for report ullage
ullage=$(cd "$build" && pwd)/ullage
export ULLAGE=$ullage

say "machine"
what_runs_here

if [ "${COST:-0}" = 1 ]; then
    what_recording_costs
    over
    exit
fi

say "a record of a training, against PyTorch and the ledger"
record=$out/train.ull
"$ullage" run -q -m 16GiB --record "$record" --stacks --report "$out/train.report.json" -- \
    python3 tests/gpu/recorded.py >"$out/train.line" 2>"$out/train.err"
check "the training ends well" [ $? = 0 ]
"$ullage" report "$record" -f json >"$out/train.json"
check "the record is read" [ $? = 0 ]
"$ullage" report "$record" | tee "$out/train.txt" | head -n 40
ours=$(value "$out/train.json" 'd["peak_bytes"]')
ledger=$(value "$out/train.report.json" 'd["jobs"][0]["devices"][0]["peak_bytes"]')
torch=$(value "$out/train.line" 'd["reserved_peak"]')
data=$(value "$out/train.report.json" 'd["jobs"][0]["devices"][0]["peak_by_class"]["data"]')
echo "peak: record $ours, ledger $ledger; data: ledger $data, PyTorch reserved $torch"
check "the record's peak is the ledger's" true_is "$ours == $ledger"
check "PyTorch's segments are in its class data" true_is "0 <= $data - $torch <= 256 << 20"
check "nothing was dropped" true_is "$(value "$out/train.json" 'd["dropped"]') == 0"
"$ullage" report "$record" -f torch -o "$out/train.pickle" && python3 - "$out/train.pickle" <<'END'
import pickle, sys
from torch.cuda import _memory_viz as viz
snapshot = pickle.load(open(sys.argv[1], "rb"))
viz.trace_plot(snapshot), viz.segment_plot(snapshot) # the others fetch a script from the network
END
check "PyTorch's own viewer takes the record" [ $? = 0 ]
for format in html perfetto; do
    check "-f $format" "$ullage" report "$record" -f $format -o "$out/train.$format"
done
ls -l "$record" "$out"/train.html "$out"/train.perfetto 2>/dev/null

say "a leak of 4 MiB a step"
"$ullage" run -q -m 16GiB --record "$out/leak.ull" -- python3 tests/gpu/recorded.py --steps 200 --leak 4194304 >/dev/null 2>&1
"$ullage" report "$out/leak.ull" -f json >"$out/leak.json"
value "$out/leak.json" '(d["verdict"], d["confidence"], d["evidence"])'
check "it is not taken for steady" true_is "'$(value "$out/leak.json" 'd["verdict"]')' in ('leak', 'cache', 'unknown')"

what_recording_costs

say "monitors beside a running job"
"$ullage" run -q -m 8GiB --name watched -- python3 tests/gpu/train.py --steps 5 --hold 12 >/dev/null 2>&1 &
sleep 9
"$ullage" top -n 1 | tee "$out/top.txt"
check "top shows the job" grep -q watched "$out/top.txt"
check "ps --check is true where it is" true_is "$("$ullage" ps --check 'held>1GiB' >/dev/null 2>&1; echo $?) == 1"
wait

if "$ullage" --help | grep -q sweep; then
    say "a sweep over limits"
    "$ullage" sweep -m 1GiB,2GiB,8GiB -- python3 tests/gpu/recorded.py --steps 15 2>/dev/null | tee "$out/sweep.txt"
    check "the sweep has three rows" true_is "$(grep -c 'GiB' "$out/sweep.txt") >= 3"
fi

if [ "${QUICK:-0}" != 1 ]; then
    say "query against nvidia-smi"
    check "query.sh" bash tests/gpu/query.sh "$out" >"$out/query-all.txt" 2>&1
    tail -n 2 "$out/query-all.txt"
    say "PyTorch's snapshots"
    check "snapshot.py" python3 tests/gpu/snapshot.py "$out/snapshots" >"$out/snapshot-all.txt" 2>&1
    grep -E '^FAILED|passed' "$out/snapshot-all.txt"
fi

over
