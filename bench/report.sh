#!/usr/bin/env bash
# report.sh: how long `ullage report` takes and what memory, on records of 1,000,000 events: recorded programs
# (bench/traces) played over and over, with and without a leak, and allocations of which none is freed. Takes the median of several runs, and prints a table
# and a line of JSON.
#
#   bench/report.sh [BUILD_DIR [RUNS]]
set -eu
cd "$(dirname "$0")/.."
build=${1:-build/release}
runs=${2:-7}
events=1000000
write=$build/tests/verdict/write_record
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT

# measure FORMAT FILE: median of user and system seconds, of elapsed seconds, and the most KiB
measure() {
    for _ in $(seq "$runs"); do
        /usr/bin/time -f '%U %S %e %M' "$build/ullage" report -f "$1" -o /dev/null "$2" 2>&1
    done | awk '{ print $1 + $2, $3, $4 }' | sort -n | awk -v n="$runs" '
        { cpu[NR] = $1; wall[NR] = $2; if ($3 > most) most = $3 }
        END { m = int((n + 1) / 2); print cpu[m], wall[m], most }'
}

printf '%-20s %-6s %-6s %10s %10s %10s  %s\n' trace leak format 'cpu s' 'wall s' MiB verdict
first=
json=
for trace in resnet50_b64 gpt2_varlen kept; do
    for leak in 0 1024; do
        if [ "$trace" != kept ]; then
            "$write" trace "bench/traces/$trace.csv.gz" "$events" "$leak" "$place/record"
        elif [ "$leak" = 0 ]; then
            "$write" kept "$events" "$place/record"
        else
            break
        fi
        verdict=$("$build/ullage" report -f json "$place/record" | sed -n 's/^  "verdict": "\(.*\)",$/\1/p')
        for format in text json; do
            read -r cpu wall kib < <(measure "$format" "$place/record")
            printf '%-20s %-6s %-6s %10s %10s %10s  %s\n' "$trace" "$leak" "$format" "$cpu" "$wall" \
                "$((kib / 1024))" "$verdict"
            json="$json${first}{\"trace\": \"$trace\", \"leak\": $leak, \"format\": \"$format\", \"cpu_s\": $cpu, \"wall_s\": $wall, \"mib\": $((kib / 1024)), \"verdict\": \"$verdict\"}"
            first=', '
        done
    done
done
printf '{"commit": "%s", "machine": "%s", "events": %s, "runs": [%s]}\n' \
    "$(git rev-parse --short HEAD)" "$(uname -m)" "$events" "$json"
