"""Writes reference.json: logits, losses, gradients and twenty AdamW steps of tiny models of
each family.

    python3 reference.py > reference.json

Made with PyTorch 1.13 (Debian's python3-torch) in float64 on a CPU. Weights and tokens
are a closed form of their index (see unit), so the file needs no weights; the Go test
computes the same ones. Everything here is plain PyTorch and written without a look at the
Go code's order of operations.
"""
import json
import math

import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)

BATCH, MICROS, STEPS = 2, 2, 20
TRAIN = dict(lr=3e-3, beta1=0.9, beta2=0.95, eps=1e-8, decay=0.1, clip=1.5)

# Descriptions as the Go package reads them; a field that is missing means GPT-2.
GPT2 = dict(vocab=37, context=12, blocks=2, heads=3, channels=24)
LLAMA = dict(
    vocab=37, context=12, blocks=2, heads=6, channels=24, kv_heads=2, head_dim=8, mlp=40,
    norm="rmsnorm", norm_eps=1e-6, activation="swiglu", positions="rope", rope_theta=500.0,
    no_qkv_bias=True, no_output_bias=True, no_mlp_bias=True, untied_head=True)
LLAMA3 = dict(kind="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_context=8)
MODELS = dict(
    gpt2=GPT2,
    llama=LLAMA,
    llama3=dict(LLAMA, rope_scaling=LLAMA3),
    qwen2=dict(LLAMA, no_qkv_bias=False, untied_head=False, rope_scaling=dict(kind="linear", factor=4.0)),
    mistral=dict(LLAMA, head_dim=4, kv_heads=3, window=5),
    lora=dict(LLAMA, lora=dict(rank=3, alpha=6.0, targets="q_proj,v_proj,up_proj,down_proj")),
    lora_gpt2=dict(GPT2, lora=dict(rank=5, alpha=2.5, targets="c_attn,c_proj")),
    # No family: every bias, multi-query, LayerNorm and GELU with rotary positions.
    mixture=dict(vocab=37, context=12, blocks=2, heads=4, channels=24, kv_heads=1, positions="rope", mlp=56),
)


def unit(stream, i):
    """A number in [-1,1): 32-bit integer hash of (stream, i), scaled."""
    x = (i + 1) * 2654435761 + stream * 40503 & 0xFFFFFFFF
    x = (x ^ x >> 15) * 2246822519 & 0xFFFFFFFF
    x = (x ^ x >> 13) * 3266489917 & 0xFFFFFFFF
    x ^= x >> 16
    return x / 2**31 - 1


def parameter(stream, name, shape, trained):
    values = [unit(stream, i) for i in range(math.prod(shape))]
    if len(shape) == 2:
        values = [0.3 * u for u in values]
    elif name.endswith("weight"):  # of a norm
        values = [1 + 0.2 * u for u in values]
    else:
        values = [0.1 * u for u in values]
    p = torch.tensor(values).to(torch.float32).to(torch.float64).reshape(shape)
    return p.requires_grad_(trained)


class Model:
    """A transformer whose parameters have names in self.p."""

    def __init__(self, config):
        self.c = config
        self.V, self.T, self.L, self.H, self.C = (config[k] for k in ("vocab", "context", "blocks", "heads", "channels"))
        self.K = config.get("kv_heads", self.H)
        self.D = config.get("head_dim", self.C // self.H)
        self.F = config.get("mlp", 4 * self.C)
        self.rms = config.get("norm") == "rmsnorm"
        self.eps = config.get("norm_eps", 1e-5)
        self.swiglu = config.get("activation") == "swiglu"
        self.rope = config.get("positions") == "rope"
        self.tied = not config.get("untied_head", False)
        self.lora = config.get("lora", {})
        named = list(self.tensors())
        self.p = {name: parameter(i, name, shape, self.trained(name)) for i, (_, name, shape) in enumerate(named)}
        self.named = [t for t in named if self.trained(t[1])]

    def trained(self, name):
        return not self.lora or ".lora_" in name

    def tensors(self):
        """(layer, name, shape) in the order of the Go package, the tied copy left out."""
        V, T, L, H, K, D, C, F = self.V, self.T, self.L, self.H, self.K, self.D, self.C, self.F
        c = self.c

        def norm(layer, name):
            yield layer, name + ".weight", (C,)
            if not self.rms:
                yield layer, name + ".bias", (C,)

        def linear(layer, names, outs, cols, bias):
            for name, out in zip(names, outs):
                yield layer, name + ".weight", (out, cols)
            for name, out in zip(names, outs):
                if bias:
                    yield layer, name + ".bias", (out,)

        def block(i):
            h = n["block"] % i
            qkv = [H * D, K * D, K * D] if len(n["qkv"]) == 3 else [(H + 2 * K) * D]
            into = [n["gate"], n["up"]] if self.swiglu else [n["up"]]
            yield from norm(i + 1, h + n["norm1"])
            yield from linear(i + 1, [h + x for x in n["qkv"]], qkv, C, not c.get("no_qkv_bias"))
            yield from linear(i + 1, [h + n["out"]], [C], H * D, not c.get("no_output_bias"))
            yield from norm(i + 1, h + n["norm2"])
            yield from linear(i + 1, [h + x for x in into], [F] * len(into), C, not c.get("no_mlp_bias"))
            yield from linear(i + 1, [h + n["down"]], [C], F, not c.get("no_mlp_bias"))

        def adapters(base):
            rank, targets = self.lora.get("rank"), self.lora.get("targets", "").split(",")
            for layer, name, shape in base:
                module, kind = name.rsplit(".", 1)
                if kind == "weight" and module.rsplit(".", 1)[-1] in targets:
                    yield layer, module + ".lora_A.weight", (rank, shape[1])
                    yield layer, module + ".lora_B.weight", (shape[0], rank)

        n = self.names()
        yield 0, n["embed"] + ".weight", (V, C)
        if not self.rope:
            yield 0, "wpe.weight", (T, C)
        for i in range(L):
            base = list(block(i))
            yield from base
            yield from adapters(base)
        yield from norm(L + 1, n["normf"])
        if not self.tied:
            yield L + 1, "lm_head.weight", (V, C)

    def names(self):
        if self.rope:
            return dict(
                embed="embed_tokens", block="layers.%d.", norm1="input_layernorm", norm2="post_attention_layernorm",
                qkv=["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"], out="self_attn.o_proj",
                gate="mlp.gate_proj", up="mlp.up_proj", down="mlp.down_proj", normf="norm")
        return dict(
            embed="wte", block="h.%d.", norm1="ln_1", norm2="ln_2", qkv=["attn.c_attn"], out="attn.c_proj",
            gate="mlp.c_gate", up="mlp.c_fc", down="mlp.c_proj", normf="ln_f")

    def norm(self, x, name):
        w = self.p[name + ".weight"]
        if self.rms:
            return x / (x.square().mean(-1, keepdim=True) + self.eps).sqrt() * w
        return F.layer_norm(x, (self.C,), w, self.p[name + ".bias"], self.eps)

    def linear(self, x, *names):
        return torch.cat([self.adapted(x, n) for n in names], -1)

    def adapted(self, x, name):
        y = F.linear(x, self.p[name + ".weight"], self.p.get(name + ".bias"))
        if name + ".lora_A.weight" in self.p:
            low = F.linear(x, self.p[name + ".lora_A.weight"])
            y = y + self.lora["alpha"] / self.lora["rank"] * F.linear(low, self.p[name + ".lora_B.weight"])
        return y

    def rotate(self, x):
        """Rotary positions on [B,H,T,D]: halves of a head are real and imaginary parts."""
        f = self.c.get("rope_theta", 10000.0) ** (-torch.arange(0, self.D, 2) / self.D)
        angle = torch.outer(torch.arange(self.T).double(), scaled(f, self.c.get("rope_scaling", {})))
        turned = torch.complex(*x.split(self.D // 2, -1)) * torch.polar(torch.ones_like(angle), angle)
        return torch.cat([turned.real, turned.imag], -1)

    def attention(self, x, h):
        n, B, T, H, K, D = self.names(), BATCH, self.T, self.H, self.K, self.D
        qkv = self.linear(x, *[h + name for name in n["qkv"]])
        q, k, v = qkv.split([H * D, K * D, K * D], dim=2)
        q, k, v = (z.reshape(B, T, -1, D).transpose(1, 2) for z in (q, k, v))
        if self.rope:
            q, k = self.rotate(q), self.rotate(k)
        k, v = (z.repeat_interleave(H // K, dim=1) for z in (k, v))
        scores = q @ k.transpose(2, 3) / math.sqrt(D)
        hidden = torch.ones(T, T).triu(1)
        if "window" in self.c:
            hidden = hidden + torch.ones(T, T).tril(-self.c["window"])
        scores = scores.masked_fill(hidden > 0, -math.inf)
        y = (scores.softmax(-1) @ v).transpose(1, 2).reshape(B, T, H * D)
        return self.linear(y, h + n["out"])

    def mlp(self, x, h):
        n = self.names()
        y = self.linear(x, h + n["up"])
        if self.swiglu:
            y = F.silu(self.linear(x, h + n["gate"])) * y
        else:
            y = F.gelu(y, approximate="tanh")
        return self.linear(y, h + n["down"])

    def logits(self, tokens):
        n, p = self.names(), self.p
        x = p[n["embed"] + ".weight"][tokens]
        if not self.rope:
            x = x + p["wpe.weight"]
        for i in range(self.L):
            h = n["block"] % i
            x = x + self.attention(self.norm(x, h + n["norm1"]), h)
            x = x + self.mlp(self.norm(x, h + n["norm2"]), h)
        head = n["embed"] if self.tied else "lm_head"
        return F.linear(self.norm(x, n["normf"]), p[head + ".weight"])

    def micro_batch(self, micro):
        """Tokens and targets [B,T]; each seventh target does not count."""
        n = BATCH * self.T
        tokens = [int((unit(1000 + micro, i) + 1) / 2 * self.V) for i in range(n)]
        targets = [int((unit(2000 + micro, i) + 1) / 2 * self.V) for i in range(n)]
        targets = [-1 if i % 7 == 3 else t for i, t in enumerate(targets)]
        return torch.tensor(tokens).reshape(BATCH, self.T), torch.tensor(targets).reshape(BATCH, self.T)

    def loss_sum(self, micro):
        tokens, targets = self.micro_batch(micro)
        flat = self.logits(tokens).reshape(-1, self.V)
        return F.cross_entropy(flat, targets.reshape(-1), ignore_index=-1, reduction="sum")


def scaled(f, scaling):
    if scaling.get("kind") == "linear":
        return f / scaling["factor"]
    if scaling.get("kind") == "llama3":
        context, low, high = (scaling[k] for k in ("original_context", "low_freq_factor", "high_freq_factor"))
        wavelength = 2 * math.pi / f
        smooth = (context / wavelength - low) / (high - low)
        blend = (1 - smooth) * f / scaling["factor"] + smooth * f
        f = torch.where(wavelength > context / low, f / scaling["factor"], torch.where(wavelength < context / high, f, blend))
    return f


def sample(t, count):
    flat = t.detach().reshape(-1)
    stride = max(1, flat.numel() // count)
    return [dict(index=i, value=flat[i].item()) for i in range(0, flat.numel(), stride)]


def train(m):
    """Losses (mean over all rows, before the update) and gradient norms of each step."""
    p = {name: m.p[name] for _, name, _ in m.named}
    decay = [t for t in p.values() if t.dim() == 2]
    rest = [t for t in p.values() if t.dim() != 2]
    groups = [dict(params=decay, weight_decay=TRAIN["decay"]), dict(params=rest, weight_decay=0.0)]
    optimizer = torch.optim.AdamW(
        groups, lr=TRAIN["lr"], betas=(TRAIN["beta1"], TRAIN["beta2"]), eps=TRAIN["eps"])
    losses, norms = [], []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = sum(m.loss_sum(i) for i in range(MICROS)) / (MICROS * BATCH * m.T)
        loss.backward()
        norm = math.sqrt(sum(t.grad.square().sum().item() for t in p.values()))
        for t in p.values():
            t.grad *= min(1.0, TRAIN["clip"] / norm)
        optimizer.step()
        losses.append(loss.item())
        norms.append(norm)
    return losses, norms


def reference(config):
    m = Model(config)
    logits = m.logits(m.micro_batch(0)[0])
    loss = m.loss_sum(0) / (BATCH * m.T)
    loss.backward()
    grads = [
        dict(layer=layer, name=name, norm=m.p[name].grad.norm().item(), elements=sample(m.p[name].grad, 8))
        for layer, name, _ in m.named
    ]
    result = dict(config=config, batch=BATCH, micros=MICROS, loss=loss.item(), logits=sample(logits, 24), grads=grads)
    losses, norms = train(m)
    result["train"] = dict(TRAIN, losses=losses, norms=norms)
    return result


print(json.dumps({name: reference(config) for name, config in MODELS.items()}, indent=0))
