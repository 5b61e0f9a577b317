#!/usr/bin/env python3
"""Speed and space of the pool (pool.c), with the commit and the machine, as one line of JSON.

usage: pool.py [BUILD_DIR] [option of bench_pool...]      build/release by default

Without traces among the options it takes those of bench/traces. The load of the machine before and after is noted:
figures of two threads mean little when there was any.
"""

import glob
import json
import os
import subprocess
import sys

import where


def main(args):
    here = os.path.dirname(os.path.abspath(__file__))
    build = os.path.join(here, "..", "build", "release")
    if args and os.path.isdir(args[0]):
        build = args.pop(0)
    if not any(arg.endswith(".csv.gz") for arg in args):
        args += sorted(glob.glob(os.path.join(here, "traces", "*.csv.gz")))
    load = [round(os.getloadavg()[0], 1)]
    done = subprocess.run([os.path.join(build, "bench", "bench_pool"), *args], stdout=subprocess.PIPE)
    if done.returncode != 0:
        return done.returncode
    results = json.loads(done.stdout)
    for result in results:
        result["trace"] = os.path.basename(result["trace"])
    load.append(round(os.getloadavg()[0], 1))
    print(json.dumps({**where.facts(), "load": load, "results": results}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
