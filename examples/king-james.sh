#!/bin/sh
#
# king-james.sh: writes the King James text as one file, to train a language model on:
#
#   examples/king-james.sh king-james.txt
#   ullage train gpt-char --data king-james.txt --memory 512MiB
#
# The text is in Debian's bible-kjv-text, packed; bible of bible-kjv unpacks it. A chapter begins with its name, each
# verse is one line with its number: 4.2 million characters, of which ullage keeps the last 5 % for evaluation.

set -eu

if [ $# -ne 1 ]; then
    echo "usage: $0 FILE" >&2
    exit 2
fi
if ! command -v bible >/dev/null; then
    echo "$0: there is no program 'bible': install bible-kjv and bible-kjv-text" >&2
    exit 1
fi

# Lines of any length; verses without their indent, one empty line between chapters and none at the beginning. The
# whole of it has 31,102 verses in 1,189 chapters.
verses=$(bible -l5000 'ge1:1-re22:21' | awk -v out="$1.part" '
    /^ +[0-9]/ { verses++; sub(/^ +/, "") }
    /^$/ { gap = 1; next }
    { if (gap && lines++) print "" >out; gap = 0; print >out }
    END { print verses + 0 }')
if [ "$verses" -ne 31102 ]; then
    echo "$0: bible gave $verses verses: expected 31,102" >&2
    rm -f "$1.part"
    exit 1
fi
mv "$1.part" "$1"
