#!/usr/bin/env bash
#
# ullage run --suspendable: what keeps a device from coming to rest is waited for or named, and never broken.
#
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
# shellcheck source=tests/e2e/suspend/gated_lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/gated_lib.sh"
cards 6GiB

for mode in 0 1 2; do
    start_job "capture$mode" init 0 alloc 1MiB 2 capture "$T/c$mode" $mode replay 5 1 touch "$T/r$mode" \
        wait "$T/s$mode" replay 5 1 sum
    wait_for 20 grep -q capturing "$T/$JOB.out"
    capture "$ULLAGE" suspend --timeout 2 "capture$mode"
    is "mode $mode: an open capture: refused in time" "$CODE" 1
    like "mode $mode: it names the stream" "$ERR" 'capture is open on stream 0x[0-9a-f]+'
    wait_for 10 state_is "capture$mode" running
    spawn "$ULLAGE" suspend -q --timeout 60 "capture$mode"
    suspend=$PID
    sleep 0.3
    check "mode $mode: suspension waits for its end" test -e "/proc/$suspend"
    touch "$T/c$mode"
    wait_for 20 gone "$suspend"
    is "mode $mode: then the job is suspended" "$(job_value "capture$mode" state)" suspended
    "$ULLAGE" resume -q "capture$mode"
    wait_for 20 test -e "$T/r$mode"
    "$ULLAGE" suspend -q "capture$mode"
    "$ULLAGE" resume -q "capture$mode"
    touch "$T/s$mode"
    wait_for 20 gone "$JOB"
    touch "$T/there"
    timeout 60 "$WORKER" init 0 alloc 1MiB 2 capture "$T/there" $mode replay 5 1 replay 5 1 sum >"$T/alone"
    is "mode $mode: the graph was captured and replays the same" "$(<"$T/$JOB.out")" "$(<"$T/alone")"
done

for word in flag callback; do
    start_job $word init 0 alloc 1MiB 2 $word "$T/$word" touch "$T/$word.over" wait "$T/$word.end" sum
    wait_for 20 grep -q waiting "$T/$JOB.out"
    capture "$ULLAGE" suspend --timeout 3 $word
    is "$word: what waits for the host is refused in the end" "$CODE" 1
    like "$word: it names the stream" "$ERR" 'stream 0x[0-9a-f]+'
    wait_for 10 state_is $word running
    is "$word: the job runs" "$(job_value $word state) $(job_value $word evicted_bytes)" "running 0"
    touch "$T/$word"
    wait_for 20 test -e "$T/$word.over"
    capture "$ULLAGE" suspend -q $word
    is "$word: after that it can be suspended" "$CODE" 0
    touch "$T/$word.end"
    "$ULLAGE" resume -q $word
    wait_for 20 gone "$JOB"
    timeout 60 "$WORKER" init 0 alloc 1MiB 2 $word "$T/$word" sum >"$T/alone"
    is "$word: the same to the last bit" "$(<"$T/$JOB.out")" "$(<"$T/alone")"
done
done_testing
