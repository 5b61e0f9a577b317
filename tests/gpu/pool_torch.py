"""PyTorch with ullage's pool, and training with it against PyTorch's own allocators.

usage: pool_torch.py checks                            what PyTorch does over the pool
       pool_torch.py late                              use() after the first tensor is refused
       pool_torch.py budget                            in `ullage run -m 4GiB`: the pool ends there
       pool_torch.py train MODEL ALLOCATOR [--steps N] one line of JSON
       pool_torch.py compare RESULTS                   a table; fails if losses differ

MODEL: resnet50, gpt2, gpt2_varlen; ALLOCATOR: ullage, default, expandable. ULLAGE_TORCH_LIBRARY
names the library, PYTHONPATH has bindings/python. --device cpu trains small models, as a dry run.
"""

import argparse
import json
import os
import statistics
import sys
import time
import warnings

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
GiB = 1 << 30
WARM = 8  # steps that choose algorithms and fill caches
LENGTHS = [1024, 640, 896, 512, 768, 1008, 384, 704, 960, 576]


# --- models --------------------------------------------------------------------------------------


def gpt(torch, small):
    """A decoder of the size of GPT-2 (124 million), attention written out, weights tied."""
    nn, functional = torch.nn, torch.nn.functional
    width, heads, layers, vocabulary = (64, 4, 2, 500) if small else (768, 12, 12, 50257)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            self.drop = nn.Dropout(0.1)

        def forward(self, x, mask):
            batch, length, _ = x.shape
            q, k, v = (
                t.view(batch, length, heads, width // heads).transpose(1, 2)
                for t in self.qkv(self.norm1(x)).split(width, dim=2)
            )
            scores = (q @ k.transpose(2, 3)) / (width // heads) ** 0.5
            weights = self.drop(scores.masked_fill(mask, float("-inf")).softmax(dim=3))
            x = x + self.drop(self.out((weights @ v).transpose(1, 2).reshape(batch, length, width)))
            return x + self.drop(self.down(functional.gelu(self.up(self.norm2(x)))))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(1024, width)
            self.blocks = nn.ModuleList(Block() for _ in range(layers))
            self.norm = nn.LayerNorm(width)
            for parameter in self.parameters():
                if parameter.dim() > 1:
                    nn.init.normal_(parameter, std=0.02)

        def forward(self, tokens):
            length = tokens.shape[1]
            mask = torch.ones(length, length, dtype=torch.bool, device=tokens.device).triu(1)
            x = self.tokens(tokens) + self.places(torch.arange(length, device=tokens.device))
            for block in self.blocks:
                x = block(x, mask)
            return functional.linear(self.norm(x), self.tokens.weight)

    return Gpt(), vocabulary


def make(torch, name, device):
    """(model, a function that makes the loss of step n)."""
    small = device == "cpu"
    functional = torch.nn.functional
    generator = torch.Generator().manual_seed(11)
    if name == "resnet50":
        import torchvision

        batch, pixels = (2, 64) if small else (64, 224)
        model = torchvision.models.resnet50().to(device)

        def loss(_):
            images = torch.randn(batch, 3, pixels, pixels, generator=generator).to(device)
            labels = torch.randint(1000, (batch,), generator=generator).to(device)
            return functional.cross_entropy(model(images).float(), labels)

        return model, loss
    model, vocabulary = gpt(torch, small)
    model.to(device)
    batch = 2 if small else 16

    def loss(step):
        length = LENGTHS[step % len(LENGTHS)] if name == "gpt2_varlen" else 1024
        length = length // 16 if small else length
        tokens = torch.randint(vocabulary, (batch, length + 1), generator=generator).to(device)
        logits = model(tokens[:, :-1]).float()
        return functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

    return model, loss


# --- training ------------------------------------------------------------------------------------


def train(args):
    if args.allocator == "expandable":
        for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
            os.environ[name] = "expandable_segments:True"
    import torch

    cuda = args.device != "cpu"
    if args.allocator == "ullage":
        import ullage

        ullage.torch.use()
    torch.manual_seed(7)
    warnings.filterwarnings("ignore", message=".*deterministic.*")
    torch.use_deterministic_algorithms(True, warn_only=True)
    # A deterministic mode fills new tensors otherwise: nothing here reads what it did not write.
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.backends.cudnn.benchmark = False

    synchronize = torch.cuda.synchronize if cuda else lambda: None
    model, make_loss = make(torch, args.model, args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    losses, times, host_times, maps = [], [], [], []
    for step in range(args.steps):
        synchronize()
        start, host_start = time.perf_counter(), time.process_time()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(args.device, dtype=torch.bfloat16):
            loss = make_loss(step)
        loss.backward()
        optimizer.step()
        synchronize()
        times.append(time.perf_counter() - start)
        host_times.append(time.process_time() - host_start)
        losses.append(loss.item().hex())
        if args.allocator == "ullage" and cuda:
            counts = ullage.stats()
            maps.append(counts["maps"] + counts["unmaps"])
    warm = min(WARM, args.steps // 2)
    result = {
        "model": args.model,
        "allocator": args.allocator,
        "step_ms": statistics.median(times[warm:]) * 1e3,
        "host_ms": statistics.median(host_times[warm:]) * 1e3,  # of processors, all threads
        "losses": losses,
    }
    if cuda:
        free, total = torch.cuda.mem_get_info()
        result["device_used"] = total - free  # with the context, at the end
        if args.allocator == "ullage":
            counts = ullage.stats()
            result["peak_held"], result["peak_in_use"] = counts["peak_held"], counts["peak_in_use"]
            # The lengths of gpt2_varlen repeat every ten steps.
            steady = maps[3 * len(LENGTHS) if args.model == "gpt2_varlen" else WARM :]
            result["maps_in_steady_state"] = steady[-1] - steady[0] if steady else None
            result["pool"] = counts
        else:
            result["peak_held"] = torch.cuda.max_memory_reserved()
            result["peak_in_use"] = torch.cuda.max_memory_allocated()
    print(json.dumps(result))


def compare(path):
    with open(path) as lines:
        results = [json.loads(line) for line in lines if line.strip()]
    if not results:
        print("nothing to compare")
        return 1
    bad = 0
    for model in dict.fromkeys(result["model"] for result in results):
        runs = {}
        for result in results:
            if result["model"] == model:
                runs.setdefault(result["allocator"], []).append(result)
        print(
            "{:12} {:11} {:>10} {:>10} {:>7} {:>9}  {}".format(
                model, "allocator", "held MiB", "in use", "ratio", "step ms", "of processors"
            )
        )
        for allocator, repeats in runs.items():
            first = repeats[0]
            held, used = first.get("peak_held", 0), first.get("peak_in_use", 0)
            print(
                "{:12} {:11} {:10.1f} {:10.1f} {:7.3f} {:>9}  {}".format(
                    "",
                    allocator,
                    held / 2**20,
                    used / 2**20,
                    held / used if used else 0,
                    "/".join("{:.2f}".format(run["step_ms"]) for run in repeats),
                    "/".join("{:.1f}".format(run.get("host_ms", 0)) for run in repeats),
                )
            )
        if "ullage" not in runs:
            print("FAILED: no run of ullage")
            bad += 1
            continue
        ours = runs["ullage"][0]
        for other in [name for name in runs if name != "ullage"]:
            theirs = runs[other][0]
            same = all(run["losses"] == ours["losses"] for run in runs[other] + runs["ullage"])
            best = [min(run["step_ms"] for run in runs[name]) for name in ("ullage", other)]
            held = ours.get("peak_held", 0) / max(theirs.get("peak_held", 0), 1)
            print(
                "{}: against {}: losses {}, held {:.3f} times, step {:.3f} times as much".format(
                    "ok" if same else "FAILED",
                    other,
                    "bit for bit the same" if same else "differ",
                    held,
                    best[0] / best[1],
                )
            )
            bad += not same
        calls = ours.get("maps_in_steady_state")
        if calls is not None:
            print(
                "{}: {} maps and unmaps in the steady state".format(
                    "FAILED" if calls else "ok", calls
                )
            )
            bad += calls != 0
    return 1 if bad else 0


# --- what PyTorch does over the pool -------------------------------------------------------------


def checks():
    import torch
    import ullage

    failed = []

    def check(name, condition):
        print(("ok: " if condition else "FAILED: ") + name, flush=True)
        if not condition:
            failed.append(name)

    ullage.torch.use(memory="2GiB")
    check("CUDA has not started yet", not torch.cuda.is_initialized())
    x = torch.ones(1 << 20, device="cuda")
    check("a tensor is in the pool", ullage.memory_info()["current"] == 4 << 20)
    check("and has its values", x.sum().item() == 1 << 20)
    try:
        torch.empty(3 * GiB, dtype=torch.uint8, device="cuda")
        check("3 GiB are refused", False)
    except torch.cuda.OutOfMemoryError as error:
        text = str(error)
        check(
            "a refusal is torch.cuda.OutOfMemoryError",
            text.startswith("CUDA out of memory. Tried to allocate 3.0 GiB on GPU 0"),
        )
    except Exception as error:  # the type is what is looked at
        check("a refusal is torch.cuda.OutOfMemoryError and not {!r}".format(error), False)
    check("the report has it", "Tried to allocate 3.0 GiB" in ullage.report())
    # Through autograd's threads in C++, where an exception has a longer way: a dense gradient of an
    # embedding is as large as its weights.
    weights = torch.ones(1 << 20, 600, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    rows = torch.nn.functional.embedding(torch.arange(8, device="cuda"), weights)
    try:
        rows.float().sum().backward()
        check("a backward pass is refused alike", False)
    except torch.cuda.OutOfMemoryError:
        check("a backward pass is refused alike", True)
    del weights, rows
    check("the program goes on", (x + 1).sum().item() == 2 << 20)
    torch.cuda.synchronize()
    before = ullage.memory_info()["held"]
    torch.cuda.empty_cache()
    check("empty_cache gives pages back", ullage.memory_info()["held"] < before)
    check("nothing is left of what failed", ullage.memory_info()["current"] < 100 << 20)

    # Memory that another stream still reads must not be handed out again.
    side = torch.cuda.Stream()
    source = torch.full((1 << 24,), 3.0, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(200_000_000)
        copy = source * 1
    source.record_stream(side)
    del source
    for _ in range(4):
        torch.full((1 << 24,), 9.0, device="cuda")
    torch.cuda.synchronize()
    check("record_stream keeps memory until the other stream has passed", bool((copy == 3).all()))
    del copy

    # A captured graph keeps its memory to itself until it is gone.
    static = torch.ones(1 << 20, device="cuda")
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        part = static * 2
        result = (part + 1).sum()
        del part
    for _ in range(8):
        torch.full((1 << 20,), 77.0, device="cuda")
    static.fill_(5)
    graph.replay()
    check("a captured graph replays right", result.item() == 11 * (1 << 20))
    second = torch.cuda.CUDAGraph()
    with torch.cuda.graph(second, pool=graph.pool()):
        other = (static * 3).sum()
    second.replay()
    check("two graphs share a pool", other.item() == 15 * (1 << 20))
    # Not freed before the graphs: the pool of a graph is whole while its tensors live.
    del graph, second, result, other, static
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    check("released graphs leave nothing", ullage.memory_info()["held"] <= 32 << 20)

    with ullage.guard(max_memory="1GiB"):
        check("a guard has set 1 GiB aside", ullage.memory_info()["held"] >= GiB)
        inside = torch.empty(900 << 20, dtype=torch.uint8, device="cuda")
    del inside
    torch.cuda.set_per_process_memory_fraction(0.01)
    total = torch.cuda.get_device_properties(0).total_memory
    check(
        "set_per_process_memory_fraction sets the limit",
        abs(ullage.memory_info()["limit"] / total - 0.01) < 0.001,
    )
    try:
        ullage.torch.use(memory="4GiB")
        check("other settings are too late", False)
    except ullage.StartedError:
        check("other settings are too late", True)
    try:
        torch.cuda.memory_stats()
        print("note: torch.cuda.memory_stats works with this PyTorch")
    except RuntimeError as error:
        check("lost statistics are an error that says so", "not yet support" in str(error))

    ullage.set_memory("2GiB")
    ullage.reset_memory_stats()
    callback = ullage.MemoryCallback(ullage.DynamicBatcher(1, 64))
    for _ in range(3):
        with callback.attempt():
            torch.ones(callback.batcher.size << 20, device="cuda").sum().item()
            callback.on_step_end()
    check("a batcher grows where there is room", callback.batcher.size == 2)
    return 1 if failed else 0


def budget():
    """Without a limit of its own, in `ullage run -m 4GiB`: the pool ends where the budget does."""
    import torch
    import ullage

    ullage.torch.use()
    torch.ones(1, device="cuda")
    held = []
    try:
        for _ in range(100):
            held.append(torch.empty(128 << 20, dtype=torch.uint8, device="cuda"))
        print("FAILED: 12.5 GiB in a budget of 4 GiB")
        return 1
    except torch.cuda.OutOfMemoryError as error:
        print("refused after {} of 128 MiB: {}".format(len(held), str(error).split("\n")[0]))
    held.clear()
    return 0 if torch.ones(8, device="cuda").sum().item() == 8 else 1


def late():
    """use() after the first tensor is refused, and says why."""
    import torch
    import ullage

    x = torch.ones(1 << 20, device="cuda")
    try:
        ullage.torch.use(memory="2GiB")
    except ullage.StartedError as error:
        print(error)
        return 0 if "in use already" in str(error) and x.sum().item() == 1 << 20 else 1
    return 1


parser = argparse.ArgumentParser()
parser.add_argument("what", choices=["checks", "train", "budget", "late", "compare"])
parser.add_argument("model", nargs="?")
parser.add_argument("allocator", nargs="?", choices=["ullage", "default", "expandable"])
parser.add_argument("--steps", type=int, default=25)
parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
args = parser.parse_args()
if args.what == "train":
    train(args)
elif args.what == "compare":
    sys.exit(compare(args.model))
else:
    sys.exit({"checks": checks, "budget": budget, "late": late}[args.what]())
