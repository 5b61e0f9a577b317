"""Median and spread of "free MS" and "held MS" lines, and the ratio of their medians.

usage: ratio.py FILE
"""
import statistics
import sys

times = {"free": [], "held": []}
for line in open(sys.argv[1]):
    name, value = line.split()
    times[name].append(float(value))
for name, values in times.items():
    print(f"{name}: median {statistics.median(values):.4f} ms, {min(values):.4f} to {max(values):.4f}, {len(values)} runs")
ratio = statistics.median(times["held"]) / statistics.median(times["free"])
print(f"held / free = {ratio:.4f}")
