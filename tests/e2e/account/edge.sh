#!/bin/bash
# edge.sh: at the edge of the budget. What the card itself saw at most is never above it, not for an
# instant; and nobody is refused what fits.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

# Contexts of 4 MiB are charged whole to the process, so that the card's peak and the budget compare
# to the byte. One run lets ullage learn the size.
export ULLAGE_FAKE_CONTEXT=4MiB
run -q -- "$GUESTS/account_edge" linear 1 1 1

peak() {
    card "max([c['tags'].get('$1', {}).get('peak_used', 0) for c in d['cards']])"
}

seed=${SEED:-1000} # the same in every run; SEED=N tries another
echo "# seed $seed"
for mode in linear async vmm mixed; do
    export ULLAGE_FAKE_TAG=$mode
    run -q -m 256MiB -- "$GUESTS/account_edge" "$mode" 16 400 "$seed"
    is "$mode: 16 threads end well" "$CODE $ERR" "0 "
    between "$mode: the card's peak stays below the budget, and came close" "$(peak "$mode")" \
        $((200 * MIB)) $((256 * MIB))
    like "$mode: some were granted, some refused" "$OUT" "grants [0-9]+ refusals [1-9]"
done

for mode in linear async vmm mixed; do
    export ULLAGE_FAKE_TAG=$mode.many
    # shellcheck disable=SC2016 # expanded by the inner shell
    run -q -m 320MiB -- bash -c '
        for i in 1 2 3 4 5 6; do "$0" "$1" 4 200 $(($2 + i)) crowd "$3" 6 & pids+=" $!"; done
        for pid in $pids; do wait $pid || exit 1; done' \
        "$GUESTS/account_edge" "$mode" "$seed" "$T/$mode.crowd"
    is "$mode: 6 processes of 4 threads end well" "$CODE $ERR" "0 "
    between "$mode: the card's peak stays below the budget" "$(peak "$mode.many")" \
        $((200 * MIB)) $((320 * MIB))
done

# Who shares memory with others gives it back at the same moment as they do; the last to reach the driver frees it.
for call in cuMemFree_v2 cuMemRelease cuMemUnmap cuArrayDestroy cuIpcCloseMemHandle; do
    slow+=${slow:+,}$call=0-2ms
done
cards 6GiB # which tell 16 names apart
PRIMARY="cuDevicePrimaryCtxRetain cuDevicePrimaryCtxRelease_v2 cuDevicePrimaryCtxGetState"
for how in -q --suspendable; do
    for kind in packed:8 retained:6 arrays:8 names:10; do
        export ULLAGE_FAKE_TAG=${kind%:*}.$how
        ULLAGE_FAKE_DELAY=$slow run -q $how -m "${kind#*:}MiB" -- "$GUESTS/account_together" "${kind%:*}" 40
        is "${kind%:*} $how: given back by four threads at once" "$CODE $ERR" "0 "
        is "${kind%:*} $how: the card's peak is the budget" "$(peak "${kind%:*}.$how")" \
            $((${kind#*:} * MIB))
    done
    # Four that each have a page, in one primary context that ends and is made again all the time.
    export ULLAGE_FAKE_TAG=contexts.$how
    ULLAGE_FAKE_DELAY=${PRIMARY// /=0-1ms,}=0-1ms run -q $how -m 12MiB -- "$GUESTS/account_together" contexts 60
    is "contexts $how: the primary one by four threads at once" "$CODE $ERR" "0 "
    between "contexts $how: the card's peak stays below the budget" "$(peak "contexts.$how")" \
        $((6 * MIB)) $((12 * MIB))
done
done_testing
