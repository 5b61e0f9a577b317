#!/bin/sh
# in_own_world.sh COMMAND...: runs it on two fake cards that nobody else has.
set -u
world=$(mktemp -d)
trap 'rm -rf "$world"' EXIT
ULLAGE_FAKE_GPUS=6GiB,6GiB ULLAGE_FAKE_STATE=$world/cards "$@"
