#!/usr/bin/env bash
#
# ullage run --suspendable: jobs of several processes, that share memory or wait for each other on the device.
#
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
# shellcheck source=tests/e2e/suspend/gated_lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/gated_lib.sh"
cards 6GiB

scene children 2 init 0 alloc 1MiB 2 spawn init 0 seed 3 alloc 1MiB 3 rounds 100 10 wait FILE.go rounds 50 10 sum end rounds 150 10 sum join
scene forked 2 fork init 0 alloc 1MiB 2 rounds 100 10 wait FILE.go rounds 50 10 sum end init 0 alloc 1MiB 1 rounds 100 5 sum
scene replaced 2 init 0 alloc 1MiB 2 rounds 100 5 sum exec init 0 alloc 1MiB 2 rounds 100 5 wait FILE.go rounds 50 5 sum
scene ipc 1 spawn init 0 import FILE.meet 100 15 end init 0 alloc 1MiB 3 wait FILE.go rounds 50 5 export FILE.meet join sum
scene ring 1 spawn init 0 ring FILE.meet 1 100 15 end init 0 ring FILE.meet 0 100 15 join wait FILE.go
done_testing
