#!/usr/bin/env bash
#
# Every name x version x stream flag through cuGetProcAddress: a hook, or an exemption with a reason,
# and everything else as the driver says it.
#
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
list=$(cd "$here/../../../src/device" && pwd)/cuda_api.def
walk=$GUESTS/walk

routes() {
    python3 "$here/routes.py" "$@"
}

check 'groups A to G, J and the start of L are in the list' routes listed "$list" "$here/names.txt"

routes names "$list" >"$T/names"
for name in cuNoSuchCall cuMemAlloc_v2 cuMemAllocAsync_ptsz; do # exported names are no base names
    echo "$name" >>"$T/names"
done
versions=(2000 3020 11000 11040 11050 11060 11070 11080 12000 12010 12020 12030 12040 12050 12060 12080
    12090 13000 13010 14000)

for driver in 11040 12000 12040 13000; do
    export ULLAGE_FAKE_DRIVER_VERSION=$driver
    "$walk" "$T/names" "${versions[@]}" >"$T/bare"
    run -q -m 1GiB -- "$walk" "$T/names" "${versions[@]}"
    mv "$T/.out" "$T/held"
    check "driver $driver: every name, version and flag" routes compare "$list" "$PRELOAD" "$T/bare" "$T/held"
    capture env LD_PRELOAD="$PRELOAD" "$walk" "$T/names" "${versions[@]}"
    mv "$T/.out" "$T/held"
    check "driver $driver: the same without a job" routes compare "$list" "$PRELOAD" "$T/bare" "$T/held"
done
unset ULLAGE_FAKE_DRIVER_VERSION

# A hook must call the variant that it stands for: the driver is told to fail just that one.
for variant in cuMemAlloc_v2 cuMemAllocAsync cuMemAllocAsync_ptsz; do
    export ULLAGE_FAKE_FAIL=$variant:1=719
    run -q -m 1GiB -- "$walk" call
    is "a call to $variant arrives there" "$CODE: $(grep 719 <<<"$OUT")" "0: $variant 719"
done
unset ULLAGE_FAKE_FAIL
run -q -m 1GiB -- "$walk" call
is 'the form of CUDA 2 is not the one of today, and the fake driver has none' \
    "$(head -n 1 <<<"$OUT")" 'cuMemAlloc 801'

# --- forms that came after the list -------------------------------------------------------------------

export ULLAGE_FAKE_UNLISTED=cuMemAlloc=12000
run -m 1GiB --report "$T/report" -- "$GUEST" via asked:13000:0 init
is 'a form that is not in the list is handed out as it is' "$CODE: $OUT" '0: init 0'
like 'and is in the report, though it was looked up before cuInit' \
    "$(json 'd["jobs"][0]["unknown_variants"]' "$T/report")" 'cuMemAlloc'
run -m 1GiB --report "$T/report" -- "$GUEST" via asked:11080:0 init
is 'an older program gets the form that we know' "$(json 'd["jobs"][0]["unknown_variants"]' "$T/report")" '[]'
run -m 1GiB --report "$T/report" -- "$GUEST" init via asked:13000:2 env A B
like 'the same when it is looked up later' \
    "$(json 'd["jobs"][0]["unknown_variants"]' "$T/report")" 'cuMemAlloc'
export ULLAGE_FAKE_UNLISTED=cuMemcpyHtoD=12000
run -m 1GiB --report "$T/report" -- "$walk" "$T/names" 13000
is 'a new form of a call without a hook is no news' \
    "$(json 'd["jobs"][0]["unknown_variants"]' "$T/report")" '[]'

done_testing
