#!/usr/bin/env python3
"""How long `ullage plan` takes, and whether its plans are those of another build. Prints Markdown; docs/bench.md has it.

    bench/planning.py [ULLAGE [OTHER]]

Each case is planned within several shares of what its plain plan needs, several times over. Seconds are what the plan's file says
(`planning_seconds`), processor time is of the whole program, all threads together. With OTHER, usually the build before a change,
the two take turns, and their files are compared, all but `planning_seconds`.
"""
import json
import os
import statistics
import subprocess
import sys

ULLAGE = sys.argv[1] if len(sys.argv) > 1 else 'build/release/ullage'
OTHER = sys.argv[2] if len(sys.argv) > 2 else None
SHARES = (1.0, 0.6, 0.4, 0.25)  # of the plain plan's bytes; where that is too little, the smallest plan is the answer
TURNS = 3
CASES = (
    ('gpt2-124m', 8), ('gpt2-124m', 32), ('gpt2-124m', 256),
    ('gpt2-124m', 32, '--precision', 'bf16'), ('gpt2-124m', 8, '--precision', 'fp16', '--device', 't4'),
    ('gpt2-124m:context=4096', 8),
    ('resnet50', 32), ('resnet50', 256), ('resnet50', 256, '--precision', 'fp32'),
    ('resnet50', 64, '--device', 't4'),
    ('unet:image=416x608', 11, '--device', 'v100-16g'), ('bert-base', 32), ('vit-b16', 64),
    ('gpt2-1558m', 8), ('gpt2-124m', 32, '--devices', '8'), ('gpt2-1558m', 32, '--devices', '8'),
)


def plan(program, case, budget):
    """The plan, and processor seconds."""
    model, batch, *options = case
    if '--device' not in options:
        options += ['--device', 'h200']
    before = os.times()
    done = subprocess.run([program, 'plan', model, '--batch', str(batch), '-m', str(budget), '-o', 'json', *options],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    after = os.times()
    if not done.stdout:
        sys.exit(done.stderr.decode())
    taken = after.children_user - before.children_user + after.children_system - before.children_system
    return json.loads(done.stdout), taken


def without_time(found):
    return {key: value for key, value in found.items() if key != 'planning_seconds'}


def spread(values):
    return f'{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})'


def measure(case, programs):
    whole, _ = plan(programs[0], case, 1 << 52)
    outside = whole['outside_arena_bytes']
    times = [[] for _ in programs]
    taken = [[] for _ in programs]
    slower, same = [], 0
    for share in SHARES:
        found = []
        for _ in range(TURNS):
            found = []
            for i, program in enumerate(programs):
                one, seconds = plan(program, case, int(whole['plain']['peak_bytes'] * share) + outside)
                found.append(one)
                times[i].append(one['planning_seconds'])
                taken[i].append(seconds)
        same += without_time(found[0]) == without_time(found[-1])
        slower.append(100 * (found[0]['step_seconds'] / found[-1]['step_seconds'] - 1))
    name = ' '.join([f'{case[0]}, batch {case[1]}', *case[2:]])
    cells = [cell for i in reversed(range(len(programs))) for cell in (spread(times[i]), spread(taken[i]))]
    if len(programs) > 1:
        cells.append('the same' if same == len(SHARES) else
                     f'{same} of {len(SHARES)} the same, steps {min(slower):+.2f} to {max(slower):+.2f} %')
    print('| ' + ' | '.join([name, *cells]) + ' |', flush=True)


def main():
    programs = [ULLAGE] + ([OTHER] if OTHER else [])
    heads = ['case'] + (['before: s', 'processor s'] if OTHER else []) + ['s', 'processor s'] + (['plans'] if OTHER else [])
    print('| ' + ' | '.join(heads) + ' |')
    print('|' + '---|' * len(heads))
    for case in CASES:
        measure(case, programs)


main()
