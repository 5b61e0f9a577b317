#!/usr/bin/env python3
"""Recomputation as published, and as `ullage plan` predicts it, side by side. Prints Markdown; docs/bench.md has it.

    bench/published.py [ULLAGE]

Only recomputation counts: fp32, the whole batch at once, nothing in the host's memory, no workspace that could be saved. A case
of the literature is a share of the memory that the framework needed without recomputation, and how much longer a step then took;
it is set beside what our plan takes within the same share of what our plain plan needs, gradients that are consumed as they come
in both. Overheads of ours are predicted from operations and bytes with a device's rates, not measured.

Sources: MONeT (Shah et al., 2021) and Rockmate (Zhao et al., 2023): their READMEs and abstracts; Checkmate (Jain et al., 2020): its
README, and the setting of its paper: at most one forward pass more, on a card of 16 GB.
"""
import json
import subprocess
import sys

ULLAGE = sys.argv[1] if len(sys.argv) > 1 else 'build/release/ullage'
DEVICE = 'v100-16g'
ALONE = ['--precision', 'fp32', '--max-accumulation', '1', '--host-memory', '0', '--max-workspace', '0',
         '--optimizer', 'sgd', '--device', DEVICE, '-o', 'json']


def plan(model, batch, *options):
    done = subprocess.run([ULLAGE, 'plan', model, '--batch', str(batch), *ALONE, *options],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    if not done.stdout:
        sys.exit(done.stderr.decode())
    return json.loads(done.stdout)


def most(model, batch):
    """The fastest plan that recomputes nothing: what all shares and overheads are of."""
    return plan(model, batch, '-m', '4000GiB')


def within(model, batch, bytes_):
    """Overhead within so many bytes of the regions, as text; the smallest plan where nothing fits."""
    whole = most(model, batch)
    found = plan(model, batch, '-m', str(int(bytes_) + whole['outside_arena_bytes']))
    overhead = f'+{100 * (found["step_seconds"] / whole["step_seconds"] - 1):.1f} %'
    return overhead if found['feasible'] else f'at least {found["peak_bytes"] / 1e9:.2f} GB, {overhead}'


def shares(work, what, model, batch, without, rows):
    needs = most(model, batch)['peak_bytes']
    torch = plan(model, batch, '-m', '4000GiB', '--like', 'torch:fp32')['torch'][0]['peak_bytes']
    for amount, overhead in rows:
        ours = within(model, batch, needs * amount / without)
        print(f'| {work} | {what}, batch {batch} | {amount:.2f} of {without:.2f} GB | +{overhead} % | '
              f'{needs * amount / without / 1e9:.2f} of {needs / 1e9:.2f} GB | {ours} |')
    print(f'| | (PyTorch eager, as `--like torch` predicts) | {without:.2f} GB | | {torch / 1e9:.2f} GB | |')


def activations(model, batch):
    """Rockmate's measure: what passes within a step, divided by 2 and by 5."""
    needs = most(model, batch)
    kept = sum(needs['components'][kind] for kind in ('activations', 'workspace'))
    for part in (2, 5):
        ours = within(model, batch, needs['peak_bytes'] - kept + kept / part)
        print(f'| Rockmate | {model}, batch {batch}: activations / {part} | | +10 to 20 % | '
              f'{kept / part / 1e9:.2f} of {kept / 1e9:.2f} GB | {ours} |')


def fits(model, batch, limit):
    """Whether a batch fits into the card within an overhead in per cent; limit None: without recomputation."""
    found = plan(model, batch)
    if not found['feasible']:
        return False
    whole = most(model, batch)
    return found['step_seconds'] <= whole['step_seconds'] * (1 + (limit or 0) / 100 + 1e-9)


def largest(model, limit):
    low, high = 1, 2
    while fits(model, high, limit):
        low, high = high, 2 * high
    while high - low > max(1, low // 32):
        middle = (low + high) // 2
        low, high = (middle, high) if fits(model, middle, limit) else (low, middle)
    return low


def batches(model):
    without = largest(model, None)
    more = largest(model, 33)
    print(f'| Checkmate | {model}: largest batch in 16 GB | | up to 5.1 x, a third more time | '
          f'{more} instead of {without} | {more / without:.1f} x |')


print('| work | case | memory | time | ours: memory | ours: time |')
print('|---|---|---|---|---|---|')
shares('MONeT', 'ResNet-50', 'resnet50', 184, 15.06, [(10.01, 3.2), (8.01, 5.6), (6.00, 9.3), (4.99, 12.0)])
shares('MONeT', 'U-Net (416 x 608)', 'unet:image=416x608', 11, 14.32, [(5.01, 11.5)])
activations('resnet50', 184)
activations('gpt2-124m', 8)
batches('resnet50')
batches('unet:image=416x608')
