#!/bin/bash
# fault.sh: each driver call fails once, the first with an error of its own (999). The program sees the
# driver's code, and the account stays the card's.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

export ULLAGE_FAKE_CONTEXT=100MiB
once() {
    ULLAGE_FAKE_FAIL=$1 run -q -m 75% -- "$GUESTS/account_once"
}

once ''
is "without a failure all calls succeed" "$CODE $OUT $ERR" "0  "

# The n-th call that takes memory, for every n; what lies behind the last one fails nothing.
seen=0 wrong=() step=1
[ -z "$SANITIZED" ] || step=2 # as many as take half of the time
n=$((1 - step))
while :; do
    n=$((n + step))
    once "*:$n=999"
    [ "$CODE" = 0 ] || wrong+=("call $n: $ERR")
    # ullage's own calls (an array's twin) may fail unseen; two in a row that nobody saw are the end.
    if [ -n "$OUT" ]; then
        seen=$((seen + 1)) unseen=0
    else
        unseen=$((unseen + 1))
        [ "$unseen" -lt 4 ] || break
    fi
    [ "$n" -lt 100 ] || break
done
is "the n-th call fails: the account is right" "${wrong[*]:-}" ""
between "each kind of call was seen to fail ($seen of $n)" "$seen" $((18 / step)) 30

# Frees, and the questions that ullage asks the driver on its own.
wrong=()
for call in cuMemFree_v2:{1,2,3,4,5} cuMemFreeAsync:1 cuMemRelease:1 cuMemUnmap:1 cuArrayDestroy:{1,2,3,4,5} \
    cuMipmappedArrayDestroy:{1,2} cuGraphExecDestroy:1 cuCtxDestroy_v2:1 cuMemPoolDestroy:1 \
    cuDevicePrimaryCtxRelease_v2:1 cuStreamDestroy_v2:1 cuModuleUnload:1 cuIpcGetMemHandle:1 \
    cuMemPoolGetAttribute:{1,2,3,4,5,6} cuDeviceGetGraphMemAttribute:{1,2,3,4} \
    cuMemGetAddressRange_v2:1 cuDeviceGraphMemTrim:1 cuGraphInstantiateWithFlags:1 \
    cuCtxGetLimit:1 cuDevicePrimaryCtxGetState:{1,2} cuArrayGetMemoryRequirements:{1,2} \
    cuStreamIsCapturing:{1,2} cuMemGetAllocationGranularity:1; do
    once "$call=999"
    [ "$CODE" = 0 ] || wrong+=("$call: $ERR"$'\n')
done
is "frees and questions that fail" "${wrong[*]:-}" ""
done_testing
