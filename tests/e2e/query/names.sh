#!/usr/bin/env bash
#
# Output stays valid whatever processes are called: see names.py.
#
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

cards 6GiB
export ULLAGE_FAKE_CONTEXT=10MiB ULLAGE GUEST T
capture python3 "$(dirname "${BASH_SOURCE[0]}")/names.py"
if [ "$CODE" = 0 ]; then
    ok "processes with random names: $(tail -n 1 <<<"$OUT")"
else
    not_ok 'processes with random names' "$OUT" "$ERR"
fi
done_testing
