#!/bin/bash
# in_own_world.sh COMMAND [ARGUMENT...]: runs a command with fake cards that nobody else uses.
set -euo pipefail
world=$(mktemp -d)
trap 'rm -rf "$world"' EXIT
ULLAGE_FAKE_STATE=$world/state timeout 300 "$@"
