#!/usr/bin/env bash
#
# Idle caches of a program with libullage-torch.so whose device is never at rest: they go to another job all the same.
#
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
# shellcheck source=tests/e2e/share/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

if ! [ -e "$BUILD_DIR/libullage-torch.so" ] || [ -n "$SANITIZED" ]; then
    skip "all of it" "this build has no libullage-torch.so that a program could load"
    done_testing
fi
cards 600MiB
export ULLAGE_FAKE_CONTEXT=10MiB
configure "suspend = asked" "watermark = 90%" "allocation_wait = 30s"
start_daemon
held() { ps_json "sum(v['held_bytes'] for j in d['jobs'] if j['name'] == '$1' for v in j['devices'])"; }

spawn "$ULLAGE" run -q -m 550MiB --name keeps -- "$GUESTS/torch" "$BUILD_DIR/libullage-torch.so" 400 10 60 "$T/kept" "$T/stop"
keeps=$PID
wait_for 10 test -e "$T/kept"
between "what is freed is kept" $(($(held keeps) / MIB)) 420 450
spawn "$ULLAGE" run -q -m 500MiB --name needs -- "$GUEST" init device 0 alloc 300MiB touch "$T/has" hold
needs=$PID
check "what another one needs is given back" wait_for 10 test -e "$T/has"
is "by an allocation that succeeded" "$(grep -c '^alloc 0$' "$T/$needs.out")" 1
between "so much of it" $(($(held keeps) / MIB)) 40 290
touch "$T/stop"
wait_for 10 gone "$keeps"
is "every step was right" "$(<"$T/$keeps.out")" "steps right"
done_testing
