#!/usr/bin/env python3
"""Where and of what something was measured, for the JSON of a benchmark.

usage: where.py      or, from another program of this folder, where.facts()
"""

import datetime
import json
import os
import platform
import subprocess


def _line(*command):
    try:
        return subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True, text=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def _processor():
    try:
        with open("/proc/cpuinfo") as cpuinfo:
            for line in cpuinfo:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def facts():
    here = os.path.dirname(os.path.abspath(__file__))
    commit = _line("git", "-C", here, "rev-parse", "--short", "HEAD") or "unknown"
    if commit != "unknown" and _line("git", "-C", here, "status", "--porcelain", "-uno"):
        commit += "+"  # with changes that are not committed
    return {
        "commit": commit,
        "date": datetime.date.today().isoformat(),
        "machine": "{}, {} cores".format(_processor(), os.cpu_count()),
    }


if __name__ == "__main__":
    print(json.dumps(facts()))
