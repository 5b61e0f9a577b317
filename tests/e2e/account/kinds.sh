#!/bin/bash
# kinds.sh: random programs over every kind of memory; the account follows the card to the byte and
# ends at exactly nothing. SEEDS="17 18" repeats some.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

export ULLAGE_FAKE_CONTEXT=100MiB
steps=${STEPS:-400}
# A new set each day, and always printed, so that a failure can be repeated.
seeds=${SEEDS:-$(for i in 1 2 3 4 5 6; do echo $(($(date +%j) * 100 + i)); done)}
for seed in $seeds; do
    run -q -m 75% -- "$GUESTS/account_kinds" "$seed" "$steps"
    if [ "$CODE" = 0 ]; then
        ok "random program, seed $seed"
    else
        not_ok "random program, seed $seed" "exit $CODE" "$ERR"
    fi
done
done_testing
