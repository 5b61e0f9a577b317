#!/usr/bin/env python3
"""Allocators of others beside ours (beside/beside.c), with the commit, the versions and the machine, as JSON or a table.

usage: beside.py [--build DIR] [--python PYTHON]... [--table] [option of bench_beside...]

They come out of installed wheels, unchanged: TensorFlow's BFC and PyTorch's CUDACachingAllocator, from the
environments of these interpreters (by default the one that runs this). Nothing is downloaded. PyTorch needs a card,
or plays over tests/fakecuda, which its allocator calls only to take and to give back memory. Builds what it needs
into DIR (build/release) with cmake and c++. Without traces among the options it takes those of bench/traces.
"""

import glob
import json
import os
import subprocess
import sys

import where

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCES = os.path.join(HERE, "beside")
FIND = """
import importlib.metadata, importlib.util, json
found = {}
for name, wheels in {"tensorflow": ["tensorflow-cpu", "tensorflow"], "torch": ["torch"], "nvidia": []}.items():
    spec = importlib.util.find_spec(name)
    for place in spec.submodule_search_locations or [] if spec else []:
        found.setdefault(name, {"at": place})
    for wheel in wheels:
        try:
            found[name]["version"] = importlib.metadata.version(wheel)
        except (importlib.metadata.PackageNotFoundError, KeyError):
            pass
print(json.dumps(found))
"""
MISSING = """bench/beside.py: neither TensorFlow nor a PyTorch with CUDA is installed for {}
  expected at least one of them, for instance in an environment of its own:
    python3 -m venv DIR
    DIR/bin/pip install --no-deps tensorflow-cpu
    DIR/bin/pip install --no-deps torch nvidia-cuda-runtime nvidia-cuda-crt
    bench/beside.py --python DIR/bin/python3"""


def die(text):
    print(text, file=sys.stderr)
    sys.exit(2)


def command(*words, **more):
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, **more)
    if done.returncode != 0:
        print(done.stdout, file=sys.stderr)
        die("bench/beside.py: {} failed ({})".format(" ".join(words), done.returncode))
    return done.stdout


def installed(pythons):
    found = {}
    for python in pythons:
        found = {**json.loads(command(python, "-c", FIND)), **found}
    # Builds without CUDA, and folders that only have the name, are of no use.
    needed = {"tensorflow": "libtensorflow_framework.so.2", "torch": "lib/libc10_cuda.so", "nvidia": "."}
    return {name: it for name, it in found.items() if os.path.exists(os.path.join(it["at"], needed[name]))}


def library(build, name, compiler, *options):
    out = os.path.join(build, "beside", name)
    os.makedirs(os.path.dirname(out), exist_ok=True)
    command(*compiler, "-O2", "-shared", "-fPIC", "-I" + SOURCES, "-o", out, *options)
    return out


def of_tensorflow(build, found):
    at = found["tensorflow"]["at"]
    return library(
        build, "bfc.so", ["c++", "-std=c++17", "-w"], "-isystem", os.path.join(at, "include"),
        os.path.join(SOURCES, "bfc.cpp"), os.path.join(at, "libtensorflow_framework.so.2"), "-Wl,-rpath," + at,
    )


def headers_of_cuda(found):
    places = [os.path.join(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "include")]
    places += glob.glob(os.path.join(found.get("nvidia", {}).get("at", "/nonexistent"), "*", "include"))
    for place in places:
        if all(os.path.exists(os.path.join(place, h)) for h in ("cuda_runtime_api.h", "crt/host_defines.h")):
            return place
    die("bench/beside.py: no headers of CUDA: expected cuda_runtime_api.h and crt/host_defines.h in one of {}\n"
        "  set CUDA_HOME, or: pip install --no-deps nvidia-cuda-runtime nvidia-cuda-crt".format(", ".join(places)))


def has_card():
    done = subprocess.run(["sh", "-c", "nvidia-smi -L"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return done.returncode == 0 and b"GPU" in done.stdout


def of_torch(build, found, card, environment):
    lib = os.path.join(found["torch"]["at"], "lib")
    cuda = headers_of_cuda(found)
    options = ["-isystem", os.path.join(found["torch"]["at"], "include"), "-isystem", cuda,
               os.path.join(SOURCES, "torch.cpp"), "-L" + lib, "-lc10_cuda", "-lc10", "-Wl,-rpath," + lib]
    if not card:  # else the wheel brings the runtime
        fake = os.path.join(build, "tests", "fakecuda")
        soname = [w for w in command("readelf", "-d", os.path.join(lib, "libc10_cuda.so")).split() if "cudart" in w]
        soname = soname[0].strip("[]")
        names = os.path.join(build, "beside", "cudart.map")
        os.makedirs(os.path.dirname(names), exist_ok=True)
        with open(names, "w") as out:
            out.write(soname + " { global: cuda*; local: *; };\n")
        runtime = library(build, soname, ["cc"], "-isystem", cuda, os.path.join(SOURCES, "cudart.c"), "-L" + fake,
                          "-lcuda", "-Wl,-soname," + soname, "-Wl,--version-script=" + names)
        options += [runtime]
        environment["LD_LIBRARY_PATH"] = os.path.dirname(runtime) + ":" + fake
        environment["ULLAGE_FAKE_GPUS"] = "h200"
        environment["ULLAGE_FAKE_STATE"] = os.path.join(build, "beside", "cards")
    return library(build, "torch.so", ["c++", "-std=c++17"], *options)


def cell(spread, digits):
    return "{:.{d}f} ({:.{d}f} to {:.{d}f})".format(spread["median"], spread["low"], spread["high"], d=digits)


def table(results):
    print("| trace | memory | allocator | held ÷ requested | failures at 1.02 | cold, ms | ns an operation | p50 | p99 "
          "| p99.9 | two threads, ns | speed |")
    print("|---|---|---|---|---|---|---|---|---|---|---|---|")
    for r in results:
        latency, two = r["latency_ns"], r.get("two_threads")
        cells = [r["trace"].replace(".csv.gz", ""), r["memory"], r["allocator"],
                 "{:.4f}".format(r["ratio"]) if r["memory"] == "growing" else "", r.get("failures_at_1.02", ""),
                 cell(r["cold_ms"], 1), cell(r["warm_ns"], 1), latency["p50"], latency["p99"], latency["p999"],
                 cell(two["ns"], 0) if two else "", "{:.2f}".format(two["speed"]) if two else ""]
        print("| " + " | ".join(str(c) for c in cells) + " |")


def main(args):
    build, pythons, as_table = os.path.join(HERE, "..", "build", "release"), [], False
    options = []
    while args:
        word = args.pop(0)
        if word in ("--build", "--python") and not args:
            die("bench/beside.py: {}: expected a value".format(word))
        if word == "--build":
            build = args.pop(0)
        elif word == "--python":
            pythons.append(args.pop(0))
        elif word == "--table":
            as_table = True
        elif word in ("-h", "--help"):
            print(__doc__)
            return 0
        else:
            options.append(word)
    build, pythons = os.path.abspath(build), pythons or [sys.executable]
    found = installed(pythons)
    if "tensorflow" not in found and "torch" not in found:
        die(MISSING.format(", ".join(pythons)))
    command("cmake", "--build", build, "--target", "bench_beside", "fakecuda", stderr=subprocess.STDOUT)
    environment, libraries, card = {}, [], has_card()
    if "tensorflow" in found:
        libraries += ["--library", of_tensorflow(build, found)]
        environment["TF_CPP_MIN_LOG_LEVEL"] = "3"
    if "torch" in found:
        libraries += ["--library", of_torch(build, found, card, environment)] + (["--card"] if card else [])
    if not any(option.endswith(".csv.gz") for option in options):
        options += sorted(glob.glob(os.path.join(HERE, "traces", "*.csv.gz")))
    load = [round(os.getloadavg()[0], 1)]
    results = json.loads(command(os.path.join(build, "bench", "bench_beside"), *libraries, *options,
                                 env={**os.environ, **environment}))
    load.append(round(os.getloadavg()[0], 1))
    for result in results:
        result["trace"] = os.path.basename(result["trace"])
    versions = {name: found[name].get("version", "unknown") for name in ("tensorflow", "torch") if name in found}
    if as_table:
        print(json.dumps({**where.facts(), "versions": versions, "load": load}))
        table(results)
    else:
        print(json.dumps({**where.facts(), "versions": versions, "load": load, "results": results}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
