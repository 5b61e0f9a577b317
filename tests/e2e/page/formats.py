#!/usr/bin/env python3
"""What `ullage report` embeds in its page and writes as a trace, taken apart again and compared with -f json.

usage: formats.py ULLAGE MAKE_RECORD
"""
import base64
import collections
import html.parser
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

ULLAGE, MAKE_RECORD = sys.argv[1:3]
folder = tempfile.TemporaryDirectory(prefix="ullage-formats-")
CAME, WENT, LEFT, ADJUSTED = range(4)
LIVE, HELD = 1, 2


def record(kind, *arguments):
    path = os.path.join(folder.name, f"{kind}{''.join(arguments)}.rec")
    if not os.path.exists(path):
        subprocess.run([MAKE_RECORD, kind, *arguments, path], check=True)
    return path


def report(path, name, *options):
    return subprocess.run([ULLAGE, "report", path, "-f", name, *options], check=True, capture_output=True).stdout


class Parts(html.parser.HTMLParser):
    """The elements of a page, and what is in its scripts, as a browser would find them."""

    def __init__(self, page):
        super().__init__()
        self.elements, self.texts, self.inside = collections.Counter(), {}, None
        self.attributes = collections.defaultdict(list)
        self.feed(page.decode())

    def handle_starttag(self, tag, attributes):
        self.elements[tag] += 1
        self.attributes[tag].append(dict(attributes))
        if tag == "script":
            self.inside = dict(attributes).get("id", "script")
            self.texts[self.inside] = ""

    def handle_endtag(self, tag):
        if tag == "script":
            self.inside = None

    def handle_data(self, data):
        if self.inside:
            self.texts[self.inside] += data


def unpack(data):
    """Every change as (moment, what, process, device, class, held, live)."""
    packed, at, spans, now = base64.b64decode(data["changes"], validate=True), 0, [], 0
    kinds = [data["kinds"][i:i + 7] for i in range(0, len(data["kinds"]), 7)]

    def number():
        nonlocal at
        value = shift = 0
        while True:
            byte = packed[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    def signed():
        value = number()
        return -(value + 1) // 2 if value & 1 else value // 2

    changes = []
    for _ in range(data["change_count"]):
        now += number() * data["tick"]
        head = number()
        what, rest = head & 3, head >> 2
        if what == CAME:
            size = number()
            size = size // 2 * 512 if size & 1 else size // 2
            process, device, class_, _, flags, _, _ = kinds[rest]
            held = size + signed() if flags & HELD else 0
            spans.append((process, device, class_, held, size if flags & LIVE else 0))
            changes.append((now, what, *spans[-1]))
        elif what in (WENT, LEFT):
            process, device, class_, held, live = spans[len(spans) - 1 - rest]
            changes.append((now, what, process, device, class_, -held, -live))
        else:
            changes.append((now, what, number(), number(), number(), signed(), signed()))
    assert at == len(packed)
    assert len(spans) == data["span_count"]
    return changes


def peak(changes, wanted):
    """The highest that what is held and what is live came to."""
    held = live = most_held = most_live = 0
    for _, _, process, device, _, by_held, by_live in changes:
        if wanted(process, device):
            held += by_held
            live += by_live
            most_held, most_live = max(most_held, held), max(most_live, live)
    return most_held, most_live


class Page(unittest.TestCase):
    def parts(self, path):
        parts = Parts(report(path, "html"))
        return parts, json.loads(parts.texts["figures"]), json.loads(parts.texts["data"])

    def test_figures_are_the_json(self):
        path = record("training")
        _, figures, _ = self.parts(path)
        self.assertEqual(figures, json.loads(report(path, "json")))

    def test_changes_add_up_to_the_figures(self):
        for path in (record("training"), record("driver"), record("many", "30000")):
            _, figures, data = self.parts(path)
            changes = unpack(data)
            self.assertEqual([c[0] for c in changes], sorted({c[0] for c in changes}))
            self.assertGreater(data["end"], changes[-1][0])
            self.assertEqual(data["folded"], 0)
            for number, device in enumerate(figures["devices"]):
                self.assertEqual(peak(changes, lambda p, d, n=number: d == n),
                                 (device["peak_bytes"], device["live_peak_bytes"]))
            for number, process in enumerate(figures["processes"]):
                self.assertEqual(peak(changes, lambda p, d, n=number: p == n),
                                 (process["peak_bytes"], process["live_peak_bytes"]))
            came = sum(change[1] == CAME for change in changes)
            self.assertEqual(came, sum(process["allocations"] for process in figures["processes"]))

    def test_numbers_lead_somewhere(self):
        _, figures, data = self.parts(record("many", "30000"))
        for node in range(0, len(data["nodes"]), 2):
            self.assertLessEqual(data["nodes"][node], node // 2)  # a parent comes first
            self.assertLess(data["nodes"][node + 1], len(data["frames"]) // 3)
        for frame in range(0, len(data["frames"]), 3):
            self.assertLess(max(data["frames"][frame:frame + 2]), len(data["texts"]))
        for kind in range(0, len(data["kinds"]), 7):
            process, device, class_, _, _, tag, node = data["kinds"][kind:kind + 7]
            self.assertTrue(process < len(figures["processes"]) and device < len(figures["devices"]))
            self.assertTrue(class_ < len(data["classes"]) and tag < len(data["texts"]))
            self.assertLessEqual(node, len(data["nodes"]) // 2)

    def test_events_besides(self):
        _, _, data = self.parts(record("training"))
        self.assertEqual(data["refusals_count"], 1)
        self.assertEqual(data["refusals"][1:5], [0, 0, 4000 << 20, 1])
        self.assertEqual((data["waits_count"], data["waits"][1:6]), (2, [0, 0, 130 << 20, 40000000, 4]))
        self.assertEqual(data["budgets"][1:], [0, 3072 << 20])
        self.assertEqual(data["texts"][data["marks"][2]], "epoch 2")
        self.assertEqual(data["host_count"], 24)

    def test_nothing_of_the_record_is_markup(self):
        harmless, hostile = self.parts(record("training"))[0], self.parts(record("hostile"))[0]
        self.assertEqual(hostile.elements, harmless.elements)
        self.assertEqual(list(hostile.texts), list(harmless.texts))
        page = report(record("hostile"), "html")
        for text in (b"</script><script>window", b"<img src=x", b"<plaintext>"):
            self.assertNotIn(text, page)
        self.assertIn(b"{{script}}", page)  # no mark of ours
        self.assertIn("\ufffd", self.parts(record("hostile"))[0].texts["data"])

    def test_one_file_from_nowhere_else(self):
        parts, _, _ = self.parts(record("training"))
        for tag in ("link", "img", "iframe", "a", "object"):
            self.assertEqual(parts.elements[tag], 0)
        self.assertFalse([one for one in parts.attributes["script"] if "src" in one])
        self.assertFalse(re.search(rb"https?://|url\(|@import|fetch\(|XMLHttpRequest|innerHTML|outerHTML|insertAdjacentHTML|"
                                   rb"document\.write|\beval\(|new Function", report(record("training"), "html")))
        policy = [one["content"] for one in parts.attributes["meta"] if "Content-Security-Policy" in one.values()]
        self.assertIn("default-src 'none'", policy[0])
        self.assertNotIn("unsafe", policy[0])

    def test_difference(self):
        parts = Parts(report(record("training"), "html", "--diff", record("driver")))
        self.assertIn("diff", json.loads(parts.texts["figures"]))

    def test_records_with_little_in_them(self):
        _, figures, data = self.parts(record("nothing"))
        self.assertEqual((data["change_count"], data["changes"], data["kinds"]), (0, "", []))
        self.assertEqual(figures["peak_bytes"], 0)


class Trace(unittest.TestCase):
    def events(self, path):
        trace = json.loads(report(path, "perfetto"))
        self.assertEqual(trace["displayTimeUnit"], "ms")
        for event in trace["traceEvents"]:
            self.assertTrue({"ph", "name", "pid", "ts"} <= set(event), event)
            self.assertGreaterEqual(event["ts"], 0)
        return trace["traceEvents"]

    def test_counters_have_the_peaks(self):
        for path in (record("training"), record("driver"), record("many", "60000")):
            figures, events = json.loads(report(path, "json")), self.events(path)
            most = collections.Counter()
            for event in events:
                if event["ph"] == "C":
                    key = event["pid"], event["name"]
                    most[key] = max(most[key], sum(event["args"].values()))
            rows = [(number + 1, row) for number, row in enumerate(figures["devices"])]
            rows += [(row["pid"], row) for row in figures["processes"]]
            for pid, row in rows:
                self.assertEqual((most[pid, "held"], most[pid, "live"]), (row["peak_bytes"], row["live_peak_bytes"]))

    def test_counters_go_forward(self):
        last = {}
        for event in self.events(record("training")):
            if event["ph"] == "C" and event["name"] != "budget":
                key = event["pid"], event["name"]
                self.assertGreater(event["ts"], last.get(key, -1))
                last[key] = event["ts"]

    def test_slices_end(self):
        events = self.events(record("training"))
        begun = {event["id"]: event for event in events if event["ph"] == "b"}
        ended = {event["id"]: event for event in events if event["ph"] == "e"}
        self.assertEqual(set(begun), set(ended))
        self.assertEqual(len(begun), sum(p["allocations"] for p in json.loads(report(record("training"), "json"))["processes"]))
        for number, event in begun.items():
            self.assertLess(event["ts"], ended[number]["ts"])
            self.assertEqual((event["name"], event["cat"], event["pid"]),
                             (ended[number]["name"], ended[number]["cat"], ended[number]["pid"]))
        largest = max(begun.values(), key=lambda event: event["args"]["bytes"])
        self.assertEqual((largest["name"], largest["args"]["bytes"]), ("activations", 130 << 20))
        self.assertEqual(largest["args"]["frame 00"], "conv2d.0 (/home/someone/train.py:40)")

    def test_the_largest_are_chosen(self):
        begun = [event["args"]["bytes"] for event in self.events(record("many", "60000")) if event["ph"] == "b"]
        self.assertEqual(len(begun), 20000)
        _, _, data = Page().parts(record("many", "60000"))
        sizes = sorted((change[6] or change[5] for change in unpack(data) if change[1] == CAME), reverse=True)
        self.assertEqual(sorted(begun, reverse=True), sizes[:20000])

    def test_names_and_instants(self):
        events = self.events(record("training"))
        names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
        self.assertEqual(names, {1: "GPU 0, Made-up card", 2: "GPU 1, Made-up card", 4000: "python3 (pid 4000)",
                                 4001: "loader (pid 4001)"})
        instants = [event for event in events if event["ph"] == "i"]
        self.assertEqual(collections.Counter(event["cat"] for event in instants), {"refused": 1, "waited": 2, "mark": 1})
        refused = next(event for event in instants if event["cat"] == "refused")
        self.assertEqual((refused["s"], refused["args"]["bytes"], refused["args"]["after"]),
                         ("g", 4000 << 20, "the program went on"))

    def test_hostile_names(self):
        names = {event["name"] for event in self.events(record("hostile"))}
        self.assertIn("<!--<script>", names)

    def test_bounded(self):
        self.assertLess(len(report(record("many", "60000"), "perfetto")), 60 << 20)

    def test_no_difference(self):
        done = subprocess.run([ULLAGE, "report", record("training"), "-f", "perfetto", "--diff", record("driver")],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("html", done.stderr)


if __name__ == "__main__":
    tests = unittest.main(argv=sys.argv[:1] + sys.argv[3:], exit=False)
    folder.cleanup()
    sys.exit(not tests.result.wasSuccessful())
