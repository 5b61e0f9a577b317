#!/bin/bash
# kinds.sh: random programs over every kind of memory; the account follows the card to the byte and
# ends at exactly nothing. SEEDS="17 18" repeats some.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

export ULLAGE_FAKE_CONTEXT=100MiB
steps=${STEPS:-400}
# The same in every run, so that CI is; SEEDS tries others.
seeds=${SEEDS:-33301 33302 33303 33304 33305 33306}
for seed in $seeds; do
    run -q -m 75% -- "$GUESTS/account_kinds" "$seed" "$steps"
    if [ "$CODE" = 0 ]; then
        ok "random program, seed $seed"
    else
        not_ok "random program, seed $seed" "exit $CODE" "$ERR"
    fi
done
done_testing
