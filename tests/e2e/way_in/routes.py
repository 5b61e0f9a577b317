#!/usr/bin/env python3
"""Judges what the guest "walk" printed with the interposer and without it.

    routes.py names DEF                      every base name, one a line
    routes.py compare DEF PRELOAD BARE HELD  the two walks; PRELOAD is read with nm for its hooks
    routes.py listed DEF FILE                every name of FILE must be in DEF, hooked or exempt

Prints what is wrong, and at the end one line of counts; exit code 1 if anything is wrong.
"""
import re
import subprocess
import sys

ENTRY = re.compile(r"^CU_(HOOK|CALL|PASS|GATE|OWN|CAPTURE)"
                   r"\(\s*(\w+),\s*(\w+),\s*(\d+),\s*(\d+)(?:,\s*([A-Z]+)\b)?",
                   re.MULTILINE)


def read_list(path):
    """symbol -> (kind, base, exemption)"""
    with open(path, encoding="ascii") as file:
        found = ENTRY.findall(file.read())
    return {symbol: (kind, base, exempt) for kind, symbol, base, _, _, exempt in found}


def hooks_of(library):
    """offset in the library -> symbol whose hook is there"""
    out = subprocess.run(["nm", library], check=True, capture_output=True, text=True).stdout
    return {int(line.split()[0], 16): line.split()[2][len("ull__hook_"):]
            for line in out.splitlines() if " ull__hook_" in line}


def answer(line):
    name, version, flags, result, result_old, status, where, where_old = line.split()
    return (name, version, flags), (result, result_old, status), where, where_old


def symbol_of(where, hooks):
    """What an address stands for: (is it a hook, symbol)"""
    if where == "null":
        return False, ""
    file, rest = where.split("+", 1)
    offset, symbol = rest.split(":", 1)
    if file.startswith("libullage"):
        return True, hooks.get(int(offset, 16), "?")
    return False, symbol or "?"


def judge(question, bare, held, hooks, known):
    """None, or what is wrong with one answer."""
    if bare[1] != held[1]:
        return f"driver says {bare[1]}, through us {held[1]}"
    for before, after in ((bare[2], held[2]), (bare[3], held[3])):
        if (before, after) == ("same", "same"):
            continue
        if "same" in (before, after):
            return "the old and the new cuGetProcAddress disagree"
        _, wanted = symbol_of(before, hooks)
        is_hook, got = symbol_of(after, hooks)
        if wanted != got:
            return f"driver gives {wanted or 'nothing'}, we give {got or 'nothing'}"
        if not wanted:
            continue
        if wanted not in known:
            return f"{wanted} is not in the list"
        kind, base, exempt = known[wanted]
        if base != question[0]:
            return f"{wanted} belongs to {base}"
        if is_hook != (kind == "HOOK"):
            return f"{wanted} is CU_{kind}, and {'a' if is_hook else 'no'} hook came"
        if kind != "HOOK" and not exempt:
            return f"{wanted} is not hooked and gives no reason"
    return None


def compare(list_path, library, bare_path, held_path):
    known, hooks = read_list(list_path), hooks_of(library)
    wrong = routed = given = 0
    with open(bare_path, encoding="ascii") as bare, open(held_path, encoding="ascii") as held:
        bare_lines, held_lines = bare.readlines(), held.readlines()
    if len(bare_lines) != len(held_lines):
        print(f"{len(bare_lines)} answers without us, {len(held_lines)} with us")
        wrong += 1
    for left, right in zip(bare_lines, held_lines):
        before, after = answer(left), answer(right)
        problem = "other question" if before[0] != after[0] else \
            judge(before[0], before, after, hooks, known)
        if problem:
            wrong += 1
            if wrong < 20:
                print(*before[0], problem)
        given += before[2] != "null"
        routed += symbol_of(after[2], hooks)[0]
    print(f"{len(bare_lines)} questions, {given} answered, {routed} by hooks, {wrong} wrong")
    # A walk that asked nothing would find nothing wrong.
    return wrong == 0 and len(bare_lines) > 10000 and routed > 300


def listed(list_path, names_path):
    known = read_list(list_path)
    bases = {base for _, base, _ in known.values()}
    missing, count = [], 0
    with open(names_path, encoding="ascii") as file:
        for line in file:
            if line.startswith("#"):
                continue
            for name in line.split():
                count += 1
                if name not in known:
                    missing.append(name)
                elif known[name][0] != "HOOK" and not known[name][2]:
                    missing.append(f"{name} (no reason)")
    print(f"{count} names, {len(bases)} bases, missing: {' '.join(missing) or 'none'}")
    return not missing and count > 100


def main(arguments):
    if arguments[0] == "names":
        print("\n".join(sorted({base for _, base, _ in read_list(arguments[1]).values()})))
        return True
    return {"compare": compare, "listed": listed}[arguments[0]](*arguments[1:])


if __name__ == "__main__":
    sys.exit(0 if main(sys.argv[1:]) else 1)
