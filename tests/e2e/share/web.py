#!/usr/bin/env python3
"""What a scrape of /metrics says, read strictly: web.py check FILE; and web.py dashboard FILE METRICS: every metric
that the dashboard asks for is there."""

import json
import re
import sys

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
SAMPLE = re.compile(rf"^({NAME})(?:\{{(.*)\}})? (-?[0-9.e+]+)$")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\["\\n])*)"(?:,|$)')


def check(text):
    """The rules of the text format, and those of `promtool check metrics` that can be broken here."""
    assert text.endswith("\n") and "\r" not in text
    kinds, helps, seen, closed, current = {}, {}, set(), set(), None
    for line in text.splitlines():
        if line.startswith("# "):
            what, name, rest = line[2:].split(" ", 2)
            assert what in ("HELP", "TYPE"), line
            table = helps if what == "HELP" else kinds
            assert name not in table, f"{name} twice"
            assert rest
            table[name] = rest
            if what == "TYPE":
                assert rest in ("gauge", "counter") and name in helps, line
                assert (rest == "counter") == name.endswith("_total"), line
                closed.add(current)
                current = name
                assert name not in closed, f"{name} in two places"
            continue
        sample = SAMPLE.match(line)
        assert sample, line
        name, labels, value = sample.groups()
        assert name == current, f"{name} outside its family"
        at, pairs = 0, []
        while labels and at < len(labels):
            label = LABEL.match(labels, at)
            assert label, line
            pairs.append(label.group(1))
            at = label.end()
        assert len(pairs) == len(set(pairs)), line
        key = (name, labels)
        assert key not in seen, f"the same series twice: {line}"
        seen.add(key)
        float(value)
        assert re.search(r"_(bytes|seconds|total|info|state|daemons)$", name), f"{name} has no unit"
    return {name for name, _ in seen}


def main():
    if sys.argv[1] == "check":
        check(open(sys.argv[2], encoding="utf-8").read())
        return
    there = check(open(sys.argv[3], encoding="utf-8").read())
    board = json.load(open(sys.argv[2], encoding="utf-8"))
    asked = set(re.findall(r"ullage_[a-z_]+", json.dumps([p["targets"] for p in board["panels"]])))
    assert asked and asked <= there, asked - there


main()
