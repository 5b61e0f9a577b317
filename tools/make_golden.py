#!/usr/bin/python3
"""Makes tests/data/golden: what PyTorch computes of small models of the zoo, in float64.

    tools/make_golden.py [FOLDER]

Needs Debian's python3-torch. Each file has the logits, the loss and every gradient of one batch, and for three optimizers
the losses of ten steps and, after them, the norm and the sum of each parameter and state. Models are written here as in
PyTorch's documentation, with the names that the zoo gives (src/graph/zoo); parameters and inputs follow from their
names (`numbers`), so that the files need not have them. tests/reference/golden.h reads them.
"""

import math
import os
import sys

import torch
import torch.nn.functional as F

STEPS = 10
MASK = (1 << 64) - 1


def numbers(name, count):
    """`count` numbers below 1 that follow from a name: FNV-1a of it begins Knuth's generator."""
    state = 0xCBF29CE484222325
    for byte in name.encode():
        state = ((state ^ byte) * 0x100000001B3) & MASK
    for _ in range(count):
        state = (state * 6364136223846793005 + 1442695040888963407) & MASK
        yield (state >> 11) * 2.0**-53


def parameter(name, *shape):
    """Matrices and kernels: +- sqrt(3 / fan in). Scales of norms are around 1, all else is around 0."""
    count = math.prod(shape)
    center = 1.0 if len(shape) == 1 and name.endswith("weight") else 0.0
    size = math.sqrt(3.0 / (count // shape[0])) if len(shape) > 1 else 0.1
    values = [center + size * (2.0 * u - 1.0) for u in numbers(name, count)]
    return torch.tensor(values, dtype=torch.float64).reshape(shape).requires_grad_()


def real_input(name, *shape):
    values = [4.0 * u - 2.0 for u in numbers(name, math.prod(shape))]
    return torch.tensor(values, dtype=torch.float64).reshape(shape)


def whole_input(name, below, *shape):
    values = [int(u * below) for u in numbers(name, math.prod(shape))]
    return torch.tensor(values).reshape(shape)


def targets(classes, *shape):
    """Every fifth does not count."""
    target = whole_input("target", classes, *shape).reshape(-1)
    target[::5] = -100
    return target.reshape(shape)


class Model:
    """Parameters by name, made when they are first asked for."""

    def __init__(self, text, batch):
        self.text = text
        self.batch = batch
        self.arguments = {k: int(v) for k, v in (a.split("=") for a in text.split(":")[1].split(","))}
        self.parameters = {}
        self.state = {}

    def get(self, name, *shape):
        if name not in self.parameters:
            self.parameters[name] = parameter(name, *shape)
        return self.parameters[name]

    def linear(self, name, x, out, bias=True):
        weight = self.get(name + ".weight", out, x.shape[-1])
        return F.linear(x, weight, self.get(name + ".bias", out) if bias else None)

    def conv(self, name, x, out, kernel, stride, padding, bias=False):
        weight = self.get(name + ".weight", out, x.shape[1], kernel, kernel)
        return F.conv2d(x, weight, self.get(name + ".bias", out) if bias else None, stride, padding)

    def batch_norm(self, name, x):
        for what, value in (("mean", 0.0), ("var", 1.0)):
            self.state.setdefault(f"{name}.running_{what}",
                                  torch.full((x.shape[1],), value, dtype=torch.float64))
        return F.batch_norm(x, self.state[name + ".running_mean"], self.state[name + ".running_var"],
                            self.get(name + ".weight", x.shape[1]),
                            self.get(name + ".bias", x.shape[1]), True, 0.1, 1e-5)

    def layer_norm(self, name, x, epsilon):
        width = x.shape[-1]
        return F.layer_norm(x, (width,), self.get(name + ".weight", width),
                            self.get(name + ".bias", width), epsilon)

    def rms_norm(self, name, x):
        scaled = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)
        return scaled * self.get(name + ".weight", x.shape[-1])


def attention(q, k, v, causal):
    """q [n, heads, t, d], k and v [n, kv_heads, t, d]; gives [n, t, heads * d]."""
    k = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
    v = v.repeat_interleave(q.shape[1] // v.shape[1], 1)
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    if causal:
        seen = torch.ones(scores.shape[-2:]).tril().bool()
        scores = scores.masked_fill(~seen, -math.inf)
    out = torch.softmax(scores, -1) @ v
    return out.transpose(1, 2).flatten(2)


def heads_of(x, heads):
    return x.unflatten(-1, (heads, x.shape[-1] // heads)).transpose(1, 2)


class Mlp(Model):
    def inputs(self):
        a = self.arguments
        return real_input("input", self.batch, a["inputs"]), targets(a["classes"], self.batch)

    def logits(self, x):
        for i in range(self.arguments["layers"]):
            x = F.relu(self.linear(f"layers.{i}", x, self.arguments["hidden"]))
        return self.linear("head", x, self.arguments["classes"])


class ResNet20(Model):
    def inputs(self):
        a = self.arguments
        return (real_input("input", self.batch, 3, a["image"], a["image"]),
                targets(a["classes"], self.batch))

    def logits(self, x):
        width = self.arguments["width"]
        x = F.relu(self.batch_norm("bn1", self.conv("conv1", x, width, 3, 1, 1)))
        for stage in range(3):
            for i in range(3):
                name, out, stride = f"layer{stage + 1}.{i}", width << stage, 2 if stage and not i else 1
                y = self.conv(name + ".conv1", x, out, 3, stride, 1)
                y = F.relu(self.batch_norm(name + ".bn1", y))
                y = self.batch_norm(name + ".bn2", self.conv(name + ".conv2", y, out, 3, 1, 1))
                if x.shape[1] != out:
                    missing = out - x.shape[1]
                    side = missing // 2
                    x = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, side, missing - side))
                x = F.relu(x + y)
        return self.linear("fc", x.mean((2, 3)), self.arguments["classes"])


class Transformer(Model):
    def block(self, name, x, causal, names, activation, epsilon):
        heads, width = self.arguments["heads"], x.shape[-1]
        norm = self.layer_norm(f"{name}.ln_1", x, epsilon)
        q, k, v = self.linear(f"{name}.{names[0]}", norm, 3 * width).split(width, -1)
        out = attention(heads_of(q, heads), heads_of(k, heads), heads_of(v, heads), causal)
        x = x + self.linear(f"{name}.{names[1]}", out, width)
        norm = self.layer_norm(f"{name}.ln_2", x, epsilon)
        hidden = activation(self.linear(f"{name}.{names[2]}", norm, 4 * width))
        return x + self.linear(f"{name}.{names[3]}", hidden, width)


class Gpt(Transformer):
    def inputs(self):
        a = self.arguments
        return (whole_input("input_ids", a["vocab"], self.batch, a["context"]),
                targets(a["vocab"], self.batch, a["context"]))

    def logits(self, ids):
        a = self.arguments
        words = self.get("wte.weight", a["vocab"], a["width"])
        x = F.embedding(ids, words) + self.get("wpe.weight", a["context"], a["width"])
        for i in range(a["layers"]):
            x = self.block(f"h.{i}", x, True, ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"),
                           lambda y: F.gelu(y, approximate="tanh"), 1e-5)
        return F.linear(self.layer_norm("ln_f", x, 1e-5), words)


class Vit(Transformer):
    def inputs(self):
        a = self.arguments
        return (real_input("input", self.batch, 3, a["image"], a["image"]),
                targets(a["classes"], self.batch))

    def logits(self, x):
        a = self.arguments
        width, patch = a["width"], a["patch"]
        x = self.conv("conv_proj", x, width, patch, patch, 0, True).flatten(2).transpose(1, 2)
        first = self.get("class_token", 1, 1, width).expand(self.batch, 1, width)
        x = torch.cat((first, x), 1)
        x = x + self.get("encoder.pos_embedding", 1, x.shape[1], width)
        for i in range(a["layers"]):
            names = ("self_attention.in_proj", "self_attention.out_proj", "mlp.0", "mlp.3")
            x = self.block(f"encoder.layers.{i}", x, False, names, F.gelu, 1e-6)
        x = self.layer_norm("encoder.ln", x, 1e-6)[:, 0]
        return self.linear("heads.head", x, a["classes"])


class Llama(Model):
    def inputs(self):
        a = self.arguments
        return (whole_input("input_ids", a["vocab"], self.batch, a["context"]),
                targets(a["vocab"], self.batch, a["context"]))

    @staticmethod
    def turned(x):
        """Halves of a head as pairs, by position."""
        half = x.shape[-1] // 2
        speeds = 10000.0 ** (-torch.arange(half, dtype=torch.float64) / half)
        angles = torch.arange(x.shape[-2], dtype=torch.float64)[:, None] * speeds
        a, b = x[..., :half], x[..., half:]
        return torch.cat((a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()), -1)

    def block(self, name, x):
        a = self.arguments
        width, heads, kv = x.shape[-1], a["heads"], a["kv_heads"]
        norm = self.rms_norm(f"{name}.input_layernorm", x)
        parts = {"q": heads, "k": kv, "v": kv}
        q, k, v = (heads_of(self.linear(f"{name}.self_attn.{part}_proj", norm, width // heads * count,
                                        False), count) for part, count in parts.items())
        out = attention(self.turned(q), self.turned(k), v, True)
        x = x + self.linear(f"{name}.self_attn.o_proj", out, width, False)
        norm = self.rms_norm(f"{name}.post_attention_layernorm", x)
        gate = F.silu(self.linear(f"{name}.mlp.gate_proj", norm, a["hidden"], False))
        up = self.linear(f"{name}.mlp.up_proj", norm, a["hidden"], False)
        return x + self.linear(f"{name}.mlp.down_proj", gate * up, width, False)

    def logits(self, ids):
        a = self.arguments
        x = F.embedding(ids, self.get("embed_tokens.weight", a["vocab"], a["width"]))
        for i in range(a["layers"]):
            x = self.block(f"layers.{i}", x)
        return self.linear("lm_head", self.rms_norm("norm", x), a["vocab"], False)


MODELS = {
    "mlp": (Mlp, "mlp:inputs=6,hidden=8,layers=2,classes=4", 6),
    "resnet20": (ResNet20, "resnet20:image=8,width=2,classes=3", 6),
    "vit": (Vit, "vit-b16:image=8,patch=4,layers=1,width=8,heads=2,classes=3", 4),
    "gpt": (Gpt, "gpt-char:context=7,vocab=11,layers=2,width=12,heads=3", 3),
    "llama": (Llama, "llama:context=6,vocab=9,layers=2,width=12,heads=3,kv_heads=1,hidden=16", 3),
}

OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, 0.05, momentum=0.9, weight_decay=0.001),
    "adam": lambda p: torch.optim.Adam(p, 0.01, betas=(0.9, 0.99), eps=1e-4),
    "adamw": lambda p: torch.optim.AdamW(p, 0.01, betas=(0.9, 0.99), eps=1e-4, weight_decay=0.1),
}


def loss_of(model, x, target):
    logits = model.logits(x)
    return logits, F.cross_entropy(logits.reshape(-1, logits.shape[-1]), target.reshape(-1))


def clip(parameters, limit):
    """torch.nn.utils.clip_grad_norm_ adds 1e-6 to the norm; this does not."""
    norm = torch.sqrt(sum((p.grad * p.grad).sum() for p in parameters))
    if norm > limit:
        for p in parameters:
            p.grad.mul_(limit / norm)


def put(file, name, values):
    values = values.detach().reshape(-1).tolist()
    file.write(f"{name} {len(values)}\n")
    for value in values:
        file.write(f"{value:.14g}\n")


def write(path, kind, text, batch):
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"model {text}\nbatch {batch}\n")
        model = kind(text, batch)
        x, target = model.inputs()
        logits, loss = loss_of(model, x, target)
        loss.backward()
        put(file, "logits", logits)
        put(file, "loss", loss)
        for name, parameter_ in model.parameters.items():
            put(file, f"gradient/{name}", parameter_.grad)
        for optimizer, make in OPTIMIZERS.items():
            model = kind(text, batch)
            model.logits(x)
            model.state.clear()
            step = make(list(model.parameters.values()))
            losses = []
            for _ in range(STEPS):
                step.zero_grad()
                _, loss = loss_of(model, x, target)
                loss.backward()
                if optimizer == "adamw":
                    clip(model.parameters.values(), 0.5)
                step.step()
                losses.append(loss.detach())
            put(file, f"{optimizer}/losses", torch.stack(losses))
            for name, tensor in {**model.parameters, **model.state}.items():
                put(file, f"{optimizer}/{name}", torch.stack((tensor.norm(), tensor.sum())))


def main():
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "tests", "data", "golden")
    os.makedirs(folder, exist_ok=True)
    torch.set_num_threads(1)
    for name, (kind, text, batch) in MODELS.items():
        write(os.path.join(folder, name + ".txt"), kind, text, batch)


if __name__ == "__main__":
    main()
