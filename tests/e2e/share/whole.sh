#!/usr/bin/env bash
#
# Two jobs of 5 GiB on a card of 6 GiB, in whole: every byte is real, so it needs 14 GiB of the host.
#
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
# shellcheck source=tests/e2e/share/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

if [ "$(awk '/^MemAvailable/ { print int($2 / 1048576) }' /proc/meminfo)" -lt 14 ]; then
    skip "two of 5 GiB on 6" "the host has less than 14 GiB left"
    done_testing
fi
cards 6GiB
configure "slice = 5s" "allocation_wait = 300s"
start_daemon
jobs=()
for job in one two; do
    spawn "$ULLAGE" run -q --suspendable -m 5GiB --name $job -- "$GUESTS/share" 5 940MiB 1
    jobs+=("$PID")
done
# shellcheck disable=SC2317 # by wait_for
one_is_out() { [ "$(ps_json "any(j['state'] == 'suspended' and j['evicted_bytes'] > 2 << 30 for j in d['jobs'])")" = true ]; }
check "one is out while the other works" wait_for 200 one_is_out
for job in "${jobs[@]}"; do
    wait_for 300 gone "$job"
    is "a job of 5 GiB ends well, every byte as it was" "$(tail -n 1 "$T/$job.out")$(<"$T/$job.err")" right
done
done_testing
