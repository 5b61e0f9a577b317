#!/usr/bin/env python3
"""Reads a record by the description in src/record/format.h alone, and tells of it in JSON.

    record.py FILE

An own reader, so that the tests do not take the word of the code that they test. What is charged is summed up for
each process, device and class; `peak` is the most of each at any moment, `last` what it was when the process ended.
"""
import json
import struct
import sys
import zlib

KINDS = "none alloc free chunk_alloc chunk_free charge host card budget start end mark".split()
CLASSES = "context data pool graph array module".split()
MAGIC = b"\x89ULREC\r\n"
FALLS = ("free", "chunk_free")


class Bytes:
    def __init__(self, data):
        self.data, self.at = data, 0

    def byte(self):
        self.at += 1
        return self.data[self.at - 1]

    def number(self):
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    def signed(self):
        value = self.number()
        return value >> 1 ^ -(value & 1)

    def round(self, signed=False):
        value = self.number()
        whole, value = value & 1, value >> 1
        if signed:
            value = value >> 1 ^ -(value & 1)
        return value * 512 if whole else value


class Writer:
    def __init__(self, pid):
        self.pid, self.sequence, self.dropped = pid, 0, 0
        self.texts, self.stacks, self.devices, self.processes = {0: ""}, {0: []}, {}, {}


def definition(kind, body, writer, job):
    if kind == 64:
        number = body.number()
        writer.texts[number] = body.data[body.at:].decode(errors="replace")
    elif kind == 65:
        number, count = body.number(), body.number()
        writer.stacks[number] = [
            (writer.texts[body.number()], writer.texts[body.number()], body.number()) for _ in range(count)]
    elif kind == 66:
        number = body.number()
        writer.devices[number] = {"uuid": writer.texts[body.number()], "name": writer.texts[body.number()],
                                  "logical": body.signed(), "physical": body.signed(),
                                  "total": body.number(), "budget": body.number()}
    elif kind == 67:
        number = body.number()
        writer.processes[number] = {"pid": body.number(), "parent": body.number(), "ticks": body.number(),
                                    "begin": body.number(), "name": writer.texts[body.number()],
                                    "own": number == 0}
    elif kind == 68:
        job.update(name=writer.texts[body.number()], command=writer.texts[body.number()],
                   version=writer.texts[body.number()])
    elif kind == 69:
        body.number()
        job["exit_code"] = body.signed()


def event(kind, body, writer, last):
    differs = body.byte()
    last["time"] += body.signed()
    last["address"] += body.round(signed=True)
    size = body.round()
    how = body.number()
    charged = size if how == 0 else 0 if how == 1 else body.round(signed=True)
    latency = body.number()
    if differs & 1:
        last["thread"] = body.number()
    if differs & 2:
        last["stream"] = body.number()
    if differs & 4:
        last["device"], last["class"] = body.byte(), body.byte()
    if differs & 8:
        last["process"] = body.number()
    result = body.signed() if differs & 16 else 0
    wait = body.byte() if differs & 32 else 0
    stack = body.number() if differs & 64 else 0
    tag = body.number() if differs & 128 else 0
    device = writer.devices[last["device"]]["uuid"] if last["device"] != 255 else None
    process = writer.processes[last["process"]]
    return {"kind": KINDS[kind], "time": last["time"], "address": last["address"], "size": size,
            "charged": charged, "latency": latency, "thread": last["thread"], "stream": last["stream"],
            "device": device, "class": CLASSES[last["class"]], "process": process["pid"], "own": process["own"],
            "result": result, "wait": wait, "stack": writer.stacks[stack], "tag": writer.texts[tag]}


def read(data):
    writers, events, job = {}, [], {}
    at = torn = 0
    while at + 64 <= len(data):
        head = data[at:at + 64]
        if head[:8] != MAGIC or zlib.crc32(head[:60]) != struct.unpack("<I", head[60:])[0]:
            assert data.find(MAGIC, at + 1) > 0, f"no block at {at}"
            torn, at = torn + 1, data.find(MAGIC, at + 1)
            continue
        version, kind, size, check, pid, started, sequence, base, dropped, count = struct.unpack(
            "<HHIIIQQQQI", head[8:60])
        payload = data[at + 64:at + 64 + size]
        if zlib.crc32(payload) != check:
            after = data.find(MAGIC, at + 1)
            if after < 0:
                break
            torn, at = torn + 1, after
            continue
        assert (version, kind) == (1, 1)
        writer = writers.setdefault((pid, started), Writer(pid))
        assert sequence == writer.sequence + 1
        writer.sequence, writer.dropped = sequence, dropped
        body, seen = Bytes(payload), 0
        last = {"time": base, "address": 0, "stream": 0, "thread": 0, "process": 0, "device": 0, "class": 0}
        while body.at < size:
            item = body.byte()
            if item < 64:
                events.append(event(item, body, writer, last))
                seen += 1
            else:
                length = body.number()
                definition(item, Bytes(body.data[body.at:body.at + length]), writer, job)
                body.at += length
        assert seen == count and body.at == size
        at += 64 + size
    return writers, events, job, torn, at


def main():
    data = open(sys.argv[1], "rb").read()
    writers, events, job, torn, end = read(data)
    held, peak, totals, peak_total, last = {}, {}, {}, {}, {}
    for e in sorted(events, key=lambda e: e["time"]):
        pid = e["process"]
        if e["kind"] == "end" and e["own"]:
            last[pid] = dict(held.get(pid, {}))
        if e["kind"] == "end":
            for key in held.get(pid, {}):
                for device in totals: # the tests of sums have one device
                    totals[device] -= held[pid][key]
            held.pop(pid, None)
        if e["kind"] in ("host", "card", "budget", "start", "end", "mark"):
            continue
        key = f"{e['class']}"
        change = -e["charged"] if e["kind"] in FALLS else e["charged"]
        now = held.setdefault(pid, {})
        now[key] = now.get(key, 0) + change
        peaks = peak.setdefault(pid, {})
        peaks[key] = max(peaks.get(key, 0), now[key])
        totals[e["device"]] = totals.get(e["device"], 0) + change
        peak_total[e["device"]] = max(peak_total.get(e["device"], 0), totals[e["device"]])
    processes = {}
    for writer in writers.values():
        for process in writer.processes.values():
            processes.setdefault(process["pid"], process)
    counts = {}
    for e in events:
        counts[e["kind"]] = counts.get(e["kind"], 0) + 1
    json.dump({"job": job, "writers": len(writers), "torn": torn, "unread": len(data) - end,
               "dropped": sum(w.dropped for w in writers.values()), "processes": list(processes.values()),
               "counts": counts, "peak": peak, "held": held, "last": last, "peak_total": peak_total,
               "devices": list({d["uuid"]: d for w in writers.values() for d in w.devices.values()}.values()),
               "events": events}, sys.stdout)


main()
