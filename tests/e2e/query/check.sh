#!/usr/bin/env bash
#
# `ullage ps --check`: exit codes and lines for scripts.
#
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

checks() { # NAME EXIT CONDITION [OPTION...]
    capture "$ULLAGE" ps --check "$3" "${@:4}"
    is "$1" "$CODE" "$2"
}

checks 'no jobs' 0 'held>90%'
is '... and nothing is said' "$OUT$ERR" ''

cards 6GiB,6GiB
export ULLAGE_FAKE_CONTEXT=100MiB
spawn "$ULLAGE" run -q -m 4GiB --name small -- "$GUEST" ctx alloc 1GiB touch "$T/small" hold
wait_for 10 test -e "$T/small"
spawn "$ULLAGE" run -q -m 2GiB -g 1 --name full -- "$GUEST" ctx alloc 1800MiB alloc 1GiB touch "$T/full" hold
wait_for 10 test -e "$T/full"

checks 'a job that holds more than 90 %' 1 'held>90%'
like '... is named, with its card and figure' "$ERR" \
    "^ullage: 'held>90%' is true for job full, logical 0 = physical 1 \(GPU-.*\): held 1\.9 GiB$"
is '... and the list is not printed' "$OUT" ''
checks 'none is that full' 0 'held>99%'
is '... so nothing is said' "$OUT$ERR" ''
checks 'both' 1 'held > 20%'
is '... one line each' "$(grep -c 'is true for job' <<<"$ERR")" 2
checks 'refusals' 1 'refusals>0'
unlike '... of the one that had some' "$ERR" 'small'
checks 'and' 0 'refusals>0 and held<50%'
checks 'or' 1 'refusals>5 or free<200MiB'
checks 'a size' 1 'held>=1GiB and held<1200MiB'
like '... says what it found' "$ERR" 'job small, .*: held 1\.1 GiB$'
checks 'the budget against the card' 1 'budget<50%'
checks 'processes' 1 'processes=1'
checks 'with a list as well' 1 'held>90%' -o json
is '... which is whole' "$(json 'len(d["jobs"])' <<<"$OUT")" 2
checks 'with a table' 0 'held>99%' -o table
like '... too' "$OUT" '^JOB / PROCESS'

for bad in '' 'held' 'held>' '>90%' 'mem>90%' 'held>90' 'held>90%%' 'held>9x' 'refusals>1GiB' 'held>90% refusals>0'; do
    [ "$bad" = 'held>90' ] && continue # 90 bytes
    checks "'$bad' is a usage error" 2 "$bad"
    like '... that says what was expected' "$ERR" "^ullage: --check: .*expected FIELD OPERATOR VALUE such as 'held>90%'"
done
capture "$ULLAGE" ps --check
like 'no condition' "$CODE:$ERR" "^2:ullage: option '--check' needs a value"

# Each child of --each by itself.
# shellcheck disable=SC2016 # for the shell inside
spawn "$ULLAGE" run -q -m 1GiB --each --name many -- sh -c \
    '"$0" ctx alloc 100MiB touch "$1/a" hold & "$0" ctx alloc 800MiB touch "$1/b" hold & wait' "$GUEST" "$T"
wait_for 10 test -e "$T/a"
wait_for 10 test -e "$T/b"
checks 'a child with a budget of its own' 1 'held>800MiB and budget=1GiB'
like '... is named' "$ERR" "job many\.[12], "

done_testing
