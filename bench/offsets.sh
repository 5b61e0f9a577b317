#!/usr/bin/env bash
#
# offsets.sh: how long `ullage plan --offsets` takes for MiniMalloc's eleven hard instances, each at the capacity for
# which it was made. Wall-clock and processor time of the whole program, medians of several runs; the machine's other
# work shows in the first. The number of nodes is the same in every run and on every machine.
#
# With MINIMALLOC=PROGRAM, a build of MiniMalloc takes turns with it, instance by instance.
#
# Usage: bench/offsets.sh [BUILD_FOLDER [RUNS]]    (default build/release, 3)

set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$(cd "${1:-$root/build/release}" && pwd)
runs=${2:-3}
capacity=1048576
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export LC_ALL=C
TIMEFORMAT='%R %U'

median() {
    sort -n | awk '{ value[NR] = $1 } END { print value[int((NR + 1) / 2)] }'
}

printf '%-10s %8s %10s %9s %9s' instance buffers nodes seconds cpu
[ -n "${MINIMALLOC:-}" ] && printf ' %10s' minimalloc
printf '\n'
for file in "$root"/bench/minimalloc/*.csv; do
    name=$(basename "$file" ".$capacity.csv")
    : >"$work/times"
    : >"$work/other"
    for ((run = 0; run < runs; run++)); do
        { time "$build/ullage" plan --offsets "$file" --capacity $capacity -o json >"$work/$name.json"; } \
            2>>"$work/times"
        if [ -n "${MINIMALLOC:-}" ]; then
            { time "$MINIMALLOC" --capacity=$capacity --input="$file" --output="$work/other.csv" \
                >"$work/other.log" 2>&1; } 2>>"$work/other"
        fi
    done
    seconds=$(cut -d' ' -f1 "$work/times" | median)
    cpu=$(cut -d' ' -f2 "$work/times" | median)
    nodes=$(sed -n 's/.*"nodes": \([0-9]*\).*/\1/p' "$work/$name.json")
    buffers=$(sed -n 's/.*"buffers": \([0-9]*\).*/\1/p' "$work/$name.json")
    printf '%-10s %8d %10d %9.3f %9.3f' "$name" "$buffers" "$nodes" "$seconds" "$cpu"
    [ -n "${MINIMALLOC:-}" ] && printf ' %10.3f' "$(cut -d' ' -f1 "$work/other" | median)"
    printf '\n'
    echo "$name $seconds $cpu" >>"$work/all"
done
awk '{ seconds += $2; cpu += $3 } END { printf "%-10s %8s %10s %9.3f %9.3f\n", "sum", "", "", seconds, cpu }' "$work/all"
printf '{"commit": "%s", "machine": "%s", "seconds": {' "$(git -C "$root" rev-parse --short HEAD)" "$(uname -m)"
awk '{ printf "%s\"%s\": %s", (NR > 1 ? ", " : ""), $1, $2 } END { print "}}" }' "$work/all"
