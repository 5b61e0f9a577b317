#!/usr/bin/env python3
"""How long the page of a large record takes: to write, to open in Chromium, to answer the mouse.

usage: page.py [BUILD_DIR] [--events N]

Makes a record of N events (1,000,000), writes its page, opens it over file:// in a headless Chromium three times and
takes the best: seconds from the request to the drawn page, the processor time of the page's own process (which
other work on the machine does not lengthen as much), milliseconds for a tooltip, a zoom and another device.
Prints one line of JSON.
"""
import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time

import where

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "e2e", "page"))
from browser import Browser, NoBrowser  # noqa: E402

TIMED = """const begin = performance.now(); for (let i = 0; i < 5; i++) { %s } return (performance.now() - begin) / 5;"""


def processor_time(browser):
    """Of the processes that pages of this browser are drawn in."""
    ticks = 0
    for entry in os.listdir("/proc"):
        try:
            with open(f"/proc/{entry}/cmdline", "rb") as line:
                words = line.read()
            if b"--type=renderer" in words and browser.folder.encode() in words:
                with open(f"/proc/{entry}/stat", encoding="utf-8") as stat:
                    ticks += sum(int(field) for field in stat.read().rpartition(")")[2].split()[11:13])
        except OSError:
            continue
    return ticks / os.sysconf("SC_CLK_TCK")


def main():
    options = argparse.ArgumentParser()
    options.add_argument("build", nargs="?", default="build/release")
    options.add_argument("--events", type=int, default=1000000)
    options = options.parse_args()
    result = {"events": options.events, "open_s": None}
    with tempfile.TemporaryDirectory() as folder:
        record, page = f"{folder}/record", f"{folder}/page.html"
        subprocess.run([f"{options.build}/tests/e2e/page/make_record", "many", str(options.events), record], check=True)
        begin, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([f"{options.build}/ullage", "report", record, "-f", "html", "-o", page], check=True)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        result["write_s"] = round(time.monotonic() - begin, 2)
        result["write_cpu_s"] = round(used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime, 2)
        result["write_mib"] = used.ru_maxrss // 1024
        result["page_mib"] = round(os.path.getsize(page) / (1 << 20), 1)
        for _ in range(3):
            browser = Browser()
            try:
                seconds = browser.open(page)
                result["open_s"] = round(min(seconds, result["open_s"] or seconds), 2)
                cpu = processor_time(browser)
                result["open_cpu_s"] = round(min(cpu, result.get("open_cpu_s", cpu)), 2)
                result["tooltip_ms"] = round(browser.run(TIMED % "momentTip(peaks.peakLiveAt);"), 1)
                result["zoom_ms"] = round(browser.run(TIMED % "zoomTo(END * 0.2, END * 0.7);"), 1)
                result["choose_ms"] = round(browser.run(TIMED % "choose();"), 1)
            finally:
                browser.close()
    result.update(where.facts())
    print(json.dumps(result))


if __name__ == "__main__":
    try:
        main()
    except NoBrowser as why:
        sys.exit(f"page.py: {why}")
