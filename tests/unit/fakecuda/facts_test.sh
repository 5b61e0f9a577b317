#!/bin/bash
# facts_test.sh: does the fake driver behave as the real card did?
#
#   facts_test.sh DRIVER_FACTS FACTS LIBRARY_DIR [LENIENT_NAME]
#
# Runs driver_facts on the fake and compares its answers with those of the card; lines that start
# with "info." depend on the card and are left out. With a name, the fake is lenient in that point
# and the comparison must notice: otherwise the facts do not guard it.
set -euo pipefail

program=$1 facts=$2 libraries=$3 lenient=${4:-}
world=$(mktemp -d)
trap 'rm -rf "$world"' EXIT

export LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export ULLAGE_FAKE_STATE=$world/state ULLAGE_FAKE_GPUS=6GiB
[ -z "$lenient" ] || export ULLAGE_FAKE_LENIENT=$lenient

timeout 300 "$program" >"$world/answers"
grep -v '^info\.' "$facts" >"$world/wanted"
grep -v '^info\.' "$world/answers" >"$world/got" || true

if diff -u "$world/wanted" "$world/got" >"$world/difference"; then
    if [ -n "$lenient" ]; then
        echo "the fake was lenient in $lenient and no fact noticed"
        exit 1
    fi
elif [ -z "$lenient" ]; then
    cat "$world/difference"
    exit 1
fi
