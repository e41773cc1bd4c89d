"""Writes reference.json: logits, losses, gradients and ten AdamW steps of a tiny GPT-2.

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

CONFIG = dict(vocab=37, context=12, blocks=2, heads=3, channels=24)
BATCH, MICROS, STEPS = 2, 2, 10
TRAIN = dict(lr=3e-3, beta1=0.9, beta2=0.95, eps=1e-8, decay=0.1, clip=1.5)
V, T, L, H, C = (CONFIG[k] for k in ("vocab", "context", "blocks", "heads", "channels"))


def unit(stream, i):
    """A number in [-1,1): 32-bit integer hash of (stream, i), scaled."""
    x = (i + 1) * 2654435761 + stream * 40503 & 0xFFFFFFFF
    x = (x ^ x >> 15) * 2246822519 & 0xFFFFFFFF
    x = (x ^ x >> 13) * 3266489917 & 0xFFFFFFFF
    x ^= x >> 16
    return x / 2**31 - 1


def tensors():
    """(layer, name, shape) in the order of the Go package, the tied copy left out."""
    yield 0, "wte.weight", (V, C)
    yield 0, "wpe.weight", (T, C)
    for i in range(L):
        h = f"h.{i}."
        yield i + 1, h + "ln_1.weight", (C,)
        yield i + 1, h + "ln_1.bias", (C,)
        yield i + 1, h + "attn.c_attn.weight", (3 * C, C)
        yield i + 1, h + "attn.c_attn.bias", (3 * C,)
        yield i + 1, h + "attn.c_proj.weight", (C, C)
        yield i + 1, h + "attn.c_proj.bias", (C,)
        yield i + 1, h + "ln_2.weight", (C,)
        yield i + 1, h + "ln_2.bias", (C,)
        yield i + 1, h + "mlp.c_fc.weight", (4 * C, C)
        yield i + 1, h + "mlp.c_fc.bias", (4 * C,)
        yield i + 1, h + "mlp.c_proj.weight", (C, 4 * C)
        yield i + 1, h + "mlp.c_proj.bias", (C,)
    yield L + 1, "ln_f.weight", (C,)
    yield L + 1, "ln_f.bias", (C,)


def parameter(stream, name, shape):
    values = [unit(stream, i) for i in range(math.prod(shape))]
    if len(shape) == 2:
        values = [0.3 * u for u in values]
    elif "ln_" in name and name.endswith("weight"):
        values = [1 + 0.2 * u for u in values]
    else:
        values = [0.1 * u for u in values]
    p = torch.tensor(values).to(torch.float32).to(torch.float64).reshape(shape)
    return p.requires_grad_()


def micro_batch(micro):
    """Tokens and targets [B,T]; each seventh target does not count."""
    n = BATCH * T
    tokens = [int((unit(1000 + micro, i) + 1) / 2 * V) for i in range(n)]
    targets = [int((unit(2000 + micro, i) + 1) / 2 * V) for i in range(n)]
    targets = [-1 if i % 7 == 3 else t for i, t in enumerate(targets)]
    return torch.tensor(tokens).reshape(BATCH, T), torch.tensor(targets).reshape(BATCH, T)


def logits_of(p, tokens):
    x = p["wte.weight"][tokens] + p["wpe.weight"]
    for i in range(L):
        h = f"h.{i}."
        y = F.layer_norm(x, (C,), p[h + "ln_1.weight"], p[h + "ln_1.bias"], 1e-5)
        qkv = F.linear(y, p[h + "attn.c_attn.weight"], p[h + "attn.c_attn.bias"])
        q, k, v = (z.reshape(BATCH, T, H, C // H).transpose(1, 2) for z in qkv.split(C, dim=2))
        scores = q @ k.transpose(2, 3) / math.sqrt(C // H)
        scores = scores.masked_fill(torch.ones(T, T).triu(1) == 1, -math.inf)
        y = (scores.softmax(-1) @ v).transpose(1, 2).reshape(BATCH, T, C)
        x = x + F.linear(y, p[h + "attn.c_proj.weight"], p[h + "attn.c_proj.bias"])
        y = F.layer_norm(x, (C,), p[h + "ln_2.weight"], p[h + "ln_2.bias"], 1e-5)
        y = F.linear(y, p[h + "mlp.c_fc.weight"], p[h + "mlp.c_fc.bias"])
        y = F.gelu(y, approximate="tanh")
        x = x + F.linear(y, p[h + "mlp.c_proj.weight"], p[h + "mlp.c_proj.bias"])
    x = F.layer_norm(x, (C,), p["ln_f.weight"], p["ln_f.bias"], 1e-5)
    return F.linear(x, p["wte.weight"])


def loss_sum(p, micro):
    tokens, targets = micro_batch(micro)
    flat = logits_of(p, tokens).reshape(-1, V)
    return F.cross_entropy(flat, targets.reshape(-1), ignore_index=-1, reduction="sum")


def sample(t, count):
    flat = t.detach().reshape(-1)
    stride = max(1, flat.numel() // count)
    return [dict(index=i, value=flat[i].item()) for i in range(0, flat.numel(), stride)]


def train(p):
    """Losses (mean over all rows, before the update) and gradient norms of each step."""
    decay = [t for t in p.values() if t.dim() == 2]
    rest = [t for t in p.values() if t.dim() != 2]
    groups = [dict(params=decay, weight_decay=TRAIN["decay"]), dict(params=rest, weight_decay=0.0)]
    optimizer = torch.optim.AdamW(
        groups, lr=TRAIN["lr"], betas=(TRAIN["beta1"], TRAIN["beta2"]), eps=TRAIN["eps"])
    losses, norms = [], []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = sum(loss_sum(p, m) for m in range(MICROS)) / (MICROS * BATCH * T)
        loss.backward()
        norm = math.sqrt(sum(t.grad.square().sum().item() for t in p.values()))
        for t in p.values():
            t.grad *= min(1.0, TRAIN["clip"] / norm)
        optimizer.step()
        losses.append(loss.item())
        norms.append(norm)
    return losses, norms


def main():
    named = list(tensors())
    p = {name: parameter(i, name, shape) for i, (_, name, shape) in enumerate(named)}
    logits = logits_of(p, micro_batch(0)[0])
    loss = loss_sum(p, 0) / (BATCH * T)
    loss.backward()
    grads = [
        dict(layer=layer, name=name, norm=p[name].grad.norm().item(), elements=sample(p[name].grad, 8))
        for layer, name, _ in named
    ]
    result = dict(config=CONFIG, batch=BATCH, micros=MICROS, loss=loss.item(), logits=sample(logits, 24), grads=grads)
    losses, norms = train(p)
    result["train"] = dict(TRAIN, losses=losses, norms=norms)
    print(json.dumps(result, indent=1))


main()
