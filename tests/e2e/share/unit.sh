#!/usr/bin/env bash
#
# The units for systemd, read by itself.
#
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

if ! command -v systemd-analyze >/dev/null; then
    skip "all" "needs systemd-analyze"
    done_testing
fi
# It looks whether the program is there, which it is once it is installed.
sed "s|^ExecStart=.*|ExecStart=$BUILD_DIR/ullaged|" "$BUILD_DIR/apps/ullaged/ullaged.service" >"$T/ullaged.service"
cp "$(dirname "${BASH_SOURCE[0]}")/../../../apps/ullaged/systemd/ullaged.socket" "$T"
capture env -u LD_LIBRARY_PATH systemd-analyze verify --man=no "$T/ullaged.service" "$T/ullaged.socket"
is "systemd has nothing to say about the units" "$CODE$OUT$(grep ullaged <<<"$ERR")" 0
mkdir "$T/user"
sed "s|^ExecStart=.*|ExecStart=$BUILD_DIR/ullaged|" "$BUILD_DIR/apps/ullaged/user/ullaged.service" >"$T/user/ullaged.service"
capture env -u LD_LIBRARY_PATH systemd-analyze verify --man=no "$T/user/ullaged.service"
is "nor about a user's own" "$CODE$OUT$(grep ullaged <<<"$ERR")" 0
sed -i 's/^Restart=.*/Restart=perhaps/' "$T/ullaged.service"
capture env -u LD_LIBRARY_PATH systemd-analyze verify --man=no "$T/ullaged.service" "$T/ullaged.socket"
like "it would have" "$ERR" 'ullaged.*perhaps'
done_testing
