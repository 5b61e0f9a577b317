#!/usr/bin/python3
"""
export_onnx.py [--tiny] FOLDER: writes the ONNX files that tests read, with PyTorch: those of tests/data/onnx, or with
--tiny those that the fuzzer begins with (tests/fuzz/corpus). Beside small models is an input with what PyTorch gives for it.

Needs Debian's python3-torch and python3-onnx; the files are committed, so that tests need neither. Small models
have their weights in them. Models of full size (resnet18, resnet50, gpt2-124m) name a file of weights beside
them that is not there: a plan does not read it. Seeds are fixed; another version of PyTorch writes other files.
"""
import io
import math
import os
import sys
import warnings

import onnx
import onnx.numpy_helper
import torch
import torch.nn.functional as F
from torch import nn

warnings.filterwarnings("ignore")


class Basic(nn.Module):
    """Two 3x3 convolutions."""

    expansion = 1

    def __init__(self, inputs, width, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = past(inputs, width, stride)

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return F.relu(y + self.downsample(x))


class Bottleneck(nn.Module):
    """1x1, 3x3, 1x1."""

    expansion = 4

    def __init__(self, inputs, width, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * width)
        self.downsample = past(inputs, 4 * width, stride)

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return F.relu(y + self.downsample(x))


def past(inputs, outputs, stride):
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))


class ResNet(nn.Module):
    def __init__(self, block, blocks, width=64, classes=1000):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        inputs = width
        for stage, count in enumerate(blocks):
            layer = []
            for i in range(count):
                layer.append(block(inputs, width << stage, 2 if stage > 0 and i == 0 else 1))
                inputs = (width << stage) * block.expansion
            setattr(self, f"layer{stage + 1}", nn.Sequential(*layer))
        self.stages = len(blocks)
        self.fc = nn.Linear(inputs, classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        for stage in range(self.stages):
            x = getattr(self, f"layer{stage + 1}")(x)
        return self.fc(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))


class Attention(nn.Module):
    def __init__(self, width, heads, context):
        super().__init__()
        self.heads = heads
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)
        self.register_buffer("bias", torch.tril(torch.ones(context, context)).bool()[None, None])

    def forward(self, x):
        n, t, width = x.shape
        q, k, v = self.c_attn(x).split(width, dim=2)
        q, k, v = (y.view(n, t, self.heads, width // self.heads).transpose(1, 2) for y in (q, k, v))
        scores = q @ k.transpose(-2, -1) / math.sqrt(width // self.heads)
        scores = scores.masked_fill(~self.bias[:, :, :t, :t], float("-inf"))
        y = F.softmax(scores, dim=-1) @ v
        return self.c_proj(y.transpose(1, 2).reshape(n, t, width))


class Neurons(nn.Module):
    def __init__(self, width, gelu):
        super().__init__()
        self.c_fc = nn.Linear(width, 4 * width)
        self.c_proj = nn.Linear(4 * width, width)
        self.gelu = gelu

    def forward(self, x):
        x = self.c_fc(x)
        if self.gelu == "erf":
            x = F.gelu(x)
        else:
            x = 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
        return self.c_proj(x)


class Transformer(nn.Module):
    def __init__(self, width, heads, context, gelu):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads, context)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = Neurons(width, gelu)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, vocab, context, layers, width, heads, gelu="tanh"):
        super().__init__()
        self.wte = nn.Embedding(vocab, width)
        self.wpe = nn.Embedding(context, width)
        self.h = nn.ModuleList(Transformer(width, heads, context, gelu) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, vocab, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, ids):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))


class Manner(nn.Module):
    """Attention as others write it, and RMS norm and SiLU."""

    def __init__(self, width, heads, how):
        super().__init__()
        self.heads, self.how = heads, how
        self.norm = nn.Parameter(torch.ones(width))
        self.into = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.bias = nn.Parameter(torch.zeros(heads, 6, 6))

    def forward(self, x):
        n, t, width = x.shape
        d = width // self.heads
        y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.norm
        if self.how == "permuted":  # of vision transformers: q, k, v cut from one tensor; nothing is hidden
            q, k, v = self.into(y).reshape(n, t, 3, self.heads, d).permute(2, 0, 3, 1, 4)
            scores = (q * d**-0.5) @ k.transpose(-2, -1)
        else:
            q, k, v = (p.view(n, t, self.heads, d).transpose(1, 2) for p in self.into(y).chunk(3, -1))
            if self.how == "sdpa":  # both sides scaled, a mask added
                scores = (q * d**-0.25) @ (k.transpose(-2, -1) * d**-0.25)
                scores = scores + torch.triu(torch.full((t, t), float("-inf")), 1)
            elif self.how == "trained":  # a mask that is trained is not one
                scores = q @ k.transpose(-2, -1) * d**-0.5 + self.bias[:, :t, :t]
            else:  # a window of two behind the diagonal: no causal mask
                hidden = torch.triu(torch.ones(t, t), 2).bool()
                scores = (q @ k.transpose(-2, -1) * d**-0.5).masked_fill(hidden, -1e9)
        y = (F.softmax(scores, -1) @ v).transpose(1, 2).reshape(n, t, width)
        return F.silu(self.out(y)) + x


class Several(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Manner(8, 2, how) for how in ("permuted", "sdpa", "trained", "window"))
        self.mha = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        mask = torch.triu(torch.full((6, 6), float("-inf")), 1)
        return x + self.mha(x, x, x, attn_mask=mask, need_weights=False)[0]


class Twice(nn.Sequential):
    def __init__(self, inputs, outputs):
        layers = []
        for _ in range(2):
            layers += [nn.Conv2d(inputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
            inputs = outputs
        super().__init__(*layers)


class Up(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up = nn.ConvTranspose2d(2 * width, width, 2, 2)
        self.twice = Twice(2 * width, width)

    def forward(self, x, beside):
        x = self.up(x)
        h, w = beside.shape[2] - x.shape[2], beside.shape[3] - x.shape[3]
        x = F.pad(x, [w // 2, w - w // 2, h // 2, h - h // 2])
        return self.twice(torch.cat([beside, x], 1))


class UNet(nn.Module):
    def __init__(self, width, levels, classes=2):
        super().__init__()
        self.down = nn.ModuleList(Twice(3 if i == 0 else width << (i - 1), width << i) for i in range(levels))
        self.up = nn.ModuleList(Up(width << i) for i in reversed(range(levels - 1)))
        self.out = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        skipped = []
        for i, down in enumerate(self.down):
            x = down(x if i == 0 else F.max_pool2d(x, 2))
            skipped.append(x)
        for i, up in enumerate(self.up):
            x = up(x, skipped[-2 - i])
        return self.out(x)


def shorten(graph):
    """Names of one or two characters, so that most of a file is not names."""
    names = {}
    for node in graph.node:
        node.ClearField("name")
        for names_of in (node.input, node.output):
            for i, name in enumerate(names_of):
                if name and name not in ("input", "output"):
                    names_of[i] = names.setdefault(name, f"{len(names):x}")
    for weight in graph.initializer:
        weight.name = names.get(weight.name, weight.name)


def put_case(folder, name, model, example):
    """What PyTorch gives for some input, beside the model."""
    torch.manual_seed(7)
    if example.dtype == torch.long:
        given = torch.randint(0, 5, example.shape)
    else:
        given = torch.randn(2, *example.shape[1:])
    for what, tensor in (("input", given), ("output", model(given).detach())):
        with open(os.path.join(folder, f"{name}.{what}.pb"), "wb") as out:
            out.write(onnx.numpy_helper.from_array(tensor.numpy(), what).SerializeToString())


def export(folder, name, model, example, names, outside=False, opset=13, train=True, short=False):
    mode = torch.onnx.TrainingMode.TRAINING if train else torch.onnx.TrainingMode.EVAL
    file = io.BytesIO()
    torch.onnx.export(
        model, example, file, opset_version=opset, training=mode, do_constant_folding=not train,
        input_names=["input"], output_names=["output"],
        dynamic_axes={"input": names} if names else None)
    made = onnx.load_model_from_string(file.getvalue())
    if not outside and not short and "fixed" not in name:
        put_case(folder, name, model.train(train), example)
    for node in made.graph.node:
        node.ClearField("doc_string")
    at = 0
    for weight in made.graph.initializer if outside else []:
        size = len(weight.raw_data)
        if size < 1024 or weight.data_type != onnx.TensorProto.FLOAT:
            continue
        weight.ClearField("raw_data")
        weight.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (("location", name + ".weights"), ("offset", at), ("length", size)):
            weight.external_data.add(key=key, value=str(value))
        at += size
    if short:
        shorten(made.graph)
    with open(os.path.join(folder, name + ".onnx"), "wb") as out:
        out.write(made.SerializeToString())


def main_tiny(folder):
    """For the fuzzer, which takes no more than 16 KiB."""
    batch = {0: "batch"}
    words = torch.zeros(2, 4, dtype=torch.long)
    export(folder, "gpt", GPT(5, 4, 1, 4, 2), words, batch, short=True)
    export(folder, "gpt_erf", GPT(5, 4, 1, 4, 2, "erf"), words, None, opset=17, train=False, short=True)
    export(folder, "resnet", ResNet(Basic, [1], width=2, classes=3), torch.zeros(2, 3, 8, 8), batch, opset=9, short=True)
    export(folder, "unet", UNet(1, 2), torch.zeros(1, 3, 5, 5), {0: "batch", 2: "h", 3: "w"}, opset=12, short=True)


def main(folder):
    torch.manual_seed(1)
    picture = torch.zeros(2, 3, 32, 32)
    words = torch.zeros(2, 16, dtype=torch.long)
    batch, both = {0: "batch"}, {0: "batch", 1: "time"}
    small = ResNet(Basic, [1, 1], width=8, classes=10)
    export(folder, "resnet-small", small, picture, batch)
    export(folder, "resnet-small-fixed", small, picture, None, opset=12)
    export(folder, "resnet-small-eval", small, picture, batch, opset=17, train=False)
    gpt = GPT(vocab=50, context=16, layers=2, width=16, heads=2)
    export(folder, "gpt-small", gpt, words, batch)
    export(folder, "gpt-small-time", gpt, words, both, opset=11)
    export(folder, "gpt-small-fixed", gpt, words, None, opset=16)
    export(folder, "gpt-small-eval", GPT(50, 16, 1, 16, 2, "erf"), words, batch, opset=17, train=False)
    export(folder, "attentions", Several(), torch.zeros(2, 6, 8), batch, opset=14)
    export(folder, "unet-small", UNet(4, 3), torch.zeros(1, 3, 36, 36), batch)
    export(folder, "resnet18", ResNet(Basic, [2, 2, 2, 2]), torch.zeros(1, 3, 224, 224), batch, True)
    export(folder, "resnet50", ResNet(Bottleneck, [3, 4, 6, 3]), torch.zeros(1, 3, 224, 224), None, True)
    gpt2 = GPT(vocab=50257, context=32, layers=12, width=768, heads=12)
    export(folder, "gpt2-32", gpt2, torch.zeros(1, 32, dtype=torch.long), batch, True)


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "--tiny":
        main_tiny(sys.argv[2])
    elif len(sys.argv) == 2:
        main(sys.argv[1])
    else:
        sys.exit(__doc__)
