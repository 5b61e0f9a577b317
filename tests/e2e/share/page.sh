#!/usr/bin/env bash
#
# The daemon's page in a browser. PICTURES names a folder to keep its pictures in.
#
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
# shellcheck source=tests/e2e/share/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

cards 600MiB
export ULLAGE_FAKE_CONTEXT=10MiB
port=$((20000 + $$ % 20000))
echo "a-secret-token" >"$T/token"
printf '%s\n' "listen = 127.0.0.1:$port" "token_file = $T/token" "history = $T/history.db" >"$T/config/ullage/ullage.conf"
start_daemon
spawn "$ULLAGE" run -q -m 500MiB --request 100MiB --name 'training <b>1</b>' -- \
    "$GUEST" init device 0 alloc 300MiB touch "$T/a" hold
wait_for 10 test -e "$T/a"
CODE=0
said=$(env -u LD_LIBRARY_PATH python3 "$(dirname "${BASH_SOURCE[0]}")/page.py" "http://127.0.0.1:$port/" \
    a-secret-token "${PICTURES:-$T}" 2>&1) || CODE=$?
if [ "$CODE" = 77 ]; then
    skip "the page" "$said"
    done_testing
fi
while IFS= read -r line; do
    case $line in
    "ok "*) ok "${line#ok }" ;;
    *) not_ok "$line" ;;
    esac
done <<<"$said"
is "the browser ends well" "$CODE" 0
done_testing
