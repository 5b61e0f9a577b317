"""Compares what our account says each process holds with NVML's figure for it, which has less of each context.

usage: compare.py PS_JSON NVML_CSV     fails above 2 %
"""
import json
import sys

jobs = json.load(open(sys.argv[1]))["jobs"]
nvml = {}
for line in open(sys.argv[2]):
    pid, mib = line.split(",")
    nvml[int(pid)] = int(mib)
worst = 0.0
compared = 0
for job in jobs:
    for process in job["processes"]:
        if process["pid"] not in nvml:
            continue
        unlisted = sum(device["unlisted_bytes"] for device in process["devices"]) / 2**20
        ours, theirs = process["held_bytes"] / 2**20 - unlisted, nvml[process["pid"]]
        difference = (ours - theirs) / theirs
        worst = max(worst, abs(difference))
        compared += 1
        print(f"{process['pid']} {process['command']}: ours {ours:.1f} MiB (and {unlisted:.4f} that NVML lists for nobody), NVML {theirs} MiB, {difference:+.2%}")
print(f"compared {compared}, worst {worst:.2%}")
sys.exit(0 if compared and worst < 0.02 else 1)
