#!/usr/bin/env python3
"""Snapshots as PyTorch writes them, made by CPython's pickle, and what becomes of them.

usage: test_torch.py SNAPSHOT_TOOL ULLAGE
"""
import json
import os
import pickle
import random
import subprocess
import sys
import tempfile
import unittest

from check_snapshot import check_snapshot

TOOL, ULLAGE = sys.argv.pop(1), sys.argv.pop(1)
MIB = 1 << 20
BASE = 0x7F0000000000
START = 1_700_000_000_000_000  # microseconds


def run(data, protocol=4, raw=None, out=None):
    """The history of a snapshot, or the message why there is none."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "snapshot.pickle")
        with open(path, "wb") as file:
            file.write(pickle.dumps(data, protocol=protocol) if raw is None else raw)
        done = subprocess.run([TOOL, path] + ([out] if out else []), capture_output=True, check=False)
    if done.returncode != 0:
        assert done.returncode == 1, done
        return done.stderr.decode()
    return json.loads(done.stdout)


def frame(name, line=1, filename="/home/user/train.py"):
    return {"name": name, "filename": filename, "line": line}


def entry(action, addr, size, at, **more):
    key = "device_free" if action == "oom" else "addr"
    return {"action": action, key: addr, "size": size, "stream": 0, "time_us": START + at,
            "compile_context": "N/A", "user_metadata": "", **more}


def freed(addr, size, at):
    return [entry("free_requested", addr, size, at), entry("free_completed", addr, size, at + 1)]


def block(address, size, requested=None, state="active_allocated", frames=()):
    return {"address": address, "size": size, "requested_size": size if requested is None else requested,
            "state": state, "frames": list(frames)}


def segment(address, total, blocks, device=0, stream=0, frames=(), **more):
    active = [b for b in blocks if b["state"] != "inactive"]
    return {"device": device, "address": address, "total_size": total,
            "allocated_size": sum(b["size"] for b in active), "active_size": sum(b["size"] for b in active),
            "requested_size": sum(b["requested_size"] for b in active), "stream": stream,
            "segment_type": "large", "segment_pool_id": (0, 0), "is_expandable": False,
            "frames": list(frames), "blocks": blocks, **more}


def snapshot(trace=(), segments=(), **more):
    return {"segments": list(segments), "device_traces": [list(trace)], "allocator_settings": {},
            "external_annotations": [], **more}


def told(history, *kinds):
    """(kind, time in us, address, size, charged) of the events of those kinds, or of all."""
    return [(e["kind"], e["time"] // 1000, e["address"], e["size"], e["charged"])
            for e in history["events"] if not kinds or e["kind"] in kinds]


def balance(history):
    """Held and live at the end, and their peaks; nothing may be freed that is not there."""
    there, held, live, peak_held, peak_live = {}, 0, 0, 0, 0
    for e in history["events"]:
        if e["kind"] not in ("alloc", "free", "chunk_alloc", "chunk_free") or e["result"]:
            continue
        is_chunk = e["kind"].startswith("chunk")
        key = (is_chunk, e["device"], e["address"])
        if e["kind"].endswith("alloc"):
            assert key not in there, e
            there[key] = (e["size"], e["charged"])
            sign = 1
        else:
            assert there.pop(key) == (e["size"], e["charged"]), e
            sign = -1
        if is_chunk:
            live += sign * e["size"]
        else:
            held += sign * e["charged"]
        peak_held, peak_live = max(peak_held, held), max(peak_live, live)
    return held, live, peak_held, peak_live


class Reading(unittest.TestCase):
    def test_a_small_run(self):
        """All protocols give the same events: a segment, two chunks, one of them freed."""
        stack = [frame("forward", 12), frame("main", 30)]
        trace = [entry("segment_alloc", BASE, 2 * MIB, 0, frames=stack),
                 entry("alloc", BASE, 1000, 1, frames=stack),
                 entry("alloc", BASE + 1024, 600, 2, stream=7, category="weights"),
                 *freed(BASE, 1000, 10),
                 entry("snapshot", 0, 0, 20)]
        blocks = [block(BASE, 1024, 0, "inactive"), block(BASE + 1024, 2048, 600),
                  block(BASE + 3072, 2 * MIB - 3072, 0, "inactive")]
        data = snapshot(trace, [segment(BASE, 2 * MIB, blocks)])
        histories = [run(data, protocol) for protocol in (2, 3, 4, 5)]
        for history in histories:
            self.assertEqual(history, histories[0])
        history = histories[0]
        self.assertEqual(told(history), [
            ("alloc", 0, BASE, 2 * MIB, 2 * MIB),
            ("chunk_alloc", 1, BASE, 1000, 1024),
            ("chunk_alloc", 2, BASE + 1024, 600, 2048),  # what it really takes is known at the end
            ("chunk_free", 11, BASE, 1000, 1024),        # when its memory could be used again
            ("mark", 20, 0, 0, 0)])
        first, chunk = history["events"][1], history["events"][2]
        self.assertEqual(first["stack"], [["forward", "/home/user/train.py", 12],
                                          ["main", "/home/user/train.py", 30]])
        self.assertEqual((chunk["tag"], chunk["stream"], chunk["stack"]), ("weights", 7, []))
        self.assertEqual(history["unix_ns"], START * 1000)
        self.assertEqual(history["end_ns"], 20_000)
        self.assertEqual(history["devices"], [0])

    def test_the_ring_lost_the_beginning(self):
        """What is freed, or there at the end, without having been allocated was there before."""
        trace = [*freed(BASE + 512, 100, 5), entry("segment_free", BASE + 8 * MIB, 2 * MIB, 9)]
        blocks = [block(BASE, 512, 300, frames=[frame("old", 3)]),
                  block(BASE + 512, 2 * MIB - 1024, 0, "inactive"),
                  block(BASE + 2 * MIB - 512, 512, 500, "active_pending_free")]
        history = run(snapshot(trace, [segment(BASE, 2 * MIB, blocks, frames=[frame("grow")])]))
        self.assertEqual(told(history), [
            ("alloc", 0, BASE + 8 * MIB, 2 * MIB, 2 * MIB),
            ("alloc", 0, BASE, 2 * MIB, 2 * MIB),
            ("chunk_alloc", 0, BASE + 512, 100, 512),
            ("chunk_alloc", 0, BASE, 300, 512),
            ("chunk_alloc", 0, BASE + 2 * MIB - 512, 500, 512),
            ("chunk_free", 1, BASE + 512, 100, 512),
            ("free", 4, BASE + 8 * MIB, 2 * MIB, 2 * MIB)])
        self.assertEqual(history["events"][1]["stack"][0][0], "grow")
        self.assertEqual(history["events"][3]["stack"][0][0], "old")
        self.assertEqual(balance(history), (2 * MIB, 800, 4 * MIB, 900))

    def test_ends_that_were_not_recorded(self):
        trace = [entry("segment_alloc", BASE, 2 * MIB, 0), entry("alloc", BASE, 512, 1),
                 entry("alloc", BASE, 1024, 2), entry("alloc", BASE + 4096, 512, 3),
                 entry("segment_alloc", BASE + 4 * MIB, 2 * MIB, 4)]
        data = snapshot(trace, [segment(BASE, 2 * MIB, [block(BASE, 1024),
                                                        block(BASE + 1024, 2 * MIB - 1024, 0, "inactive")])])
        history = run(data)
        self.assertEqual(balance(history)[:2], (2 * MIB, 1024))
        self.assertEqual([e for e in told(history) if e[0] in ("chunk_free", "free")], [
            ("chunk_free", 2, BASE, 512, 512), ("chunk_free", 4, BASE + 4096, 512, 512),
            ("free", 4, BASE + 4 * MIB, 2 * MIB, 2 * MIB)])

    def test_only_requests_are_recorded(self):
        trace = [entry("segment_alloc", BASE, 2 * MIB, 0), entry("alloc", BASE, 512, 1),
                 entry("free_requested", BASE, 512, 3)]
        history = run(snapshot(trace))
        self.assertEqual(told(history, "chunk_free"), [("chunk_free", 3, BASE, 512, 512)])

    def test_segments_that_grow_and_shrink(self):
        """Expandable segments: what is unmapped need not be what was mapped."""
        page = 20 * MIB
        trace = [entry("segment_map", BASE, 3 * page, 0), entry("segment_map", BASE + 3 * page, page, 1),
                 entry("segment_unmap", BASE + page, 2 * page, 2),         # the middle of the first
                 entry("segment_map", BASE + page, page, 3),
                 entry("segment_unmap", BASE + 9 * page, page, 4),         # before the trace
                 entry("segment_unmap", BASE + 3 * page, 2 * page, 5)]     # one known, one before
        finals = [segment(BASE, 2 * page, [block(BASE, 2 * page, 0, "inactive")], is_expandable=True),
                  segment(BASE + 20 * page, page, [block(BASE + 20 * page, page, 0, "inactive")])]
        history = run(snapshot(trace, finals))
        held = balance(history)
        self.assertEqual(held[0], 3 * page)
        self.assertEqual(held[2], 7 * page)
        # What goes in parts was several blocks from the beginning.
        self.assertEqual([e[2:4] for e in told(history, "alloc") if e[1] == 0], [
            (BASE + 9 * page, page), (BASE + 4 * page, page), (BASE + 20 * page, page),
            (BASE, page), (BASE + page, 2 * page)])

    def test_chunks_in_what_stays(self):
        """Chunks across what was mapped in pieces, in a part that stays when another goes, and just before."""
        page = 2 * MIB
        trace = [entry("segment_map", BASE, 2 * page, 0), entry("alloc", BASE, page, 0),
                 entry("segment_map", BASE + 2 * page, page, 1), entry("alloc", BASE + page, page + 512, 2),
                 entry("alloc", BASE + 2 * page + 1024, 512, 3), *freed(BASE, page, 4),
                 entry("segment_unmap", BASE, page, 6)]
        finals = [segment(BASE + page, 2 * page, [
            block(BASE + page, page + 512), block(BASE + 2 * page + 512, 512, 0, "inactive"),
            block(BASE + 2 * page + 1024, 512), block(BASE + 2 * page + 1536, page - 1536, 0, "inactive")],
            is_expandable=True)]
        history, figures, wrote = copied(snapshot(trace, finals))
        self.assertEqual(balance(history), (2 * page, page + 1024, 3 * page, 2 * page + 1024))
        self.assertEqual((figures[0]["held"], figures[0]["live"], figures[0]["segments"]),
                         (2 * page, page + 1024, 1))
        self.assertEqual((figures[0]["peak_held"], figures[0]["peak_live"]), (3 * page, 2 * page + 1024))
        only = wrote["segments"][0]
        self.assertEqual((only["address"], only["total_size"], only["is_expandable"]), (BASE + page, 2 * page, True))
        self.assertEqual([e["action"] for e in wrote["device_traces"][0]][-1], "segment_unmap")

    def test_segments_in_which_nothing_lay(self):
        """They are the allocator's all the same: nothing in them is active."""
        finals = [segment(BASE, MIB, [block(BASE, MIB)]), segment(BASE + 4 * MIB, MIB, [block(BASE + 4 * MIB, MIB, 0,
                                                                                              "inactive")])]
        _, figures, _ = copied(snapshot([], finals))
        self.assertEqual((figures[0]["held"], figures[0]["live"]), (2 * MIB, MIB))

    def test_several_devices(self):
        """Numbers of the history leave out devices that were not used; addresses may be the same."""
        data = snapshot()
        data["device_traces"] = [[], [entry("segment_alloc", BASE, 2 * MIB, 7), entry("alloc", BASE, 512, 8)],
                                 [], [entry("segment_alloc", BASE, 4 * MIB, 3), entry("alloc", BASE, 512, 9)]]
        data["segments"] = [segment(BASE, 4 * MIB, [block(BASE, 512), block(BASE + 512, 4 * MIB - 512, 0, "inactive")],
                                    device=3),
                            segment(BASE, 2 * MIB, [block(BASE, 512), block(BASE + 512, 2 * MIB - 512, 0, "inactive")],
                                    device=1)]
        history = run(data)
        self.assertEqual(history["devices"], [1, 3])
        self.assertEqual([(e["device"], e["time"], e["size"]) for e in history["events"]], [
            (1, 0, 4 * MIB), (0, 4000, 2 * MIB), (0, 5000, 512), (1, 6000, 512)])
        self.assertEqual(balance(history), (6 * MIB, 1024, 6 * MIB, 1024))

    def test_out_of_memory(self):
        trace = [entry("oom", 123 * MIB, 5 << 30, 1, frames=[frame("too_much", 9)])]
        event = run(snapshot(trace, [segment(BASE, 512, [block(BASE, 512)])]))["events"][-1]
        self.assertEqual((event["kind"], event["size"], event["charged"], event["address"], event["result"],
                          event["stack"][0][0]), ("alloc", 5 << 30, 0, 0, 2, "too_much"))

    def test_tags_and_marks(self):
        trace = [entry("alloc", BASE, 512, 0, category="gradients", user_metadata="x"),
                 entry("alloc", BASE + 512, 512, 0, user_metadata="step 4"),
                 entry("alloc", BASE + 1024, 512, 0, user_metadata={"layer": "conv", "n": 3, "f": 1.5}),
                 entry("alloc", BASE + 1536, 512, 0, compile_context="0/1"),
                 entry("alloc", BASE + 2048, 512, 0),
                 entry("workspace_snapshot", 0, 0, 2)]
        notes = [{"name": "epoch", "stage": "START", "device": 0, "time_us": START + 1},
                 {"name": "epoch", "stage": "END", "device": 5, "time_us": START + 3}]
        history = run(snapshot(trace, external_annotations=notes))
        self.assertEqual([e["tag"] for e in history["events"]],
                         ["gradients", "step 4", "layer=conv, n=3, f=?", "0/1", "", "epoch",
                          "workspace_snapshot", "epoch end"])
        self.assertEqual([e["device"] for e in history["events"]][-3:], [0, 0, 255])
        self.assertEqual(told(history)[-1][:2], ("mark", 3))

    def test_no_segments_at_all(self):
        """Other programs write such: what they tell of is then what the driver gave."""
        history = run(snapshot([entry("alloc", BASE, 1000, 0), *freed(BASE, 1000, 4)]))
        self.assertEqual(told(history), [("alloc", 0, BASE, 1000, 1000), ("free", 5, BASE, 1000, 1000)])

    def test_addresses_above_the_middle(self):
        """As Python writes them (nine bytes), and as PyTorch's own writer does (negative)."""
        for high in (2**63 + 2 * MIB, 2**64 - 2 * MIB - 512):
            for written in (high, high - 2**64):
                data = snapshot([entry("segment_alloc", written, 2 * MIB, 0), entry("alloc", written, 512, 1)],
                                [segment(written, 2 * MIB, [block(written, 2 * MIB, 512)], stream=2**63 + 5)])
                for protocol in (2, 5):
                    self.assertEqual(told(run(data, protocol)), [
                        ("alloc", 0, high, 2 * MIB, 2 * MIB), ("chunk_alloc", 1, high, 512, 2 * MIB)])

    def test_the_first_versions(self):
        """`history` in place of frames, no addresses in blocks, no times, no traces of the ends."""
        blocks = [{"size": 1024, "state": "active_allocated",
                   "history": [{"addr": BASE, "real_size": 700, "frames": [frame("f", 4)]}]},
                  {"size": 512, "state": "inactive"},
                  {"size": 512, "state": "active_awaiting_free"}]
        old = {"device": 0, "address": BASE, "total_size": 2048, "allocated_size": 1024, "active_size": 1536,
               "stream": 0, "segment_type": "small", "blocks": blocks}
        trace = [{"action": "alloc", "addr": BASE, "size": 700, "stream": 0},
                 {"action": "free_requested", "addr": 64, "size": 700, "stream": 0},
                 {"action": "free_completed", "addr": 64, "size": 700, "stream": 0}]
        for data in ([old], {"segments": [old]}, (old,)):
            history = run(data)
            self.assertEqual(told(history), [("alloc", 0, BASE, 2048, 2048), ("chunk_alloc", 0, BASE, 700, 1024),
                                             ("chunk_alloc", 0, BASE + 1536, 512, 512)])
            self.assertEqual(history["events"][1]["stack"], [["f", "/home/user/train.py", 4]])
            self.assertEqual(history["unix_ns"], 0)
        history = run({"segments": [old], "device_traces": [trace]})
        self.assertEqual([e[1] for e in told(history)], [0, 0, 0, 0, 2])
        self.assertEqual(balance(history)[:2], (2048, 1212))

    def test_time_never_runs_backwards(self):
        trace = [entry("segment_alloc", BASE, MIB, 10), entry("alloc", BASE, 512, 8), *freed(BASE, 512, 9)]
        history = run(snapshot(trace))
        self.assertEqual([e[:2] for e in told(history)], [("alloc", 2), ("chunk_alloc", 2), ("chunk_free", 2)])

    def test_pinned_host_memory(self):
        host = [entry("segment_alloc", BASE, 4 * MIB, 1), entry("alloc", BASE, MIB, 1),
                entry("segment_alloc", BASE + 8 * MIB, 2 * MIB, 2), entry("segment_free", BASE, 4 * MIB, 5)]
        final = [{"address": 1, "total_size": 3 * MIB}, {"address": BASE + 8 * MIB, "total_size": 2 * MIB}]
        for traces in (host, [host]):
            data = snapshot([entry("snapshot", 0, 0, 0)], host_traces=traces, host_segments=final)
            history = run(data)
            self.assertEqual([e[:4] for e in told(history, "host")], [
                ("host", 0, 0, 3 * MIB), ("host", 1, 0, 7 * MIB), ("host", 2, 0, 9 * MIB), ("host", 5, 0, 5 * MIB)])

    def test_a_full_trace_is_said(self):
        data = snapshot([entry("snapshot", 0, 0, 0)], allocator_settings={"trace_alloc_overflowed": True})
        self.assertIn("lost", run(data)["events"][0]["tag"])

    def test_repeated_objects(self):
        """One list of frames for all, one dict for two entries, as Python may share them."""
        frames = [frame("f"), frame("g")]
        both = entry("alloc", BASE, 512, 0, frames=frames)
        trace = [entry("segment_alloc", BASE, MIB, 0, frames=frames), both, both]
        for protocol in (2, 3, 4, 5):
            history = run(snapshot(trace, [segment(BASE, MIB, [block(BASE, MIB, 512, frames=frames)])]), protocol)
            self.assertEqual([e[0] for e in told(history)], ["alloc", "chunk_alloc", "chunk_free", "chunk_alloc"])
            self.assertTrue(all(e["stack"] == history["events"][0]["stack"] for e in history["events"]
                                if e["kind"] != "chunk_free"))

    def test_more_than_one_batch(self):
        """Python writes lists and dicts a thousand items at a time."""
        trace = [entry("segment_alloc", BASE, 8 * MIB, 0)]
        trace += [entry("alloc", BASE + 512 * i, 512, i) for i in range(2500)]
        self.assertEqual(balance(run(snapshot(trace)))[3], 2500 * 512)


class Refusing(unittest.TestCase):
    def check(self, data, message, **more):
        answer = run(data, **more)
        self.assertIsInstance(answer, str)
        self.assertIn(message, answer)
        self.assertEqual(answer.count("\n"), 1)

    def test_code_is_not_run(self):
        class Bomb:
            def __reduce__(self):
                return (os.mkdir, ("/tmp/ullage-a-snapshot-was-run",))

        for protocol in (2, 3, 4, 5):
            self.check({"segments": [Bomb()]}, "nothing is run", protocol=protocol)
        self.assertFalse(os.path.exists("/tmp/ullage-a-snapshot-was-run"))

    def test_what_is_no_plain_data(self):
        self.check({"segments": b"x"}, "opcode SHORT_BINBYTES")
        self.check({"segments": {1, 2}}, "opcode EMPTY_SET")
        self.check({"segments": []}, "begins with 0x80", protocol=0)
        self.check({"segments": []}, "pickle", protocol=1)
        self.check({"segments": [], "n": 2**80}, "integer of 11 bytes")

    def test_other_files(self):
        self.check(None, "cannot read", raw=b"")
        self.check(None, "offset 0", raw=b"\x7fELF\x02\x01")
        self.check(None, "neither 'segments' nor", raw=pickle.dumps({"state_dict": 1}))
        self.check("a text", "neither 'segments' nor")
        self.check({"segments": 5}, "no list")
        self.check({"device_traces": {}}, "no list")

    def test_every_truncation(self):
        whole = pickle.dumps(snapshot([entry("alloc", BASE, 512, 0, frames=[frame("f")])]), protocol=4)
        for length in range(len(whole)):
            self.check(None, "offset", raw=whole[:length])
        self.assertIsInstance(run(None, raw=whole + b"\0\0"), dict)  # as the viewer's pages have it

    def test_wrong_numbers(self):
        self.check(snapshot([5]), "device 0, entry 0: no dict")
        self.check(snapshot([entry("alloc", BASE, 512, 0), entry("alloc", "x", 512, 0)]), "entry 1: no 'addr'")
        self.check(snapshot([{"action": "alloc", "addr": 5}]), "no 'size'")
        self.check(snapshot([entry("alloc", BASE, -5, 0)]), "more than 256 TiB")
        self.check(snapshot([entry("alloc", 2**64 - 100, 512, 0)]), "past the end")
        self.check(snapshot([], [segment(BASE, 512, [], device=300)]), "device number 300")
        self.check(snapshot([], [segment(BASE, 512, [], device=-1)]), "device number -1")
        self.check(snapshot([], [7]), "segment 0 is no dict")
        self.check(snapshot([], [{"device": 0}]), "without 'address'")
        self.check(snapshot([], [{"device": 0, "address": 0, "total_size": 9, "blocks": [{}]}]),
                   "a block without a 'size'")
        self.check({"segments": [], "device_traces": [[]] * 300}, "device number 255")
        many = [entry("alloc", i << 48, 1 << 48, i) for i in range(1 << 15)]
        self.check(snapshot(many), "more than 4 EiB")


def copied(data):
    """The history of a snapshot, the figures of what was written from it, and that."""
    with tempfile.TemporaryDirectory() as folder:
        path, copy = os.path.join(folder, "snapshot.pickle"), os.path.join(folder, "copy.pickle")
        with open(path, "wb") as file:
            pickle.dump(data, file)
        done = subprocess.run([TOOL, "--copy", path, copy], capture_output=True, check=True)
        with open(copy, "rb") as file:
            raw = file.read()
    return json.loads(done.stdout), check_snapshot(raw), pickle.loads(raw)


KINDS = ("none", "alloc", "free", "chunk_alloc", "chunk_free", "charge", "host", "card", "budget", "start", "end",
         "mark")
CLASSES = ("context", "data", "pool", "graph", "array", "module")


def event(kind, at, address=0, size=0, charged=None, process=0, device=0, of="data", result=0, stream=0, tag="-",
          stack="-"):
    charged = (size if result == 0 else 0) if charged is None else charged
    return (at, process, device, KINDS.index(kind), CLASSES.index(of), address, size, charged, result, stream, tag,
            stack)


def made(events):
    """The figures of what is written of a history of such events, and that."""
    lines = "".join(" ".join(map(str, e)) + "\n" for e in events)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "made.pickle")
        subprocess.run([TOOL, "--make", path], input=lines.encode(), check=True)
        with open(path, "rb") as file:
            raw = file.read()
    return check_snapshot(raw), pickle.loads(raw)


class Writing(unittest.TestCase):
    def test_blocks_of_the_driver(self):
        """Each is a segment with one block."""
        figures, wrote = made([event("alloc", 0, BASE, 3 * MIB, 4 * MIB, stack="load"),
                               event("alloc", 1000, BASE + 8 * MIB, 2 * MIB, stream=9),
                               event("free", 5000, BASE, 3 * MIB, 4 * MIB)])
        self.assertEqual(figures, [{"peak_held": 6 * MIB, "peak_live": 5 * MIB, "oom": 0, "held": 2 * MIB,
                                    "live": 2 * MIB, "entries": 7, "segments": 1}])
        only = wrote["segments"][0]
        self.assertEqual((only["address"], only["stream"], len(only["blocks"])), (BASE + 8 * MIB, 9, 1))
        trace = wrote["device_traces"][0]
        self.assertEqual([e["action"] for e in trace], ["segment_alloc", "alloc", "segment_alloc", "alloc",
                                                        "free_requested", "free_completed", "segment_free"])
        self.assertEqual(trace[1]["frames"], [{"name": "load", "filename": "", "line": 7}])
        self.assertEqual([e["time_us"] for e in trace], [0, 0, 1, 1, 5, 5, 5])

    def test_small_blocks_share_pages(self):
        """Two MiB for the first, nothing for the others, and they go with the last."""
        events = [event("alloc", i, BASE + 512 * i, 100, 2 * MIB if i == 0 else 0) for i in range(5)]
        events += [event("free", 10 + i, BASE + 512 * i, 100, 2 * MIB if i == 4 else 0) for i in range(5)]
        figures, wrote = made(events)
        self.assertEqual((figures[0]["peak_held"], figures[0]["peak_live"], figures[0]["held"]), (2 * MIB, 500, 0))
        self.assertEqual(wrote["device_traces"][0][-1]["action"], "segment_free")
        figures, wrote = made(events[:8])
        self.assertEqual(len(wrote["segments"][0]["blocks"]), 3)  # a gap, and two that fill the rest
        self.assertEqual(figures[0]["live"], 200)

    def test_pages_begin_before_their_first_block(self):
        events = [event("alloc", i, BASE + 2 * MIB * i + MIB, 512, 2 * MIB) for i in range(3)]
        events += [event("alloc", 5 + i, BASE + 2 * MIB * i + 512, 100, 0) for i in range(3)]
        figures, _ = made(events)
        self.assertEqual((figures[0]["held"], figures[0]["segments"]), (6 * MIB, 3))

    def test_handles(self):
        """Numbers that lie close together are given places."""
        figures, wrote = made([event("alloc", i, 0x5000 + 16 * i, 2 * MIB) for i in range(10)])
        self.assertEqual((figures[0]["held"], figures[0]["segments"]), (20 * MIB, 10))
        self.assertEqual(wrote["segments"][0]["address"], 0x5000)

    def test_processes_have_address_spaces(self):
        events = [event("alloc", p, BASE, 2 * MIB, process=p) for p in range(40)]
        events += [event("alloc", 50 + p, (1 << 60) + BASE, 2 * MIB, process=p) for p in range(3)]
        events += [event("end", 60 + p, process=p, device=255) for p in range(0, 40, 2)]
        self.assertEqual(made(events)[0][0]["held"], 2 * MIB * 21)

    def test_chunks_fill_segments(self):
        events = [event("alloc", 0, BASE, 20 * MIB), event("chunk_alloc", 1, BASE + MIB, 1000, 1024, tag="weights"),
                  event("chunk_alloc", 2, BASE + MIB + 1024, 5 * MIB, tag="batch"),
                  event("alloc", 3, BASE + 64 * MIB, 8 * MIB),  # not of the allocator: a block as before
                  event("chunk_free", 4, BASE + MIB, 1000, 1024),
                  event("chunk_alloc", 5, BASE, 700, 1024)]
        figures, wrote = made(events)
        self.assertEqual((figures[0]["held"], figures[0]["live"], figures[0]["peak_live"]),
                         (28 * MIB, 13 * MIB + 700, 13 * MIB + 1000))
        blocks = [s for s in wrote["segments"] if s["address"] == BASE][0]["blocks"]
        self.assertEqual([(b["state"] != "inactive", b["size"]) for b in blocks],
                         [(True, 1024), (False, MIB), (True, 5 * MIB), (False, 14 * MIB - 1024)])
        trace = wrote["device_traces"][0]
        self.assertEqual({e["category"] for e in trace}, {"unknown", "weights", "batch"})
        self.assertEqual([e["user_metadata"] for e in trace if e["action"] == "alloc"],
                         ["weights", "batch", "", ""])

    def test_chunks_of_a_block_that_ends(self):
        events = [event("alloc", 0, BASE, 2 * MIB), event("chunk_alloc", 1, BASE, 512),
                  event("chunk_alloc", 2, BASE + 512, 512), event("free", 3, BASE, 2 * MIB),
                  event("chunk_free", 4, BASE, 512), event("alloc", 5, BASE, 2 * MIB),
                  event("chunk_alloc", 6, BASE + 512, 512), event("end", 7, device=255)]
        figures, _ = made(events)
        self.assertEqual((figures[0]["held"], figures[0]["live"]), (0, 0))

    def test_chunks_without_a_block(self):
        """A pool over handles: its chunks stand for them."""
        events = [event("alloc", 0, 77, 2 * MIB), event("chunk_alloc", 1, BASE, MIB), event("chunk_free", 2, BASE, MIB),
                  event("chunk_alloc", 3, BASE + MIB, 512)]
        figures, _ = made(events)
        self.assertEqual((figures[0]["peak_held"], figures[0]["held"], figures[0]["segments"]), (MIB, 512, 1))

    def test_reserves(self):
        """A context is a block; a pool's reserve is told by what is taken out of it."""
        events = [event("charge", 0, charged=500 * MIB, of="context"), event("charge", 1, charged=32 * MIB, of="pool"),
                  event("charge", 2, charged=-100 * MIB, of="context"), event("alloc", 3, BASE, MIB, 0, of="pool"),
                  event("charge", 4, charged=-32 * MIB, of="pool"), event("charge", 5, charged=7, of="module")]
        figures, wrote = made(events)
        self.assertEqual(figures[0]["held"], 400 * MIB + MIB + 7)
        self.assertEqual({s["frames"][0]["name"] for s in wrote["segments"] if s["frames"]}, {"context", "module"})

    def test_refusals_and_marks(self):
        events = [event("alloc", 0, BASE, 512 * MIB), event("alloc", 1, 0, 700 * MIB, result=2),
                  event("mark", 2000, tag="step"), event("mark", 3000, tag="snapshot"), event("host", 4, size=7,
                                                                                              device=255)]
        figures, wrote = made(events)
        self.assertEqual(figures[0]["oom"], 1)
        refused = [e for e in wrote["device_traces"][0] if e["action"] == "oom"][0]
        self.assertEqual((refused["size"], refused["device_free"]), (700 * MIB, 512 * MIB))
        self.assertEqual(wrote["external_annotations"],
                         [{"name": "step", "stage": "START", "device": 0, "time_us": 2}])
        self.assertEqual(wrote["device_traces"][0][-1]["action"], "snapshot")

    def test_many_tags_are_no_categories(self):
        _, wrote = made([event("alloc", i, BASE + i * MIB, MIB, tag=f"t{i}") for i in range(40)])
        self.assertNotIn("category", wrote["device_traces"][0][0])
        self.assertEqual(wrote["device_traces"][0][3]["user_metadata"], "t1")

    def test_nothing(self):
        self.assertEqual(made([event("host", 0, size=5, device=255)])[0], [])

    def test_high_addresses(self):
        _, wrote = made([event("alloc", 0, 2**63 + 2 * MIB, 2 * MIB)])
        self.assertEqual(wrote["segments"][0]["address"], 2**63 + 2 * MIB - 2**64)

    def test_a_copy_says_the_same(self):
        """Snapshot -> history -> snapshot -> history."""
        stack = [frame("f", 3), frame("g", 5)]
        trace = [entry("segment_alloc", BASE, 4 * MIB, 0, frames=stack),
                 *[entry("alloc", BASE + 1024 * i, 1000, 1 + i, frames=stack, user_metadata=f"m{i % 3}", stream=i % 2)
                   for i in range(3000)],
                 *[e for i in range(0, 3000, 2) for e in freed(BASE + 1024 * i, 1000, 5000 + i)],
                 entry("snapshot", 0, 0, 9000)]
        blocks = []
        for i in range(3000):
            blocks.append(block(BASE + 1024 * i, 1024, 1000 if i % 2 else 0, "active_allocated" if i % 2
                                else "inactive", stack if i % 2 else ()))
        blocks.append(block(BASE + 3000 * 1024, 4 * MIB - 3000 * 1024, 0, "inactive"))
        notes = [{"name": "epoch", "stage": stage, "device": 0, "time_us": START + at}
                 for stage, at in (("START", 10), ("END", 20))]
        data = snapshot(trace, [segment(BASE, 4 * MIB, blocks, frames=stack)], external_annotations=notes)
        first, figures, wrote = copied(data)
        second, again, _ = copied(wrote)
        self.assertEqual(figures[0]["live"], 1500 * 1000)
        self.assertEqual(figures[0]["held"], 4 * MIB)
        self.assertEqual(again[0], {**figures[0], "entries": figures[0]["entries"] + 1})  # another first mark

        def without_marks(history):
            return [e for e in history["events"] if e["tag"] != "snapshot"]

        self.assertEqual(without_marks(second), without_marks(first))
        self.assertEqual((second["unix_ns"], second["end_ns"]), (first["unix_ns"], first["end_ns"]))

    def test_copies_of_several_devices(self):
        data = snapshot()
        data["device_traces"] = [[], [entry("alloc", BASE, 512, 8)], []]
        data["segments"] = [segment(BASE, MIB, [block(BASE, MIB, 512)], device=1)]
        _, figures, wrote = copied(data)
        self.assertEqual(len(wrote["device_traces"]), 2)
        self.assertEqual((figures[0]["held"], figures[1]["held"]), (0, MIB))

    def test_at_random(self):
        """Whatever a history has, even what cannot be, becomes a snapshot that keeps to the rules."""
        for seed in range(100):
            dice = random.Random(seed)
            events = []
            for at in range(dice.choice((20, 400))):
                kind = dice.choice(("alloc", "alloc", "free", "chunk_alloc", "chunk_alloc", "chunk_free", "charge",
                                    "mark", "end") if seed % 3 else ("alloc", "chunk_alloc", "chunk_free"))
                if kind == "end" and dice.random() < 0.8:
                    continue
                base = dice.choice((BASE, 0, 2**48, 2**63))
                size = dice.choice((1, 100, 512, 5000, MIB, 2 * MIB))
                charged = dice.choice((0, size, (size + 511) // 512 * 512, 2 * MIB))
                events.append(event(
                    kind, at * 1000, base + dice.choice((512, 64 * 1024, MIB)) * dice.randrange(40), size,
                    dice.choice((-1, 1)) * charged if kind == "charge" else charged, dice.randrange(3),
                    255 if kind == "end" else dice.randrange(2), dice.choice(CLASSES), 2 if dice.random() < 0.05 else 0,
                    dice.randrange(2), dice.choice(("-", "a", "b")), dice.choice(("-", "f", "g"))))
            with self.subTest(seed=seed):
                made(events)


class Command(unittest.TestCase):
    """`ullage report` of a snapshot."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = os.path.join(self.folder.name, "snapshot.pickle")
        trace = [entry("segment_alloc", BASE, 2 * MIB, 0), entry("alloc", BASE, 1000, 1, frames=[frame("forward")])]
        blocks = [block(BASE, 1024, 1000), block(BASE + 1024, 2 * MIB - 1024, 0, "inactive")]
        with open(self.path, "wb") as file:
            pickle.dump(snapshot(trace, [segment(BASE, 2 * MIB, blocks)]), file, protocol=2)

    def report(self, *arguments):
        done = subprocess.run([ULLAGE, "report", *arguments], capture_output=True, check=False)
        return done.returncode, done.stdout, done.stderr.decode()

    def test_figures(self):
        code, out, _ = self.report(self.path, "-f", "json")
        told_of = json.loads(out)
        self.assertEqual((code, told_of["origin"], told_of["peak_bytes"], told_of["live_peak_bytes"]),
                         (0, "torch", 2 * MIB, 1000))
        self.assertIn(b"forward", self.report(self.path)[1])

    def test_a_copy_in_a_file_and_by_a_pipe(self):
        path = os.path.join(self.folder.name, "copy.pickle")
        self.assertEqual(self.report(self.path, "-f", "torch", "-o", path), (0, b"", ""))
        with open(path, "rb") as file:
            wrote = file.read()
        self.assertEqual(check_snapshot(wrote)[0]["held"], 2 * MIB)
        self.assertEqual(self.report("-f", "torch", self.path), (0, wrote, ""))

    def test_refusals(self):
        with open(self.path, "r+b") as file:
            file.truncate(200)
        code, out, err = self.report(self.path, "-f", "torch")
        self.assertEqual((code, out), (1, b""))
        self.assertIn("offset 200", err)
        self.assertEqual(self.report(self.path, "-f", "torch", "--diff", self.path)[0], 2)


if __name__ == "__main__":
    unittest.main()
