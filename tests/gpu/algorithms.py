#!/usr/bin/env python3
"""Makes the cost tables of device profiles out of what run_algorithms.sh measured.

    tests/gpu/algorithms.py OUTPUT_DIR                  the classes of an H200, and how far its rules are off what was measured
    tests/gpu/algorithms.py OUTPUT_DIR PROFILE.json...  writes them into profiles, scaled to each device's own rates

Pictures lie channels last. Which sizes make a class, and which bytes a workspace is made of, was found by looking at the
measurements; times are medians over a class. What an algorithm without workspace loses is mostly that it has no matrix units:
for other devices the time beyond the fastest's is scaled by how much faster than other arithmetic their matrix units are.
"""
import gzip
import json
import pathlib
import re
import statistics
import sys

MIB = 1 << 20
DIRECTIONS = {"conv2d": "forward", "conv2d_grad_input": "data", "conv2d_grad_weight": "weights"}
FEW, MANY = {"channels_most": 4}, {}
FORWARD, BY_DATA = ("implicit_precomp_gemm", "implicit_gemm"), ("bwd_data_1", "bwd_data_0")
BY_WEIGHTS = ("bwd_filter_1", "bwd_filter_0")

# Operator, type, bounds of the class; then names from the fastest on and what each takes. One without multiples takes nothing.
CLASSES = [
    ("conv2d", "half", FEW, FORWARD, [{"padded": 1}, {}]),
    ("conv2d", "f32", FEW, FORWARD, [{"padded": 1}, {}]),
    ("conv2d", None, MANY, FORWARD[:1], [{}]),
    ("conv2d_grad_input", "half", FEW, BY_DATA, [{"padded": 1}, {}]),
    ("conv2d_grad_input", "f32", FEW, BY_DATA, [{"padded": 1, "output": 1}, {}]),
    ("conv2d_grad_input", None, MANY, BY_DATA[:1], [{}]),
    ("conv2d_grad_weight", "half", FEW, BY_WEIGHTS, [{"padded": 1, "parts": 15, "parts_most": 8 * MIB}, {}]),
    ("conv2d_grad_weight", "f32", FEW, BY_WEIGHTS, [{"padded": 1, "output": 1, "parts": 15, "parts_most": 8 * MIB}, {}]),
    ("conv2d_grad_weight", "half", {"window_most": 1}, BY_WEIGHTS, [{"parts": 132, "parts_most": 8.25 * MIB}, {}]),
    ("conv2d_grad_weight", "f32", {"window_most": 1}, BY_WEIGHTS, [{"parts": 132, "parts_most": 16.5 * MIB}, {}]),
    ("conv2d_grad_weight", "half", MANY, BY_WEIGHTS, [{"weights": 0.5, "parts": 13, "parts_most": 8 * MIB}, {}]),
    ("conv2d_grad_weight", "f32", MANY, BY_WEIGHTS, [{"weights": 1, "parts": 14, "parts_most": 8 * MIB}, {}]),
    ("conv_transpose2d", None, MANY, BY_DATA[:1], [{}]),
]
SMALL_RESULT = {"weights_most": 1 << 20, "inner_least": 8192}


def lines(path):
    path = path if path.exists() else path.with_name(path.name + ".gz")
    with (gzip.open(path, "rt") if path.suffix == ".gz" else open(path, encoding="utf-8")) as file:
        return [json.loads(line) for line in file if line.startswith("{")]


def units(row):
    element = 4 if row["type"] == "f32" else 2
    whole = 16 // element
    picture = element * row["n"] * row["h"] * row["w"]
    weights = 4 * row["k"] * row["c"] // row["groups"] * row["kernel"] ** 2
    return {"input": picture * row["c"], "padded": picture * -(-row["c"] // whole) * whole,
            "output": element * row["n"] * row["k"] * row["oh"] * row["ow"], "weights": weights}


def rule(multiples, sizes):
    parts = min(multiples.get("parts", 0) * sizes["weights"], multiples.get("parts_most", 0))
    return parts + sum(multiples.get(unit, 0) * size for unit, size in sizes.items())


def is_in(row, op, kind, bounds):
    return (DIRECTIONS.get(op) == row["direction"] and kind in (None, "f32" if row["type"] == "f32" else "half")
            and row["layout"] == "nhwc" and row["c"] <= bounds.get("channels_most", 1 << 30)
            and row["kernel"] ** 2 <= bounds.get("window_most", 1 << 30))


def fastest(row, most=None):
    fits = [found["ms"] for found in row["found"] if most is None or found["bytes"] <= most]
    return min(fits) if fits else None


def convolutions(rows):
    """The classes of convolutions; each row belongs to the first that it is in."""
    taken, classes = set(), []
    for op, kind, bounds, names, ways in CLASSES:
        mine = [i for i, row in enumerate(rows) if i not in taken and is_in(row, op, kind, bounds)]
        taken.update(mine)
        algorithms, off = [], []
        for name, multiples in zip(names, ways):
            ratios = []
            for i in mine:
                # A few bytes are counters.
                time = fastest(rows[i], max(rule(multiples, units(rows[i])), 65536) if name != names[0] else None)
                if time is not None:
                    ratios.append(time / fastest(rows[i]))
            if name == names[0]:
                for i in mine:
                    best = min(rows[i]["found"], key=lambda found: found["ms"])
                    off.append((rule(multiples, units(rows[i])) - best["bytes"]) / MIB)
            if name == names[0] or ratios:
                slow = max(1, statistics.median(ratios)) if ratios else 1
                algorithms.append({"name": name, **multiples, "slowdown": float(f"{slow:.3g}")})
        classes.append(({"op": op, **({"type": kind} if kind else {}), **bounds, "algorithms": algorithms}, len(mine), off))
    return classes


def products(rows):
    """Gradients by weights: sums cut into parts where the result is small."""
    classes = []
    for kind, types in (("half", "bf16"), ("f32", "f32")):
        ratios = [found["found"][1]["ms"] / min(f["ms"] for f in found["found"]) for found in rows
                  if found.get("type") == types and found["m"] * found["n"] <= SMALL_RESULT["weights_most"]
                  and found["k"] >= SMALL_RESULT["inner_least"]]
        slow = float(f"{max(1, statistics.median(ratios)):.3g}")
        classes.append(({"op": "matmul", "type": kind, **SMALL_RESULT, "algorithms": [
            {"name": "split_k", "parts": 12, "parts_most": 16 * MIB, "slowdown": 1.0},
            {"name": "whole", "slowdown": slow}]}, len(ratios), []))
    return classes


def attention(rows):
    """One way each is best in time and memory: of cuDNN in 16 bits, the memory-efficient one in f32, whose gradients add up in f32."""
    classes = []
    for kind, way, types, multiples in (("half", "cudnn", "bfloat16", {"rule": 1}),
                                        ("f32", "efficient", "float32", {"rule": 1, "output": 1})):
        mine = [r for r in rows if r.get("attention") == way and r["type"] == types and "backward_bytes" in r]
        classes.append(({"op": "attention_grad", "type": kind,
                         "algorithms": [{"name": way, **multiples, "slowdown": 1.0}]}, len(mine), []))
    return classes


def scaled(classes, profile, measured):
    """For another device: the time beyond the fastest's by its own matrix units."""
    gains = {}
    for kind, name in (("half", "matrix_half_per_second"), ("f32", "matrix_per_second")):
        own = profile[name] / profile["flops_per_second"] - 1
        theirs = measured[name] / measured["flops_per_second"] - 1
        gains[kind] = max(0, own) / theirs
    made = json.loads(json.dumps(classes))
    for one in made:
        gain = gains.get(one.get("type"), 1)
        for algorithm in one["algorithms"]:
            algorithm["slowdown"] = float(f"{1 + (algorithm['slowdown'] - 1) * gain:.3g}")
    return made


def write(path, classes, measured):
    profile = json.loads(path.read_text(encoding="utf-8"))
    own = profile["name"] == measured["name"]
    profile.pop("algorithms", None)
    sources = profile.pop("sources")
    profile["algorithms"] = classes if own else scaled(classes, profile, measured)
    sources["algorithms"] = (
        "measured: cuDNN 9.19 and cuBLASLt 13.1 on an H200, pictures channels last (tests/gpu/run_algorithms.sh, docs/gpu-results.md)"
        if own else
        "those of the H200; the time beyond the fastest's is scaled by how much faster than other arithmetic matrix units are here")
    sources["lean_convolution"] = "an estimate, for operators that are not in the table"
    profile["sources"] = sources
    text = json.dumps(profile, indent=2)
    # An algorithm is one line.
    text = re.sub(r"\{\s*(\"name\": \"[^{}]*?\"slowdown\": [^{}]*?)\s*\}",
                  lambda match: "{" + re.sub(r"\s*\n\s*", " ", match.group(1)) + "}", text)
    path.write_text(text + "\n", encoding="utf-8")


def main():
    folder = pathlib.Path(sys.argv[1])
    found = (convolutions([row for row in lines(folder / "convolutions.jsonl") if "direction" in row])
             + products([row for row in lines(folder / "products.jsonl") if "product" in row])
             + attention(lines(folder / "attention.jsonl")))
    for one, count, off in found:
        far = f", workspace by the rule less measured: {min(off):.1f} to {max(off):.1f} MiB" if off else ""
        print(f"{json.dumps(one)}   # {count} shapes{far}")
    paths = [pathlib.Path(path) for path in sys.argv[2:]]
    measured = [json.loads(path.read_text(encoding="utf-8")) for path in paths if path.stem == "h200"]
    for path in paths:
        write(path, [one for one, _, _ in found], measured[0])


if __name__ == "__main__":
    main()
