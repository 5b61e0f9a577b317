#!/bin/bash
# library.sh: libullage.so as a program outside this tree finds it: what it exports and needs, and the
# examples built with nothing but what was installed.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
SOURCE=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
library=$BUILD_DIR/libullage.so

exported=$(objdump -T "$library" | awk '$4 == ".text" {print $NF}' | sort -u)
declared=$(cat "$SOURCE"/include/ullage/*.h | grep -oE '\bull_[a-z0-9_]+\(' | tr -d '(' | sort -u)
is "it exports what the public headers declare, all of it and nothing else" "$exported" "$declared"
is "no other name is visible" "$(objdump -T "$library" | awk '$4 ~ /data|bss/ {print $NF}')" ""
like "its SONAME" "$(objdump -p "$library")" "SONAME +libullage\.so\.0[[:space:]]"

if [ -n "$SANITIZED" ]; then
    skip "the rest" "a sanitizer is in the library"
    done_testing
fi
newest=$(objdump -T "$library" | grep -oE 'GLIBC_[0-9.]+' | sort -uV | tail -n 1)
is "no C library newer than 2.17 is needed" "$(printf '%s\n' GLIBC_2.17 "$newest" | sort -V | tail -n 1)" GLIBC_2.17
is "it links to the C library and nothing else" \
    "$(objdump -p "$library" | awk '/NEEDED/ {print $2}' | grep -vE '^lib(c|dl|pthread)\.so|^ld-linux' || true)" ""

capture cmake --install "$BUILD_DIR" --prefix "$T/installed"
is "it is installed" "$CODE" 0
export PKG_CONFIG_PATH=$T/installed/lib/pkgconfig
if ! command -v pkg-config >/dev/null; then
    skip "the examples, installed" "no pkg-config"
    done_testing
fi
read -ra flags < <(pkg-config --cflags --libs ullage)
for header in "$T"/installed/include/ullage/*.h; do
    check "$(basename "$header") stands alone" cc -std=c11 -Wall -Wextra -Wpedantic -Werror "${flags[0]}" \
        -fsyntax-only "$header"
done
for example in "$T"/installed/share/doc/ullage/examples/*.c; do
    name=$(basename "$example" .c)
    check "$name is at most 100 lines" [ "$(wc -l <"$example")" -le 100 ]
    check "$name builds with pkg-config" cc -std=c11 -Wall -Wextra -Werror -o "$T/$name" "$example" "${flags[@]}"
    for device in host cuda; do # those that take none do not mind
        capture env LD_LIBRARY_PATH="$T/installed/lib:$FAKE" "$T/$name" "$device"
        is "$name runs on $device" "$CODE $ERR" "0 "
    done
done
like "without an argument it takes the card" \
    "$(LD_LIBRARY_PATH=$T/installed/lib:$FAKE "$T/01_allocate")" "^on cuda"
done_testing
