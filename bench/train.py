#!/usr/bin/python3
"""train.py: a training step of `ullage train` beside PyTorch's, on the same model, batch and processors, in one run.

    bench/train.py build/release/ullage [--model resnet18|gpt] [--batch N] [--steps N] [--rounds N]

Needs Debian's python3-torch. PyTorch runs in processes of its own, with 1 and 2 threads and either OMP_WAIT_POLICY; its fastest
counts. Rounds alternate; medians and the spread are printed. With --one it is such a process.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time


def resnet18():
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self, before, after, stride):
            super().__init__()
            self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(after)
            self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
            self.bn2 = nn.BatchNorm2d(after)
            self.past = None
            if stride != 1 or before != after:
                self.past = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

        def forward(self, x):
            y = torch.relu_(self.bn1(self.conv1(x)))
            y = self.bn2(self.conv2(y))
            return torch.relu_(y + (x if self.past is None else self.past(x)))

    layers = [nn.Conv2d(1, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True)]
    before = 64
    for stage in range(4):
        for i in range(2):
            layers.append(Block(before, 64 << stage, 2 if stage and not i else 1))
            before = 64 << stage
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


def gpt(context=128, vocab=73, width=128, heads=4, layers=5):
    import torch
    from torch import nn
    from torch.nn import functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            self.register_buffer('mask', torch.full((context, context), float('-inf')).triu(1))

        def forward(self, x):
            n, t, _ = x.shape
            q, k, v = self.qkv(self.ln1(x)).view(n, t, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
            a = torch.softmax(q @ k.transpose(-1, -2) * (width // heads)**-0.5 + self.mask, -1) @ v
            x = x + self.out(a.transpose(1, 2).reshape(n, t, width))
            return x + self.down(functional.gelu(self.up(self.ln2(x))))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(vocab, width), nn.Embedding(context, width)
            self.blocks, self.ln = nn.Sequential(*[Block() for _ in range(layers)]), nn.LayerNorm(width)

        def forward(self, x):
            y = self.blocks(self.wte(x) + self.wpe.weight)
            return (self.ln(y) @ self.wte.weight.T).flatten(0, 1)

    return Model()


def one(arguments):
    """One process of PyTorch: seconds of a step."""
    import torch
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    if arguments.model == 'gpt':
        model = gpt()
        x = torch.randint(0, 73, (arguments.batch, 128))
        y = torch.randint(0, 73, (arguments.batch * 128, ))
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    else:
        model = resnet18().to(memory_format=torch.channels_last if arguments.last else torch.contiguous_format)
        x = torch.randn(arguments.batch, 1, 28, 28)
        y = torch.randint(0, 10, (arguments.batch, ))
        optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9, weight_decay=5e-4)
    seconds = []
    for _ in range(arguments.steps + 1):
        begin = time.monotonic()
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        seconds.append(time.monotonic() - begin)
    print(json.dumps({'seconds': statistics.median(seconds[1:]), 'processor': sum(os.times()[:2])}))


def torch_times(arguments):
    found = {}
    for threads in (1, 2):
        for policy in ('ACTIVE', 'PASSIVE'):
            for last in (False, True) if arguments.model == 'resnet18' else (False, ):
                command = [sys.executable, __file__, 'x', '--one', '--threads', str(threads), '--model', arguments.model]
                command += ['--batch', str(arguments.batch), '--steps', str(arguments.steps)] + ['--last'] * last
                out = subprocess.run(command, env={**os.environ, 'OMP_WAIT_POLICY': policy}, capture_output=True, check=True)
                name = f'{threads} thread{"s" * (threads > 1)}, {policy.lower()}{", channels last" * last}'
                found[name] = json.loads(out.stdout)['seconds']
    return found


def ours(arguments, folder):
    model = 'resnet18:image=28,channels=1,classes=10,stem=3'
    data = 'synthetic,samples=4096'
    more = ['--precision', 'fp32', '--optimizer', 'sgd', '--max-accumulation', '1']
    if arguments.model == 'gpt':
        model, data = 'gpt-char:context=128,vocab=73', 'synthetic,samples=4096'
        more = ['--precision', 'fp32', '--optimizer', 'adamw', '--clip', '1e9', '--max-accumulation', '1']
    command = [arguments.ullage, 'train', model, '--data', data, '--batch', str(arguments.batch), '--no-augment']
    command += ['--max-steps', str(arguments.steps + 1), '--eval-samples', '1', '-o', 'ndjson'] + more
    out = subprocess.run(command, capture_output=True, check=True, cwd=folder).stdout.decode()
    steps = [json.loads(line) for line in out.splitlines()]
    return statistics.median(arguments.batch / step['samples_per_second'] for step in steps[1:-1]), steps[-1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('ullage')
    parser.add_argument('--model', default='resnet18', choices=('resnet18', 'gpt'))
    parser.add_argument('--batch', type=int, default=64)
    parser.add_argument('--steps', type=int, default=4)
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--one', action='store_true')
    parser.add_argument('--last', action='store_true')
    parser.add_argument('--threads', type=int, default=2)
    arguments = parser.parse_args()
    if arguments.one:
        one(arguments)
        return
    arguments.ullage = os.path.abspath(arguments.ullage)
    mine, theirs = [], []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(arguments.rounds):
            seconds, end = ours(arguments, folder)
            found = torch_times(arguments)
            name = min(found, key=found.get)
            mine.append(seconds)
            theirs.append(found[name])
            print(f'ours {seconds:.3f} s a step (predicted {end["predicted_step_seconds"]:.3f}), PyTorch {found[name]:.3f} '
                  f'({name}); ' + ', '.join(f'{key}: {value:.3f}' for key, value in found.items()), flush=True)
    ratios = sorted(a / b for a, b in zip(mine, theirs))
    print(f'{arguments.model}, batch {arguments.batch}: ours {statistics.median(mine):.3f} s, PyTorch {statistics.median(theirs):.3f} s, '
          f'ratio {statistics.median(ratios):.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f})')


main()
