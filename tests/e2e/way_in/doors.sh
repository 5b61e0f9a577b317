#!/usr/bin/env bash
#
# Every way by which programs come to the driver ends in the budget.
#
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

export ULLAGE_FAKE_CONTEXT=100MiB
words=(ctx total 0 alloc 2GiB alloc 1MiB)
held=$'init 0\ndevice 0 0\ntotal 0 1073741824 0\nalloc 2\nalloc 0'

# held NAME COMMAND...: in a job of 1 GiB the command sees 1 GiB, gets no 2 GiB, and gets 1 MiB
held() {
    local name=$1
    shift
    run -q -m 1GiB -- "$@"
    is "$name" "$CODE: $OUT$ERR" "0: $held"
}

through() {
    held "$1" "$GUEST" via "$2" "${words[@]}"
}

# Without ullage the same words see the whole card: the tests below could fail.
capture "$GUEST" via open:libcuda.so.1 "${words[@]}"
like 'without a job the guest gets what it wants' "$OUT" $'total 0 6[0-9]+ 0\nalloc 0\nalloc 0'

real=$(readlink -f "$FAKE/libcuda.so.1")
mkdir "$T/lib" "$T/copy" "$T/named"
cp "$real" "$T/copy/libcuda.so.570.65.06"
ln -s "$real" "$T/lib/libcuda.so"

held 'linked with -lcuda' "$GUESTS/guest_linked" "${words[@]}"
through 'dlopen of libcuda.so.1' open:libcuda.so.1
through 'dlopen of libcuda.so' open:libcuda.so
through 'dlopen of an absolute path' "open:$FAKE/libcuda.so.1"
through 'dlopen of an absolute path without version' "open:$T/lib/libcuda.so"
through 'dlopen of a versioned name by path' "open:$T/copy/libcuda.so.570.65.06"
cd "$T/copy" || exit
through 'dlopen of a relative path' open:./libcuda.so.570.65.06
cd / || exit
through 'RTLD_GLOBAL' global:libcuda.so.1
if [ -z "$SANITIZED" ]; then # they cannot do it
    through 'RTLD_DEEPBIND' deepbind:libcuda.so.1
    through 'RTLD_DEEPBIND of a path' "deepbind:$FAKE/libcuda.so.1"
    GUEST_OPEN=libcuda.so.1 through 'a deep-binding library that opens it by name' "deeplib:$GUESTS/library.so"
    # In a namespace of its own there is a second stand-in, which joins by itself.
    through 'dlmopen(LM_ID_NEWLM)' newlm:libcuda.so.1
    through 'dlmopen of a path' "newlm:$FAKE/libcuda.so.1"
fi
through 'RTLD_NOLOAD' noload:libcuda.so.1
through 'dlsym(RTLD_DEFAULT)' default:
through 'dlsym(RTLD_NEXT)' next:
through 'a library with a run path to the driver' "open:$GUESTS/library_rpath.so"
through 'the same, through a function of it' "lib:$GUESTS/library_rpath.so"
GUEST_OPEN=libcuda.so through 'a library that opens libcuda.so' "lib:$GUESTS/library.so"
GUEST_OPEN=$FAKE/libcuda.so.1 through 'a library that opens a path' "lib:$GUESTS/library.so"

run -q -m 1GiB -- "$GUEST" via open:/nowhere/libcuda.so.1 ctx
like 'a path that does not exist still fails' "$CODE: $OUT" '^90: failed open:/nowhere/.*cannot open shared'
run -q -m 1GiB -- "$GUEST" via open:libcuda2.so.1 ctx
like 'other names are left alone' "$CODE: $OUT" '^90: failed open:libcuda2.so.1: libcuda2.so.1: cannot'

for version in 11040 11080 12000 12020 12040 12080 13000; do
    for flags in 0 1 2; do
        through "cuGetProcAddress for all, version $version, flags $flags" "asked:$version:$flags"
    done
done

# --- Python ---------------------------------------------------------------------------------------

cat >"$T/ask.py" <<'END'
import ctypes, ctypes.util, sys
name = sys.argv[1] if sys.argv[1] != "find" else ctypes.util.find_library("cuda") or "libcuda.so"
cuda = ctypes.CDLL(name)
total, pointer, context = ctypes.c_size_t(), ctypes.c_uint64(), ctypes.c_void_p()
print("init", cuda.cuInit(0))
print("device 0", cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) or
      cuda.cuCtxSetCurrent(context))
result = cuda.cuDeviceTotalMem_v2(ctypes.byref(total), 0)
print("total 0", total.value, result)
for size in 2 << 30, 1 << 20:
    print("alloc", cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size)))
END
held 'ctypes.CDLL by name' python3 "$T/ask.py" libcuda.so.1
held 'ctypes.CDLL of libcuda.so' python3 "$T/ask.py" libcuda.so
held 'ctypes.CDLL by path' python3 "$T/ask.py" "$FAKE/libcuda.so.1"
held 'ctypes.util.find_library' python3 "$T/ask.py" find

# --- other preloaded libraries --------------------------------------------------------------------

# with-preloads BEFORE AFTER COMMAND...: around ours
cat >"$T/with-preloads" <<'END'
export GUEST_TRACE=1 LD_PRELOAD="$1 $LD_PRELOAD $2"
shift 2
exec "$@"
END

around() {
    local name=$1 before=$2 after=$3 seen=$4 way=$5
    run -q -m 1GiB -- sh "$T/with-preloads" "$before" "$after" "$GUEST" via "$way" "${words[@]}"
    is "$name, $way" "$CODE: $OUT" "0: $held"
    is "$name, $way: the others work too" "$(grep saw <<<"$ERR" | sort | uniq)" "$seen"
}

one=$GUESTS/preload_open.so three=$GUESTS/preload_third.so allocator=$GUESTS/preload_malloc.so
for way in open:libcuda.so.1 "open:$FAKE/libcuda.so.1" asked:12000:2 next:; do
    around 'a dlopen in front of ours' "$one" '' 'open saw calls' "$way"
    around 'a dlopen behind ours' '' "$one" 'open saw calls' "$way"
    around 'a dlopen in front of and one behind ours' "$one" "$three" \
        $'open saw calls\nthird saw calls' "$way"
    [ -z "$SANITIZED" ] || continue # the sanitizer is a malloc of its own
    around 'a malloc in front of ours' "$allocator" '' 'malloc saw calls' "$way"
    around 'a malloc behind ours' '' "$allocator" 'malloc saw calls' "$way"
    around 'all of them' "$one $allocator" "$three" \
        $'malloc saw calls\nopen saw calls\nthird saw calls' "$way"
done

# --- the stand-in under other names -----------------------------------------------------------------

# A copy, and links, where the linker finds them first, so that they can be taken for the driver.
for how in 'cp' 'ln -s' 'ln'; do
    rm -rf "$T/named"
    mkdir "$T/named"
    $how "$PRELOAD" "$T/named/libcuda.so.1" 2>/dev/null || cp "$PRELOAD" "$T/named/libcuda.so.1"
    capture env LD_LIBRARY_PATH="$T/named:$FAKE" timeout 10 "$GUEST" via open:libcuda.so.1 ctx alloc 1MiB
    is "as libcuda.so.1 in front of the driver's folder ($how)" "$CODE: $OUT" \
        $'0: init 0\ndevice 0 0\nalloc 0'
    capture env LD_LIBRARY_PATH="$T/named:$FAKE" "$ULLAGE" run -q -m 1GiB -- \
        "$GUEST" via open:libcuda.so.1 "${words[@]}"
    is "the same inside a job ($how)" "$CODE: $OUT$ERR" "0: $held"
done
cp "$PRELOAD" "$T/named/another-name.so"
run -q -m 1GiB -- env LD_PRELOAD="$T/named/another-name.so" "$GUEST" "${words[@]}"
is 'preloaded under another path and name' "$CODE: $OUT$ERR" "0: $held"

# Two ways go past us: the driver under a name that says nothing, and by path out of a library that
# was opened with RTLD_DEEPBIND and so calls the C library's own dlopen. Then it must be seen.
seen_outside() {
    local name=$1
    shift
    spawn "$ULLAGE" run -q -m 1GiB --name past -- "$@" ctx alloc 2GiB hold
    if wait_for 10 grep -q ready "$T/$PID.out"; then
        like "$name is shown as outside" "$("$ULLAGE" ps 2>&1)" 'outside: '
    else
        not_ok "$name is shown as outside" "$(<"$T/$PID.out")" "$(<"$T/$PID.err")"
    fi
    kill "$PID"
    wait_for 10 gone "$PID"
}
cp "$real" "$T/named/driver.so"
seen_outside 'a driver under another name' "$GUEST" via "open:$T/named/driver.so"
[ -n "$SANITIZED" ] || GUEST_OPEN=$FAKE/libcuda.so.1 \
    seen_outside 'a path opened by a deep-binding library' "$GUEST" via "deeplib:$GUESTS/library.so"

# --- no driver ------------------------------------------------------------------------------------------

capture env LD_LIBRARY_PATH= LD_PRELOAD="$PRELOAD" "$GUEST" init
is 'without a driver, cuInit says that there is no device' "$CODE: $OUT" '0: init 100'

done_testing
