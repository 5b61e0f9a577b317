#!/bin/bash
# account.sh: what a record adds up to is what the books hold, to the byte: per process and class, and for the job.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
reader=$(dirname "${BASH_SOURCE[0]}")/record.py

# Peaks of the record against those of the ledger, for each process and class, and for the job; what the record has left
# when a process says that it ends; and that nothing was dropped. Prints what differs.
#
# loose   with several threads a record may be short of the ledger's peaks, which know of others' reservations
# shared  the same for processes that are left with memory of others, which the ledger counts for the job only
compare() { # [loose|shared]
    python3 "$reader" "$T/record" >"$T/record.json" || return
    python3 - "$T/record.json" "$T/report" "${1:-}" <<'END'
import json
import sys

record, job = json.load(open(sys.argv[1])), json.load(open(sys.argv[2]))["jobs"][0]
for process in job["processes"]:
    pid = str(process["pid"])
    for device in process["devices"]:
        for name, peak in device["peak_by_class"].items():
            got = record["peak"].get(pid, {}).get(name, 0)
            if got > peak and sys.argv[3] != "shared" or got < peak and not sys.argv[3]:
                print(f"process {pid} {name}: ledger {peak}, record {got}")
for device in job["devices"]:
    got = record["peak_total"].get(device["uuid"], 0)
    if got > device["peak_bytes"] or (got < device["peak_bytes"] and not sys.argv[3]):
        print(f"peak of the job: ledger {device['peak_bytes']}, record {got}")
for pid, classes in record["held"].items():
    if any(value < 0 for value in classes.values()):
        print(f"process {pid} has less than nothing at the end: {classes}")
if record["dropped"] or record["torn"] or record["unread"]:
    print("dropped", record["dropped"], "torn", record["torn"], "unread", record["unread"])
END
}

export ULLAGE_FAKE_CONTEXT=100MiB
seeds=${SEEDS:-4711 4712 4713}
for seed in $seeds; do
    steps=400
    if ((seed % 2 == 0)); then # each call slow by another time: others look at the books in the middle of it
        export ULLAGE_FAKE_DELAY=every=0-200us
        steps=150
    fi
    run -q -m 75% --record "$T/record" --report "$T/report" -- "$GUESTS/account_kinds" "$seed" $steps
    unset ULLAGE_FAKE_DELAY
    is "random program, seed $seed" "$CODE $ERR" '0 '
    is "its record adds up to the books" "$(compare)" ''
    is "and to nothing at the end" \
        "$(json 'sorted({v for c in d["last"].values() for v in c.values()})' "$T/record.json")" '[0]'
done

export ULLAGE_FAKE_CONTEXT=4MiB
for mode in linear async vmm mixed; do
    export ULLAGE_FAKE_TAG=$mode
    run -q -m 256MiB --record "$T/record" --report "$T/report" -- "$GUESTS/account_edge" "$mode" 16 400 1000
    is "$mode: 16 threads at the edge end well" "$CODE $ERR" '0 '
    is "their record is within the books" "$(compare loose)" ''
    is "refusals are in it" \
        "$(json 'd["counts"]["alloc"] > 0 and any(e["result"] == 2 and e["wait"] for e in d["events"])' \
            "$T/record.json")" true
    is "nothing but the context is left" \
        "$(json 'sum(v for c in d["held"].values() for k, v in c.items() if k in ("data", "array"))' "$T/record.json")" 0
done

export ULLAGE_FAKE_CONTEXT=20MiB
for scene in names descriptors twice packed; do
    export ULLAGE_FAKE_TAG=$scene
    run -q -m 75% --record "$T/record" --report "$T/report" -- "$GUESTS/account_share" "$scene"
    is "memory in several processes ($scene)" "$CODE $ERR" '0 '
    is "their record is within the books" "$(compare shared)" ''
done
done_testing
