"""PyTorch programs of many kinds, with random weights and made-up data, for record_traces.py.

Each is one function of a `Run`, which says where it computes. What is asked of the allocator depends on the shapes alone, so
nothing has to be learnt and a few steps suffice. Models are those of torchvision, transformers and torch_geometric where
these have one; sizes are so that a program takes seconds on a large card.
"""
import random

import torch
from torch import nn
from torch.nn import functional


class Run:
    """Where, and how large: `small` is for a machine without a card, to see that a program runs."""

    def __init__(self, device, small):
        self.device, self.small = device, small
        self.random = random.Random(7)

    def pick(self, large, small):
        return small if self.small else large

    def tokens(self, batch, length, vocabulary):
        return torch.randint(0, vocabulary, (batch, length), device=self.device)

    def images(self, batch, height, width=None):
        return torch.randn(batch, 3, height, width or height, device=self.device)

    def mixed(self):
        return torch.autocast(self.device, dtype=torch.bfloat16)


def step(optimizer, loss, clip=None):
    loss.backward()
    if clip:
        nn.utils.clip_grad_norm_(clip, 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


# --- language models that answer ------------------------------------------------------------------------------


def llama(run, **changes):
    from transformers import LlamaConfig, LlamaForCausalLM

    width = run.pick(2048, 64)
    config = LlamaConfig(vocab_size=run.pick(32000, 100), hidden_size=width, intermediate_size=width * 11 // 4,
                         num_hidden_layers=run.pick(16, 2), num_attention_heads=run.pick(16, 2),
                         num_key_value_heads=run.pick(16, 2), max_position_embeddings=4096, **changes)
    return LlamaForCausalLM(config).to(run.device, torch.bfloat16).eval(), config.vocab_size


@torch.inference_mode()
def serve(run):
    """A server: six requests at a time, each a token in its turn; keys and values grow by concatenation."""
    from transformers import DynamicCache

    model, vocabulary = llama(run)
    active = []
    for _ in range(run.pick(26, 4)):
        while len(active) < run.pick(6, 2):
            length = run.random.randint(*run.pick((32, 1500), (3, 20)))
            cache = DynamicCache(config=model.config)
            out = model(run.tokens(1, length, vocabulary), past_key_values=cache, use_cache=True, logits_to_keep=1)
            active.append([cache, out.logits[:, -1].argmax(-1, keepdim=True), run.random.randint(4, 16)])
            del out
        for request in list(active):
            request[1] = model(request[1], past_key_values=request[0], use_cache=True).logits[:, -1].argmax(-1, keepdim=True)
            request[2] -= 1
            if request[2] == 0:
                active.remove(request)
        del request


@torch.inference_mode()
def generate(run):
    """Batches of prompts answered greedily, of other size and length each time."""
    model, vocabulary = llama(run)
    for _ in range(run.pick(7, 2)):
        batch, length = run.random.choice([1, 4, 8, 16, 32]), run.random.randint(*run.pick((16, 700), (3, 10)))
        model.generate(run.tokens(batch, length, vocabulary), max_new_tokens=run.pick(22, 3), do_sample=False,
                       min_new_tokens=run.pick(22, 3), pad_token_id=0)


@torch.inference_mode()
def generate_static(run):
    """The same with a cache of fixed size, allocated before."""
    model, vocabulary = llama(run)
    from transformers import StaticCache

    for _ in range(run.pick(6, 2)):
        batch, length = run.random.choice([1, 4, 8]), run.random.randint(*run.pick((16, 700), (3, 10)))
        cache = StaticCache(config=model.config, max_cache_len=run.pick(1024, 32))
        tokens = run.tokens(batch, length, vocabulary)
        for _ in range(run.pick(16, 3)):
            logits = model(tokens, past_key_values=cache, use_cache=True, logits_to_keep=1).logits
            tokens = logits[:, -1].softmax(-1).multinomial(1)


@torch.inference_mode()
def beams(run):
    """Summaries by T5 with four beams, whose caches are put in another order after each token."""
    from transformers import T5Config, T5ForConditionalGeneration

    layers = run.pick(6, 1)
    model = T5ForConditionalGeneration(T5Config(
        vocab_size=run.pick(32128, 100), d_model=run.pick(512, 32), d_kv=run.pick(64, 16), d_ff=run.pick(2048, 64),
        num_layers=layers, num_heads=run.pick(8, 2), decoder_start_token_id=0)).to(run.device).eval()
    for _ in range(run.pick(5, 1)):
        batch, length = run.random.randint(1, 16), run.random.randint(*run.pick((100, 900), (5, 9)))
        model.generate(run.tokens(batch, length, run.pick(32128, 100)), num_beams=4, max_new_tokens=run.pick(30, 3),
                       min_new_tokens=run.pick(30, 3))


# --- language models that learn -------------------------------------------------------------------------------


def bert(run):
    """BERT-base on sentences of another length in each batch, filled up to the longest; evaluation now and then."""
    from transformers import BertConfig, BertForSequenceClassification

    model = BertForSequenceClassification(BertConfig(
        hidden_size=run.pick(768, 32), num_hidden_layers=run.pick(12, 1), num_attention_heads=run.pick(12, 2),
        intermediate_size=run.pick(3072, 64), vocab_size=run.pick(30522, 100))).to(run.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    for epoch in range(2):
        model.train()
        for _ in range(run.pick(9, 1)):
            length = run.random.randint(*run.pick((12, 384), (4, 9)))
            tokens = run.tokens(32, length, run.pick(30522, 100))
            with run.mixed():
                loss = model(tokens, attention_mask=torch.ones_like(tokens), labels=run.tokens(32, 1, 2)[:, 0]).loss
            step(optimizer, loss, model.parameters())
        model.eval()
        with torch.no_grad():
            kept = []
            for _ in range(run.pick(5, 1)):
                tokens = run.tokens(128, run.random.randint(*run.pick((12, 512), (4, 9))), run.pick(30522, 100))
                kept.append(model(tokens, attention_mask=torch.ones_like(tokens)).logits)
            torch.cat(kept)


def experts(run):
    """A mixture of experts: what each of them gets differs with each batch."""
    from transformers import MixtralConfig, MixtralForCausalLM

    model = MixtralForCausalLM(MixtralConfig(
        vocab_size=run.pick(32000, 100), hidden_size=run.pick(1024, 32), intermediate_size=run.pick(2048, 64),
        num_hidden_layers=run.pick(6, 1), num_attention_heads=run.pick(16, 2), num_key_value_heads=run.pick(4, 2),
        num_local_experts=8, num_experts_per_tok=2, max_position_embeddings=4096)).to(run.device)
    if hasattr(model, "set_experts_implementation"):
        model.set_experts_implementation("eager")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for _ in range(run.pick(8, 1)):
        tokens = run.tokens(run.pick(4, 1), run.random.randint(*run.pick((600, 1024), (6, 9))), run.pick(32000, 100))
        with run.mixed():
            loss = model(tokens, labels=tokens).loss
        step(optimizer, loss, model.parameters())


class Recurrent(nn.Module):
    def __init__(self, vocabulary, width):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, width, 2, batch_first=True, dropout=0.1)
        self.out = nn.Linear(width, vocabulary)

    def forward(self, tokens, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(self.embed(tokens), lengths, batch_first=True, enforce_sorted=False)
        return self.out(self.lstm(packed)[0].data)


def recurrent(run):
    """An LSTM over sequences packed by length, with a vocabulary of 60,000 words; SGD with momentum."""
    vocabulary = run.pick(60000, 100)
    model = Recurrent(vocabulary, run.pick(1024, 16)).to(run.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(run.pick(120, 2)):
        lengths = torch.tensor([run.random.randint(*run.pick((10, 180), (2, 9))) for _ in range(48)])
        tokens = run.tokens(48, int(lengths.max()), vocabulary)
        logits = model(tokens, lengths)
        step(optimizer, functional.cross_entropy(logits, run.tokens(1, len(logits), vocabulary)[0]), model.parameters())
        del logits


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x, cache=None):
        b, t, w = x.shape
        q, k, v = (y.view(b, t, self.heads, w // self.heads).transpose(1, 2) for y in self.qkv(self.norm1(x)).chunk(3, -1))
        if cache is not None:
            if cache:
                k, v = torch.cat((cache[0], k), 2), torch.cat((cache[1], v), 2)
            cache[:] = k, v
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=t > 1)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, w))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, vocabulary, width, layers, heads=12):
        super().__init__()
        self.embed, self.place = nn.Embedding(vocabulary, width), nn.Embedding(2048, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens, caches=None, begin=0):
        x = self.embed(tokens) + self.place(torch.arange(begin, begin + tokens.shape[1], device=tokens.device))
        for i, block in enumerate(self.blocks):
            x = block(x, caches[i] if caches is not None else None)
        return self.out(self.norm(x))


def gpt(run, layers=12):
    vocabulary = run.pick(50257, 100)
    return GPT(vocabulary, run.pick(768, 24), run.pick(layers, 1)).to(run.device), vocabulary


def next_token(run, model, tokens):
    with run.mixed():
        logits = model(tokens[:, :-1])
        return functional.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())


def accumulate(run):
    """Gradients of four micro-batches of other lengths, then a step of AdamW, one parameter at a time; with norm clipping."""
    model, vocabulary = gpt(run)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=False)
    for _ in range(run.pick(6, 1)):
        for _ in range(4):
            next_token(run, model, run.tokens(8, run.random.randint(*run.pick((100, 1024), (4, 9))), vocabulary)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def compiled(run):
    """A compiled GPT; the compiler's own buffers are reused within its code. Lengths change, so it is compiled twice."""
    model, vocabulary = gpt(run, layers=6)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    fast = torch.compile(model) if not run.small else model
    for i in range(run.pick(40, 1)):
        length = run.pick(512, 8) if i < 8 else run.random.randint(*run.pick((100, 1024), (4, 9)))
        step(optimizer, next_token(run, fast, run.tokens(16, length, vocabulary)))


def offload(run):
    """What the backward pass needs is kept in the host's memory."""
    model, vocabulary = gpt(run, layers=8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for _ in range(run.pick(5, 1)):
        with torch.autograd.graph.save_on_cpu():
            loss = next_token(run, model, run.tokens(8, run.random.randint(*run.pick((200, 800), (4, 9))), vocabulary))
        step(optimizer, loss)


def reinforce(run):
    """Answers are generated, with caches that grow, and learnt from in the same process, in turns; a second model judges."""
    model, vocabulary = gpt(run)
    judge, _ = gpt(run, layers=6)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    for _ in range(run.pick(4, 1)):
        batch, prompt = run.random.choice([16, 24, 32]), run.random.randint(*run.pick((50, 400), (3, 6)))
        with torch.no_grad(), run.mixed():
            tokens, caches = run.tokens(batch, prompt, vocabulary), [[] for _ in model.blocks]
            logits = model(tokens, caches)
            for _ in range(run.pick(24, 2)):
                new = logits[:, -1].float().softmax(-1).multinomial(1)
                tokens = torch.cat((tokens, new), 1)
                logits = model(new, caches, tokens.shape[1] - 1)
            del logits, caches
            reward = judge(tokens).float().logsumexp(-1).mean(-1)
            before = model(tokens).float().log_softmax(-1).gather(-1, tokens[..., None])
        for part in range(0, batch, 8):
            some = slice(part, part + 8)
            with run.mixed():
                now = model(tokens[some]).float().log_softmax(-1).gather(-1, tokens[some][..., None])
                ratio = (now - before[some]).exp().squeeze(-1).mean(-1)
                loss = -(ratio.clamp(0.8, 1.2) * reward[some]).mean()
            step(optimizer, loss, model.parameters())
            del now, ratio, loss


# --- images -----------------------------------------------------------------------------------------------------


def detect(run):
    """Mask R-CNN on pictures of all sizes with random boxes, and evaluation."""
    from torchvision.models.detection import maskrcnn_resnet50_fpn

    model = maskrcnn_resnet50_fpn(weights=None, weights_backbone=None, num_classes=91,
                                  min_size=run.pick(800, 64), max_size=run.pick(1333, 96)).to(run.device)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=1e-4, momentum=0.9)

    def picture():
        height, width = (run.random.randint(*run.pick((300, 900), (50, 80))) for _ in range(2))
        return torch.rand(3, height, width, device=run.device)

    def target(image):
        count, (height, width) = run.random.randint(1, 12), image.shape[1:]
        corner = torch.rand(count, 2, device=run.device) * 0.6
        size = 0.1 + torch.rand(count, 2, device=run.device) * 0.25
        scale = torch.tensor([width, height], device=run.device)
        return {"boxes": torch.cat((corner * scale, (corner + size) * scale), 1),
                "labels": torch.randint(1, 91, (count,), device=run.device),
                "masks": torch.rand(count, height, width, device=run.device).gt(0.5).to(torch.uint8)}

    for _ in range(run.pick(8, 1)):
        images = [picture() for _ in range(run.random.randint(2, 4))]
        step(optimizer, sum(model(images, [target(image) for image in images]).values()))
    model.eval()
    with torch.no_grad():
        for _ in range(run.pick(4, 1)):
            model([picture() for _ in range(2)])


class Residual(nn.Module):
    def __init__(self, inside, outside, time):
        super().__init__()
        self.first = nn.Sequential(nn.GroupNorm(8, inside), nn.SiLU(), nn.Conv2d(inside, outside, 3, padding=1))
        self.time = nn.Linear(time, outside)
        self.second = nn.Sequential(nn.GroupNorm(8, outside), nn.SiLU(), nn.Conv2d(outside, outside, 3, padding=1))
        self.skip = nn.Conv2d(inside, outside, 1) if inside != outside else nn.Identity()

    def forward(self, x, time):
        return self.skip(x) + self.second(self.first(x) + self.time(time)[:, :, None, None])


class Denoiser(nn.Module):
    def __init__(self, width):
        super().__init__()
        sizes = [width, 2 * width, 4 * width]
        self.time = nn.Sequential(nn.Linear(1, 4 * width), nn.SiLU(), nn.Linear(4 * width, 4 * width))
        self.begin = nn.Conv2d(3, width, 3, padding=1)
        self.down = nn.ModuleList(Residual(a, b, 4 * width) for a, b in zip([width] + sizes, sizes))
        self.attend = nn.MultiheadAttention(sizes[-1], 4, batch_first=True)
        self.middle = Residual(sizes[-1], sizes[-1], 4 * width)
        self.up = nn.ModuleList(Residual(a + b, c, 4 * width)
                                for a, b, c in zip([sizes[-1], sizes[1], sizes[0]], sizes[::-1], [sizes[1], sizes[0], width]))
        self.end = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x, time):
        time, x, kept = self.time(time[:, None]), self.begin(x), []
        for down in self.down:
            x = down(x, time)
            kept.append(x)
            x = functional.avg_pool2d(x, 2)
        x = self.middle(x, time)
        flat = x.flatten(2).transpose(1, 2)
        x = x + self.attend(flat, flat, flat)[0].transpose(1, 2).view_as(x)
        for up in self.up:
            x = up(torch.cat((functional.interpolate(x, scale_factor=2), kept.pop()), 1), time)
        return self.end(x)


def diffusion(run):
    """A U-Net learns to take noise away, with an average of its weights, which then makes pictures of another size."""
    model = Denoiser(run.pick(96, 16)).to(run.device)
    average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.99))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    side = run.pick(64, 16)
    for i in range(run.pick(50, 2)):
        clean = run.images(run.pick(48, 2), side)
        time, noise = torch.rand(len(clean), device=run.device), torch.randn_like(clean)
        with run.mixed():
            mix = time[:, None, None, None]
            loss = functional.mse_loss(model(clean * (1 - mix) + noise * mix, time), noise)
        step(optimizer, loss, model.parameters())
        average.update_parameters(model)
        if i % 20 == 9:
            with torch.no_grad():
                x = run.images(run.random.randint(3, 20), side * run.random.choice([1, 2]))
                for t in torch.linspace(1, 0, run.pick(6, 2), device=run.device):
                    x = x - 0.1 * average(x, t.expand(len(x)))


def checkpointed(run):
    """A vision transformer whose blocks are computed a second time in the backward pass."""
    from torch.utils.checkpoint import checkpoint
    from torchvision.models import VisionTransformer

    model = VisionTransformer(image_size=run.pick(224, 32), patch_size=16, num_layers=run.pick(12, 2),
                              num_heads=run.pick(12, 2), hidden_dim=run.pick(768, 32), mlp_dim=run.pick(3072, 64)).to(run.device)
    for layer in model.encoder.layers:
        layer.forward = (lambda x, inner=layer.forward: checkpoint(inner, x, use_reentrant=False))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for _ in range(run.pick(8, 1)):
        batch = run.pick(96, 2)
        with run.mixed():
            loss = functional.cross_entropy(model(run.images(batch, run.pick(224, 32))), run.tokens(1, batch, 1000)[0])
        step(optimizer, loss, model.parameters())


def epochs(run):
    """EfficientNet: 360 tensors, most of them tiny; an average of the weights, evaluation, and a last batch that is smaller."""
    from torchvision.models import efficientnet_b0

    model = efficientnet_b0(weights=None).to(run.device)
    average = torch.optim.swa_utils.AveragedModel(model)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3, momentum=0.9, foreach=True)
    side = run.pick(224, 32)
    for _ in range(2):
        model.train()
        for batch in run.pick([64, 64, 64, 64, 37], [2]):
            with run.mixed():
                loss = functional.cross_entropy(model(run.images(batch, side)), run.tokens(1, batch, 1000)[0])
            step(optimizer, loss)
            average.update_parameters(model)
        model.eval()
        with torch.no_grad():
            kept = [functional.softmax(model(run.images(batch, side)), -1) for batch in run.pick([200, 200, 111], [2])]
            torch.cat(kept).topk(5)
            del kept


def prefetch(run):
    """Batches come over a second stream, one ahead, and are given to the first with record_stream; ResNet-18."""
    from torchvision.models import resnet18

    model = resnet18(weights=None).to(run.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    cuda = run.device == "cuda"
    side = torch.cuda.Stream() if cuda else None

    def load():
        batch, size = run.random.randint(*run.pick((24, 96), (2, 3))), run.random.choice(run.pick([160, 192, 224], [32]))
        host = torch.randint(0, 256, (batch, 3, size, size), dtype=torch.uint8)
        if not cuda:
            return host.float().div(255)
        with torch.cuda.stream(side):
            return host.pin_memory().to("cuda", non_blocking=True).float().div(255).sub(0.5)

    following = load()
    for _ in range(run.pick(40, 2)):
        images = following
        if cuda:
            torch.cuda.current_stream().wait_stream(side)
            images.record_stream(torch.cuda.current_stream())
        following = load()
        with run.mixed():
            loss = functional.cross_entropy(model(images), run.tokens(1, len(images), 1000)[0])
        step(optimizer, loss)


def adversaries(run):
    """A generator and a critic, in turns, with a penalty on gradients, which are differentiated a second time."""
    width, batch = run.pick(64, 8), run.pick(128, 2)
    up = [nn.ConvTranspose2d(100, 8 * width, 4)]
    for a, b in ((8, 4), (4, 2), (2, 1)):
        up += [nn.BatchNorm2d(a * width), nn.ReLU(True), nn.ConvTranspose2d(a * width, b * width, 4, 2, 1)]
    up += [nn.BatchNorm2d(width), nn.ReLU(True), nn.ConvTranspose2d(width, 3, 4, 2, 1), nn.Tanh()]
    down = [nn.Conv2d(3, width, 4, 2, 1)]
    for a, b in ((1, 2), (2, 4), (4, 8)):
        down += [nn.LeakyReLU(0.2, True), nn.Conv2d(a * width, b * width, 4, 2, 1)]
    maker = nn.Sequential(*up).to(run.device)
    critic = nn.Sequential(*down, nn.LeakyReLU(0.2, True), nn.Conv2d(8 * width, 1, 4)).to(run.device)
    makes = torch.optim.Adam(maker.parameters(), lr=2e-4, betas=(0.5, 0.999))
    judges = torch.optim.Adam(critic.parameters(), lr=2e-4, betas=(0.5, 0.999))
    for i in range(run.pick(60, 2)):
        real = run.images(batch, 64)
        fake = maker(torch.randn(batch, 100, 1, 1, device=run.device))
        between = (real * 0.3 + fake.detach() * 0.7).requires_grad_()
        slope = torch.autograd.grad(critic(between).sum(), between, create_graph=True)[0]
        step(judges, critic(fake.detach()).mean() - critic(real).mean() + 10 * (slope.flatten(1).norm(2, 1) - 1).square().mean())
        if i % 3 == 2:
            step(makes, -critic(fake).mean())
            critic.zero_grad(set_to_none=True)


# --- others -----------------------------------------------------------------------------------------------------


def policy(run):
    """Reinforcement learning of 4,096 pendulums on the card: nothing but small tensors, of which episodes are kept."""
    count = run.pick(4096, 8)
    actor = nn.Sequential(nn.Linear(3, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, 2)).to(run.device)
    optimizer = torch.optim.Adam(actor.parameters(), lr=3e-4)
    angle, speed = torch.randn(count, device=run.device), torch.zeros(count, device=run.device)
    for _ in range(run.pick(12, 1)):
        episode = []
        with torch.no_grad():
            for _ in range(run.pick(64, 4)):
                state = torch.stack((angle.cos(), angle.sin(), speed), -1)
                mean, value = actor(state).unbind(-1)
                push = mean + torch.randn_like(mean)
                speed = (speed + 0.05 * (15 * angle.sin() + 3 * push.clamp(-2, 2))).clamp(-8, 8)
                angle = angle + 0.05 * speed
                episode.append((state, push, -(angle.square() + 0.1 * speed.square()), value))
            states, pushes, rewards, values = (torch.stack(parts) for parts in zip(*episode))
            gain, gains = torch.zeros(count, device=run.device), []
            for reward in reversed(rewards.unbind()):
                gain = reward + 0.95 * gain
                gains.append(gain)
            gains = torch.stack(gains[::-1])
        for part in torch.randperm(states.shape[0] * count, device=run.device).chunk(8):
            mean, value = actor(states.flatten(0, 1)[part]).unbind(-1)
            advantage = gains.flatten()[part] - values.flatten()[part]
            loss = (advantage * (pushes.flatten()[part] - mean).square()).mean() + (value - gains.flatten()[part]).square().mean()
            step(optimizer, loss, actor.parameters())


def graphs(run):
    """A graph attention network over random graphs, of another number of nodes and edges in each batch."""
    from torch_geometric.nn import GATConv, global_mean_pool

    width = run.pick(128, 8)
    layers = nn.ModuleList([GATConv(width, width // 4, heads=4) for _ in range(4)]).to(run.device)
    out = nn.Linear(width, 10).to(run.device)
    optimizer = torch.optim.AdamW([*layers.parameters(), *out.parameters()], lr=1e-3)
    for _ in range(run.pick(60, 2)):
        nodes = run.random.randint(*run.pick((3000, 60000), (20, 40)))
        edges = torch.randint(0, nodes, (2, int(nodes * run.random.uniform(2, 9))), device=run.device)
        x, group = torch.randn(nodes, width, device=run.device), torch.randint(0, 32, (nodes,), device=run.device)
        for layer in layers:
            x = x + functional.elu(layer(x, edges))
        step(optimizer, functional.cross_entropy(out(global_mean_pool(x, group, 32)), run.tokens(1, 32, 10)[0]))


PROGRAMS = [serve, generate, generate_static, beams, bert, experts, recurrent, accumulate, compiled, offload, reinforce,
            detect, diffusion, checkpointed, epochs, prefetch, adversaries, policy, graphs]
