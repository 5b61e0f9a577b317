#!/bin/sh
# in_own_world.sh COMMAND...: runs it on two fake cards that nobody else has, with no settings of the user.
set -u
world=$(mktemp -d)
trap 'rm -rf "$world"' EXIT
unset ULLAGE_MEMORY ULLAGE_GROWTH ULLAGE_CONFIG ULLAGE_JOB TF_FORCE_GPU_ALLOW_GROWTH
export XDG_CONFIG_HOME="$world/config" XDG_CONFIG_DIRS="$world/config"
ULLAGE_FAKE_GPUS=6GiB,6GiB ULLAGE_FAKE_STATE=$world/cards "$@"
