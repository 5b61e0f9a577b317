#!/usr/bin/env python3
"""The page of `ullage report -f html` in a headless Chromium, over file://. Exit 77: there is none that starts.

usage: page.py ULLAGE MAKE_RECORD
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

from browser import Browser, NoBrowser

ULLAGE, MAKE_RECORD = sys.argv[1:3]
folder = tempfile.TemporaryDirectory(prefix="ullage-page-")
browser = None


def make(kind, *arguments):
    """A record with its page and its figures."""
    record = os.path.join(folder.name, f"{kind}.rec")
    if not os.path.exists(record):
        subprocess.run([MAKE_RECORD, kind, *arguments, record], check=True)
    page = os.path.join(folder.name, f"{kind}.html")
    subprocess.run([ULLAGE, "report", record, "-f", "html", "-o", page], check=True)
    said = subprocess.run([ULLAGE, "report", record, "-f", "json"], check=True, capture_output=True)
    return page, json.loads(said.stdout)


class Page(unittest.TestCase):
    def tearDown(self):
        self.assertEqual(browser.errors(), [])

    def open(self, kind, *arguments):
        page, figures = make(kind, *arguments)
        browser.open(page)
        return figures

    def choose(self, select, value):
        browser.run("""const select = document.getElementById(arguments[0]);
            select.value = arguments[1]; select.dispatchEvent(new Event("change"));""", select, str(value))

    def place(self, time=None):
        """Where on the window the timeline, or a moment of it, is: x, y of its middle."""
        browser.run("document.getElementById('timeline').scrollIntoView({block: 'center'})")
        return browser.run("""const plot = document.getElementById("timeline").getBoundingClientRect();
            const x = arguments[0] === null ? (drawn.box.left + drawn.box.right) / 2 : scale(drawn).x(arguments[0]);
            return [plot.left + x, plot.top + (drawn.box.top + drawn.box.bottom) / 2];""", time)

    def test_figures_are_those_of_json(self):
        figures = self.open("training")
        shown = browser.run("""const bytes = (id) => Number(document.getElementById("figure-" + id).dataset.bytes);
            return {peak: bytes("peak"), live: bytes("live"), average: bytes("average"), budget: bytes("budget"),
                suggested: bytes("suggested"), verdict: document.getElementById("figure-verdict").textContent,
                host: document.getElementById("figure-host-verdict").textContent,
                evidence: [...document.querySelectorAll("#evidence li")].map((item) => item.textContent)}""")
        self.assertEqual(shown, {
            "peak": figures["peak_bytes"], "live": figures["live_peak_bytes"], "average": figures["average_bytes"],
            "budget": figures["devices"][0]["budget_bytes"], "suggested": figures["suggested_bytes"],
            "verdict": figures["verdict"], "host": figures["host_verdict"],
            "evidence": figures["evidence"] + figures["host_evidence"]})

    def test_what_is_needed_is_rounded_up(self):
        figures = self.open("training")
        self.assertEqual(browser.run("return [4104650752, 2 ** 32, 1025, 512, null].map(bytesUp)"),
                         ["3.9 GiB", "4.0 GiB", "1.1 KiB", "512 B", "–"])
        self.assertIn(browser.run("return bytesUp(arguments[0])", figures["smallest_bytes"]),
                      browser.run("return document.getElementById('figure-suggested').parentElement.textContent"))

    def test_the_curves_have_the_peaks_of_json(self):
        figures = self.open("training")
        for select, rows in (("device", figures["devices"]), ("process", figures["processes"])):
            self.choose("device", -1)
            for number, row in enumerate(rows):
                self.choose(select, number)
                self.assertEqual(browser.run("return [peaks.peakHeld, peaks.peakLive]"),
                                 [row["peak_bytes"], row["live_peak_bytes"]])
            self.choose(select, -1)

    def test_the_peaks_contents_are_those_of_json(self):
        figures = self.open("training")
        rows = browser.run("""return contentsAt(view.moment).rows.map((row) => [row.bytes, row.count, row.largest,
            data.texts[row.kind.tag], stackOf(row.kind.node).length])""")
        wanted = [[h["bytes"], h["count"], h["largest_bytes"], h["tag"], len(h["stack"])] for h in figures["holders"]]
        self.assertEqual(sorted(rows), sorted(wanted))
        heading = browser.run("return document.getElementById('moment').textContent")
        self.assertIn("the peak", heading)
        self.assertIn("in 13 blocks", heading)

    def test_hovering_the_peak_shows_what_was_live(self):
        self.open("training")
        self.choose("mode", "tag")
        browser.pointer(("move", 5, 5), ("move", *self.place(browser.run("return peaks.peakLiveAt"))))
        browser.settle()
        hidden, text = browser.run("const tip = document.getElementById('tip'); return [tip.hidden, tip.innerText]")
        self.assertFalse(hidden)
        for part in ("the peak", "1.2 GiB", "live in 13 blocks", "130.0 MiB", "activations", "more kinds"):
            self.assertIn(part, text)
        browser.pointer(("move", 5, 5))
        browser.settle()
        self.assertTrue(browser.run("return document.getElementById('tip').hidden"))

    def test_click_drag_and_keys(self):
        self.open("training")
        end, peak = browser.run("return [END, view.moment]")
        x, y = self.place()
        browser.pointer(("move", x - 220, y), ("down",), ("up",))
        browser.settle()
        moment = browser.run("return view.moment")
        self.assertLess(moment, end / 2)
        self.assertIn(browser.run("return bytes(contentsAt(view.moment).live)"),
                      browser.run("return document.getElementById('moment').textContent"))
        browser.run("document.getElementById('timeline').focus()")
        browser.keys("\ue014")
        self.assertGreater(browser.run("return view.moment"), moment)
        browser.keys("p")
        self.assertEqual(browser.run("return view.moment"), peak)
        browser.pointer(("move", x - 100, y), ("down",), ("move", x + 50, y), ("move", x + 100, y), ("up",))
        browser.settle()
        begin, until = browser.run("return [view.from, view.to]")
        self.assertTrue(end * 0.25 < begin < end * 0.49 and end * 0.51 < until < end * 0.75, (begin, until, end))
        browser.keys("+")
        self.assertAlmostEqual(browser.run("return view.to - view.from"), (until - begin) / 2, delta=end / 100)
        browser.keys("\ue00c")
        self.assertEqual(browser.run("return [view.from, view.to]"), [0, end])

    def test_the_flame_graph_widens(self):
        figures = self.open("training")
        self.choose("process", 0)
        width = "return [...document.querySelectorAll('#flame .node')].map((node) => [node.flamePart.name, node.flamePart.value])"
        nodes = dict(browser.run(width))
        self.assertEqual(nodes["main (train.py:300)"], figures["live_peak_bytes"])
        self.choose("flame-what", "bytes")
        self.assertEqual(dict(browser.run(width))["main (train.py:300)"], 10212 << 20)
        browser.run("""[...document.querySelectorAll("#flame .node")].find((node) =>
            node.flamePart.name.startsWith("conv2d.3")).click()""")
        self.assertEqual(browser.run("return document.activeElement.flamePart.name"), "conv2d.3 (train.py:43)")
        self.assertEqual(browser.run("return document.activeElement.style.width"), "100%")
        self.assertFalse(browser.run("return document.getElementById('flame-all').hidden"))
        browser.keys("\ue013")
        self.assertTrue(browser.run("return document.activeElement.flamePart.name").startswith("forward"))

    def test_the_histogram_counts_as_json_does(self):
        figures = self.open("training")
        self.choose("device", -1)
        counted = browser.run("""const sums = {never: 0};
            for (const cell of countSizes().cells.values()) {
                sums[2 ** cell.size] = (sums[2 ** cell.size] || 0) + cell.count;
                if (cell.age < 0) sums.never += cell.count;
            }
            return sums""")
        wanted = {str(row["from_bytes"]): row["count"] for row in figures["sizes"]}
        self.assertEqual(counted, {**wanted, "never": figures["never_freed"]})

    def test_hostile_names_stay_text(self):
        self.open("hostile")
        self.choose("mode", "tag")
        self.assertEqual(browser.run("return document.getElementById('title').textContent"),
                         "</script><script>window.hacked=1</script>")
        self.assertIsNone(browser.run("return window.hacked === undefined ? null : window.hacked"))
        self.assertEqual(browser.run("return document.querySelectorAll('img, svg, b b, plaintext, iframe').length"), 0)
        self.assertEqual(browser.run("return document.scripts.length"), 3)
        text = browser.run("return document.body.innerText")
        for part in ("<img src=x onerror=window.hacked=2>", "<!--<script>", "</title><b>weights</b>&amp;", "<plaintext>.0"):
            self.assertIn(part, text)
        self.assertEqual(browser.run("return document.getElementById('footer').isConnected"), True)

    def test_records_with_little_in_them(self):
        self.open("driver")
        self.assertIn("no call stacks", browser.run("return document.getElementById('flame-note').textContent"))
        self.assertTrue(browser.run("return document.getElementById('refusals').hidden"))
        self.open("nothing")
        self.assertIn("Nothing was live", browser.run("return document.getElementById('contents').textContent"))
        x, y = self.place()
        browser.pointer(("move", x, y), ("down",), ("up",))
        browser.settle()

    def test_nothing_is_loaded_and_nothing_sticks_out(self):
        self.open("training")
        self.assertEqual(browser.run("return performance.getEntriesByType('resource').map((one) => one.name)"), [])
        self.assertTrue(browser.run("return document.documentElement.scrollWidth <= innerWidth"))
        browser.run("document.body.style.width = '390px'")
        browser.settle()
        self.assertTrue(browser.run("return document.body.scrollWidth <= 391"))

    def test_what_grew(self):
        before, _ = make("driver")
        page, _ = make("training")
        subprocess.run([ULLAGE, "report", page.replace(".html", ".rec"), "--diff", before.replace(".html", ".rec"), "-f", "html",
                        "-o", page], check=True)
        browser.open(page)
        self.choose("diff-by", "tag")
        text = browser.run("return document.getElementById('diff').innerText")
        self.assertIn("driver.rec", text)
        self.assertIn("+780.0 MiB", text)
        self.assertIn("activations", text)

    def test_more_events_than_pixels(self):
        figures = self.open("many", "40000")
        self.assertEqual(browser.run("return [peaks.peakHeld, peaks.peakLive]"),
                         [figures["peak_bytes"], figures["live_peak_bytes"]])
        highest = browser.run("return Math.max(...drawn.sweep.liveHigh)")
        self.assertEqual(highest, figures["live_peak_bytes"])


if __name__ == "__main__":
    try:
        browser = Browser.start()
    except NoBrowser as why:
        print(f"skipped: {why}")
        sys.exit(77)
    try:
        tests = unittest.main(argv=sys.argv[:1] + sys.argv[3:], exit=False)
    finally:
        browser.close()
        folder.cleanup()
    sys.exit(not tests.result.wasSuccessful())
