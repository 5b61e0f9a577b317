"""What PyTorch holds where a step needs most, and what its ways to compute attention take.

    torch_memory.py peak OUT [--frames all|python|none]   ResNet-50 on 2160 x 3840 pictures, each block checkpointed, one picture at
                                                     a time: live blocks at the peak of a step, and the events around it
    torch_memory.py attention                        time and memory beside operands of each way, one JSON object a line

Needs a card, PyTorch and torchvision.
"""
import argparse
import contextlib
import json
import statistics

import torch
import torch.nn.functional as functional


def checkpointed_step():
    """The step whose peak the baseline has as `fp32+ga4+ckpt`."""
    import torchvision
    from torch.utils.checkpoint import checkpoint

    torch.manual_seed(0)
    model = torchvision.models.resnet50().to("cuda")
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
    x = torch.randn(1, 3, 2160, 3840, device="cuda")
    y = torch.randint(0, 1000, (1,), device="cuda")
    stem = torch.nn.Sequential(model.conv1, model.bn1, model.relu, model.maxpool)
    blocks = [stem] + [b for layer in (model.layer1, model.layer2, model.layer3, model.layer4) for b in layer]

    def micro():
        h = x
        for block in blocks:
            h = checkpoint(block, h, use_reentrant=False)
        (functional.cross_entropy(model.fc(torch.flatten(model.avgpool(h), 1)), y) / 4).backward()

    def update():
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return micro, update


def short(frames):
    """The frames that say something: of the model and of autograd, innermost first."""
    names = []
    for frame in frames or []:
        name = frame["name"]
        if "Allocator" in name or "malloc" in name.lower() or "empty" in name or "::call" in name or "wrapper" in name:
            continue
        names.append(f"{name[:90]} ({frame['filename'].rsplit('/', 1)[-1]}:{frame['line']})")
        if len(names) == 14:
            break
    return names


def peak(out, frames):
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    micro, update = checkpointed_step()
    for _ in range(3):
        for _ in range(4):
            micro()
        update()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    micro()
    first_peak = torch.cuda.max_memory_allocated()
    before = torch.cuda.memory_allocated()
    # Not at frees: a checkpoint ends its second run by an exception, and asking for frames meanwhile loses it.
    torch.cuda.memory._record_memory_history(
        "all", context="alloc" if frames != "none" else None, stacks=frames if frames != "none" else "python",
        max_entries=200000)
    micro()
    torch.cuda.synchronize()
    second_peak = torch.cuda.max_memory_allocated()
    trace = torch.cuda.memory._snapshot()["device_traces"][0]
    torch.cuda.memory._record_memory_history(enabled=None)
    live, held, highest, at = {}, before, before, 0
    for i, event in enumerate(trace):
        if event["action"] == "alloc":
            held += event["size"]
            live[event["addr"]] = (event["size"], i)
            if held > highest:
                highest, at = held, i
        elif event["action"] == "free_completed":
            held -= event["size"]
            live.pop(event["addr"], None)
    live = {}
    for i, event in enumerate(trace[: at + 1]):
        if event["action"] == "alloc":
            live[event["addr"]] = (event["size"], i)
        elif event["action"] == "free_completed":
            live.pop(event["addr"], None)
    blocks = sorted(live.values(), reverse=True)
    around = [
        {"action": e["action"], "size": e["size"], "frames": short(e.get("frames"))[:8]}
        for e in trace[max(0, at - 40) : at + 24]
        if e["action"] in ("alloc", "free_completed")
    ]
    result = {
        "peak_alloc": second_peak,
        "first_micro_step": first_peak,
        "before": before,
        "walked_peak": highest,
        "live": [{"size": size, "event": i, "frames": short(trace[i].get("frames"))} for size, i in blocks[:60]],
        "live_rest": sum(size for size, _ in blocks[60:]),
        "around": around,
    }
    with open(out, "w", encoding="utf-8") as file:
        json.dump(result, file, indent=1)
    print(json.dumps({k: result[k] for k in ("peak_alloc", "first_micro_step", "before", "walked_peak")}))
    for block in result["live"][:16]:
        print(block["size"], block["event"], block["frames"][:3])


SHAPES = [  # batch, heads, time, width of a head, causal
    (32, 12, 1024, 64, True),
    (8, 25, 1024, 64, True),
    (4, 16, 4096, 128, True),
    (32, 12, 512, 64, False),
    (64, 12, 197, 64, False),
    (1, 32, 8192, 128, True),
]


def time_of(run):
    times = []
    for i in range(8):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        run()
        end.record()
        end.synchronize()
        if i > 0:
            times.append(begin.elapsed_time(end))
    return statistics.median(times)


def attention():
    from torch.nn.attention import SDPBackend, sdpa_kernel

    ways = {
        "flash": SDPBackend.FLASH_ATTENTION,
        "cudnn": SDPBackend.CUDNN_ATTENTION,
        "efficient": SDPBackend.EFFICIENT_ATTENTION,
        "math": SDPBackend.MATH,
    }
    for dtype in (torch.bfloat16, torch.float32):
        for batch, heads, time, width, causal in SHAPES:
            for way, backend in ways.items():
                torch.cuda.empty_cache()
                line = {"attention": way, "type": str(dtype)[6:], "batch": batch, "heads": heads, "time": time,
                        "width": width, "causal": causal}
                try:
                    q, k, v = (torch.randn(batch, heads, time, width, device="cuda", dtype=dtype, requires_grad=True)
                               for _ in range(3))
                    with sdpa_kernel(backend):
                        run = lambda: functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
                        o = run()
                        dy = torch.randn_like(o)
                        back = lambda o=o: torch.autograd.grad(o, (q, k, v), dy, retain_graph=True)
                        back()
                        with torch.no_grad():
                            run()
                            base = torch.cuda.memory_allocated()
                            torch.cuda.reset_peak_memory_stats()
                            run()
                            line["forward_bytes"] = torch.cuda.max_memory_allocated() - base - o.nbytes
                            line["forward_ms"] = round(time_of(run), 4)
                        base = torch.cuda.memory_allocated()
                        torch.cuda.reset_peak_memory_stats()
                        grads = back()
                        line["backward_bytes"] = torch.cuda.max_memory_allocated() - base - sum(g.nbytes for g in grads)
                        line["backward_ms"] = round(time_of(back), 4)
                        line["operand_bytes"] = o.nbytes
                        del grads
                except (RuntimeError, torch.OutOfMemoryError) as error:
                    line["error"] = str(error).splitlines()[0][:100]
                with contextlib.suppress(NameError):
                    del o, dy, back
                q = k = v = o = dy = back = run = None
                print(json.dumps(line), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["peak", "attention"])
    parser.add_argument("out", nargs="?")
    parser.add_argument("--frames", choices=["all", "python", "none"], default="all")
    options = parser.parse_args()
    if options.what == "peak":
        peak(options.out or "peak.json", options.frames)
    else:
        attention()
