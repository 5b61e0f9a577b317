#!/usr/bin/env python3
"""The table of bench/growth.sh.

usage: growth.py CARD <JSON of bench_growth     prints the table, then one line of JSON with where it was
"""

import json
import sys

import where


def times(cell, key):
    value = cell[key]
    if value is None:
        return "-"
    return "{:.1f} ({:.1f} to {:.1f})".format(value["median"], value["min"], value["max"])


def percent(value):
    return "-" if value is None else "{:.0%}".format(value)


COLUMNS = (
    ("jobs", lambda c: str(int(c["jobs"]))),
    ("policy", lambda c: c["policy"]),
    ("pool ready, ms", lambda c: times(c, "pool_ready_ms")),
    ("first allocation, ms", lambda c: times(c, "first_allocation_ms")),
    ("peak live", lambda c: percent(c["peak_live_share"])),
    ("peak held", lambda c: percent(c["peak_held_share"])),
    ("live/held", lambda c: percent(c["live_to_held"])),
    ("finished", lambda c: "{:g} of {:g}".format(c["finished"], c["started"])),
    ("out of memory", lambda c: percent(c["out_of_memory_rate"])),
    ("wall, s", lambda c: "{:.2f}".format(c["wall_ms"]["median"] / 1000)),
)


def main():
    result = json.load(sys.stdin)
    result = {**where.facts(), "card": sys.argv[1], **result}
    rows = [[title for title, _ in COLUMNS], ["---"] * len(COLUMNS)]
    rows += [[text(cell) for _, text in COLUMNS] for cell in result["cells"]]
    widths = [max(len(row[i]) for row in rows) for i in range(len(COLUMNS))]
    for row in rows:
        print("| " + " | ".join(text.ljust(width) for text, width in zip(row, widths)) + " |")
    print(json.dumps(result))
    return 1 if any(cell["other_failures"] for cell in result["cells"]) else 0


if __name__ == "__main__":
    sys.exit(main())
