#!/bin/bash
# contexts.sh: what contexts take beyond the driver's figures for their processes is in the account, to the byte:
# tests/gpu/contexts.py, which asks a real card the same. It makes two contexts at the same moment too, hence the delay.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
PROGRAM=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../gpu" && pwd)/contexts.py
export ULLAGE_FAKE_DELAY=cuDevicePrimaryCtxRetain=100ms

capture python3 "$PROGRAM" "$ULLAGE"
while IFS= read -r line; do
    case $line in
    ok:*) ok "${line#ok: }" ;;
    FAILED:*) not_ok "${line#FAILED: }" ;;
    esac
done <<<"$OUT"
is "all of it was tried" "$CODE $(grep -c '^ok' <<<"$OUT")$ERR" "0 34"
unset ULLAGE_FAKE_DELAY

took() {
    json "d['jobs'][0]['devices'][0]['peak_bytes']" "$T/report"
}
ULLAGE_FAKE_NVML=otherpids run -q --report "$T/report" -- "$GUEST" init ctx
is "a process that is listed under another pid" "$(took)" $((300 * MIB))

# What is remembered of another version of the driver, or by an older ullage, is not relied on.
remembered=$T/state/ullage/contexts
"$ULLAGE" run -q -- "$GUEST" init ctx >/dev/null
like "size, hidden part and version are remembered" "$(<"$remembered")" '^GPU-[0-9a-f-]+ 308740096 5832704 580\.159\.fake$'
sed -i 's/580.159.fake/570.1/; s/5832704/7000000/' "$remembered"
"$ULLAGE" run -q --report "$T/report" -- "$GUEST" init ctx >/dev/null
is "of another version: measured anew" "$(took)" $((300 * MIB))
like "and remembered anew" "$(<"$remembered")" ' 308740096 5832704 580\.159\.fake$'
sed -i 's/ 5832704 .*//' "$remembered"
"$ULLAGE" run -q -- "$GUEST" init ctx >/dev/null
like "a line of an older ullage" "$(<"$remembered")" ' 308740096 5832704 580\.159\.fake$'
sed -i 's/5832704/3735552/' "$remembered"
"$ULLAGE" run -q -- "$GUEST" init ctx >/dev/null
like "too little is put right for the next job" "$(<"$remembered")" ' 308740096 5832704 580\.159\.fake$'
ULLAGE_FAKE_CONTEXT=4MiB run -q -- "$GUEST" init ctx
ULLAGE_FAKE_CONTEXT=4MiB run -q -m 64MiB -- "$GUEST" init ctx
like "contexts without a hidden part" "$(<"$remembered") $OUT" '0 4194304 .*device 0 0'
for line in 'GPU-00000000-fa4e-4000-8000-000000000000' \
    'GPU-00000000-fa4e-4000-8000-000000000000 308740096 99999999999 580.159.fake' \
    'GPU-00000000-fa4e-4000-8000-000000000000 -5 -5 580.159.fake'; do
    printf '%s\n' "$line" >"$remembered"
    "$ULLAGE" run -q --report "$T/report" -- "$GUEST" init ctx >/dev/null
    is "a bad line ('${line:37}')" "$(took)" $((300 * MIB))
done
done_testing
