#!/bin/bash
# share.sh: memory that several processes have open is charged once, to somebody who holds it.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

export ULLAGE_FAKE_CONTEXT=20MiB
run -q -- "$GUESTS/account_scene" host # learns the context's size

seed=${SEED:-1000} # the same in every run; SEED=N tries another
programs=3
[ -z "$SANITIZED" ] || programs=1
# With --suspendable the names are ours, and the books must not know it.
for how in -q --suspendable; do
    cards 6GiB # which tell 16 names apart
    for scene in names descriptors twice packed neighbours at_once; do
        export ULLAGE_FAKE_TAG=$scene.$how
        run -q $how -m 75% -- "$GUESTS/account_share" "$scene"
        is "$scene $how" "$CODE $ERR" "0 "
    done
    for ((i = 1; i <= programs; i++)); do
        export ULLAGE_FAKE_TAG=random.$how.$i
        run -q $how -m 75% -- "$GUESTS/account_share" random $((seed + i)) 60
        is "at random $how, seed $((seed + i))" "$CODE $ERR" "0 "
    done
done
# Known to be wrong (README.md): when it passes, it moves up.
export ULLAGE_FAKE_TAG=back
run -q -m 75% -- "$GUESTS/account_share" back
if [ "$CODE" = 0 ]; then ok back; else skip back "known: ${ERR%%$'\n'*}"; fi
for how in -q --suspendable; do
    cards 6GiB,6GiB
    run -q $how -m 75% -- "$GUESTS/account_share" two_cards
    is "two_cards $how" "$CODE $ERR" "0 "
done
done_testing
