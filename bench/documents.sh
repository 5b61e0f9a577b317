#!/bin/bash
#
# documents.sh: what a plan for each of some lengths gains over filling every document up to the longest:
#
#   examples/king-james.sh king-james.txt
#   bench/documents.sh build/release/ullage king-james.txt [ROUNDS]
#
# Each line is a document. The same steps of the same training, in turns; tokens that count a second of wall time and a
# second of the processor's (which other programs disturb less), medians of the rounds.

set -eu

if [ $# -lt 2 ]; then
    echo "usage: $0 ULLAGE TEXT [ROUNDS]" >&2
    exit 2
fi
ULLAGE=$1 TEXT=$2 ROUNDS=${3:-5}
T=$(mktemp -d)
trap 'rm -rf "$T"' EXIT

# Both have planning in their processor time: a run of one step more or less is what is taken off.
run() {
    local name=$1 steps=$2
    shift 2
    /usr/bin/env python3 - "$T/$name" "$ULLAGE" train gpt-char:context=536 --data "$TEXT,documents=lines" --precision fp32 \
        --eval-samples 1 --max-steps "$steps" -o ndjson "$@" <<'PYTHON'
import json, resource, subprocess, sys
done = subprocess.run(sys.argv[2:], stdout=subprocess.PIPE, check=True)
steps = [json.loads(line) for line in done.stdout.splitlines()]
tokens = sum(s['tokens_per_second'] * 32 / s['samples_per_second'] for s in steps[:-1])
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(tokens, steps[-1]['seconds'], used.ru_utime + used.ru_stime, steps[-1]['measured_peak_bytes'],
      steps[-1]['measured_peak_bytes'] == steps[-1]['expected_peak_bytes'], file=open(sys.argv[1], 'a'))
PYTHON
}
STEPS=${STEPS:-64}
for ((i = 0; i < ROUNDS; i++)); do
    run buckets "$STEPS"
    run longest "$STEPS" --buckets 536
    run buckets.begin 1
    run longest.begin 1 --buckets 536
done
python3 - "$T" <<'PYTHON'
import statistics, sys
def rows(name):
    return [[float(x) if x[0].isdigit() else x for x in line.split()] for line in open(sys.argv[1] + '/' + name)]
wall, cpu = {}, {}
for name in ('buckets', 'longest'):
    full, begin = rows(name), rows(name + '.begin')
    wall[name] = [r[0] / r[1] for r in full]
    cpu[name] = [(r[0] - b[0]) / (r[2] - b[2]) for r, b in zip(full, begin)]
    print(f"{name}: {statistics.median(wall[name]):.0f} tokens a second ({min(wall[name]):.0f} to {max(wall[name]):.0f}), "
          f"{statistics.median(cpu[name]):.0f} a second of a processor ({min(cpu[name]):.0f} to {max(cpu[name]):.0f}), "
          f"peak {full[0][3] / 2**20:.1f} MiB, as predicted: {full[0][4]}")
for what, of in (('wall time', wall), ('processor time', cpu)):
    r = [a / b for a, b in zip(of['buckets'], of['longest'])]
    print(f"{what}: {statistics.median(r):.2f} times as many tokens ({min(r):.2f} to {max(r):.2f})")
PYTHON
