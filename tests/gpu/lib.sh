# lib.sh: what the scripts for a real card share. They source it from the repository's root, with their folder for results in
# $out and that of a build in $build.
#
# check says on descriptor 3 how it went, so that a command's own output may go elsewhere.
# shellcheck shell=bash disable=SC2154 # out, build

passed=0
failed=0
exec 3>&1

say() { printf '\n== %s (%d s)\n' "$*" "$SECONDS"; }
check() { # check NAME CONDITION...: the rest is a command
    local name=$1
    shift
    if "$@"; then
        passed=$((passed + 1))
        echo "ok: $name" >&3
    else
        failed=$((failed + 1))
        echo "FAILED: $name" >&3
        return 1
    fi
}
over() { # says how it went; true if nothing failed
    printf '\n%d passed, %d failed (%d s)\n' "$passed" "$failed" "$SECONDS"
    ((failed == 0))
}
gives_up() { # LOG: nothing can be tried without what it was to make
    tail -n 20 "$1"
    over
    exit 1
}
what_runs_here() {
    date -u +%Y-%m-%d
    git rev-parse --short HEAD 2>/dev/null
    nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null
}

# build_for NAME PRODUCT [TARGET...]: $build is a build with PRODUCT, made if it is not there, and from here on an absolute path.
# With targets those alone, tests' guests among them; else all that cmake builds without tests.
build_for() {
    local log=$out/build-$1.log product=$2 tests=OFF
    shift 2
    local only=()
    (($# == 0)) || { only=(--target "$@") && tests=ON; }
    say "build"
    if ! [ -e "$build/$product" ]; then
        cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DBUILD_TESTING=$tests -DULLAGE_EXTRAS=$tests >"$log" 2>&1 &&
            cmake --build "$build" -j "$(nproc)" "${only[@]}" >>"$log" 2>&1
    fi
    check "builds here" [ -e "$build/$product" ] || gives_up "$log"
    build=$(cd "$build" && pwd)
}

# worker_for NAME: $worker is the tests' guest, built here if need be without what the tests need. DRIVER: the libcuda.so.1
# to link with.
worker_for() {
    local log=$out/build-$1.log driver
    worker=$build/tests/e2e/guests/worker
    [ -e "$worker" ] && return
    worker=$build/worker
    driver=${DRIVER:-$(ldconfig -p | sed -n 's/.*libcuda\.so\.1 .*x86-64.* => //p' | head -n 1)}
    cc -D_GNU_SOURCE -std=gnu11 -O2 -Itests/include -Isrc/device tests/e2e/guests/worker.c tests/e2e/guests/worker_*.c \
        -o "$worker" "$driver" -pthread >>"$log" 2>&1
    check "the guest is built with $driver" [ -e "$worker" ] || gives_up "$log"
}

# its_turn PARTS NAME TITLE: is this part among those that were asked for, or was none named?
its_turn() {
    [[ $1 == "  " || $1 == *" $2 "* ]] || return 1
    say "$3"
}
