#!/usr/bin/env bash
#
# ullage run --suspendable: programs that are suspended again and again compute what they compute alone.
#
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
# shellcheck source=tests/e2e/suspend/gated_lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/gated_lib.sh"
cards 6GiB,6GiB

scene rounds 2 progress FILE.progress init 0 alloc 1MiB 6 alloc 5000 10 alloc 5MiB 1 rounds 200 5 wait FILE.go rounds 100 5 sum
scene churn 2 init 0 alloc 1MiB 2 churn 200 5 wait FILE.go small 200 2 sum
scene async 2 init 0 alloc 1MiB 1 async 30 40 wait FILE.go async 10 5 sum
scene peer 2 init 0 peer 80 20 wait FILE.go peer 20 5 sum

# Threads that launch all the time: every launch runs once, none while the job is suspended.
start_job threads progress "$T/threads" init 0 threads 2 "$T/enough"
wait_for 10 grep -q launching "$T/$JOB.out"
WRONG=''
# shellcheck disable=SC2317 # by wait_for
goes_on() {
    [ "$(count_of "$T/threads")" -gt "$1" ]
}
for _ in 1 2 3; do
    "$ULLAGE" suspend -q threads || WRONG+="it was not suspended; "
    before=$(count_of "$T/threads")
    sleep 0.1
    [ "$(count_of "$T/threads")" = "$before" ] || WRONG+="launches while it was suspended; "
    only_what_stays threads || WRONG+="on the card there are $STAYS; "
    "$ULLAGE" resume -q threads || WRONG+="it was not resumed; "
    wait_for 10 goes_on "$before" || WRONG+="it did not go on; "
done
touch "$T/enough"
wait_for 30 gone "$JOB"
is "threads: nothing was out of order" "$WRONG" ""
is "threads: no launch is lost" "$(<"$T/$JOB.out")" $'launching\nlost 0\nlaunches some'

# Many small blocks.
start_job small init 0 alloc 4KiB 10000 touch "$T/small" wait "$T/small.go" rounds 50 0 sum
wait_for 30 test -e "$T/small"
between "10,000 blocks of 4 KiB take what they take without us" "$(used_by_all)" $((40 * MIB)) $((150 * MIB))
"$ULLAGE" suspend -q small
check "small: suspended, only contexts are on the card" only_what_stays small
between "small: what was moved" "$(job_value small evicted_bytes)" $((39 * MIB)) $((50 * MIB))
touch "$T/small.go"
"$ULLAGE" resume -q small
wait_for 30 gone "$JOB"
timeout 60 "$WORKER" init 0 alloc 4KiB 10000 rounds 50 0 sum >"$T/small.alone"
is "small: the same to the last bit" "$(<"$T/$JOB.out")" "$(<"$T/small.alone")"

# What the driver says of the addresses.
timeout 60 "$WORKER" init 0 alloc 5000 3 alloc 3MiB 1 pointers free 1 pointers >"$T/pointers.alone"
run -q -m 5GiB --suspendable -- "$WORKER" init 0 alloc 5000 3 alloc 3MiB 1 pointers free 1 pointers
is "pointers look as those of cuMemAlloc" "$OUT" "$(<"$T/pointers.alone")"

# Without --suspendable no gate is on any path, and without CUDA nothing happens.
handed_out() { # OPTION...: whose is the entry point that the program gets for a launch?
    run -q -m 5GiB "$@" -- python3 -c '
import ctypes, os
class Info(ctypes.Structure):
    _fields_ = [("file", ctypes.c_char_p), ("base", ctypes.c_void_p), ("name", ctypes.c_char_p), ("at", ctypes.c_void_p)]
cu = ctypes.CDLL("libcuda.so.1")
cu.cuInit(0)
p, info = ctypes.c_void_p(), Info()
result = cu.cuGetProcAddress_v2(b"cuLaunchKernel", ctypes.byref(p), 12000, ctypes.c_uint64(0), None)
ctypes.CDLL(None).dladdr(p, ctypes.byref(info))
print(result, os.path.basename(info.file.decode()))'
    echo "$OUT"
}
is "without --suspendable a launch goes straight to the driver" "$(handed_out)" "0 libcuda.so.1"
is "with it, through the gate" "$(handed_out --suspendable)" "0 libullage-preload.so"
done_testing
