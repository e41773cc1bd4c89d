"""Replicas that train apart and meet in outer steps, in plain PyTorch as a peer: GPT-2 style models, AdamW in inner
steps, SGD with Nesterov momentum in outer ones (DiLoCo, arXiv 2311.08105), and messages in few bits with error feedback.
Its argument names a precision. The request {"run"} begins a run, {"round"} is answered by {"losses"}: of all inner steps of the
round, one replica after the other."""
DTYPE = {"f32": torch.float32, "f64": torch.float64}[cfg["dtype"]]
WORD = 2**64


def read(path, kind):
    with open(path, "rb") as file:
        return torch.frombuffer(bytearray(file.read()), dtype=kind)


def loss_of(p, tokens, targets):
    """The mean cross-entropy of tokens [B,T] under a model with these parameters."""
    T, C, H = run["context"], run["channels"], run["heads"]
    norm = lambda x, name: F.layer_norm(x, (C,), p[name + ".weight"], p[name + ".bias"], 1e-5)
    linear = lambda x, name: F.linear(x, p[name + ".weight"], p[name + ".bias"])
    future = torch.ones(T, T, dtype=torch.bool).triu(1)
    x = p["wte.weight"][tokens] + p["wpe.weight"]
    for block in range(run["blocks"]):
        h = f"h.{block}."
        q, k, v = (y.view(-1, T, H, C // H).transpose(1, 2) for y in linear(norm(x, h + "ln_1"), h + "attn.c_attn").split(C, dim=2))
        scores = (q @ k.transpose(-2, -1)) * (C // H) ** -0.5
        y = F.softmax(scores.masked_fill(future, float("-inf")), dim=-1) @ v
        x = x + linear(y.transpose(1, 2).reshape(-1, T, C), h + "attn.c_proj")
        x = x + linear(F.gelu(linear(norm(x, h + "ln_2"), h + "mlp.c_fc"), approximate="tanh"), h + "mlp.c_proj")
    logits = F.linear(norm(x, "ln_f"), p["wte.weight"])
    return F.cross_entropy(logits.reshape(-1, run["vocab"]), targets.reshape(-1))


def rate(step):
    """The learning rate of a step: linear warm-up, then a cosine."""
    if step <= run["warmup"]:
        return run["lr"] * step / run["warmup"]
    done = (step - run["warmup"]) / (run["steps"] - run["warmup"])
    return run["min_lr"] + (run["lr"] - run["min_lr"]) * 0.5 * (1 + math.cos(math.pi * done))


# Codecs: each returns what a receiver reads of a tensor, flat and in float32.


def blocks_of(x, n):
    return F.pad(x, (0, -len(x) % n)).view(-1, n)


def signed(n):
    return (n + WORD // 2) % WORD - WORD // 2


def number(noise, i):
    """Number i of a noise: SplitMix64, in signed integers, which wrap around."""
    drop = lambda z, n: (z >> n) & (2 ** (64 - n) - 1)
    z = noise + (i + 1) * signed(0x9E3779B97F4A7C15)
    z = (z ^ drop(z, 30)) * signed(0xBF58476D1CE4E5B9)
    z = (z ^ drop(z, 27)) * signed(0x94D049BB133111EB)
    return z ^ drop(z, 31)


def int8(x, place):
    """Groups of 128 with a float32 scale, rounded by chance."""
    noise = torch.tensor(signed(run["seed"]))
    for n in place:
        noise = number(noise, torch.tensor(n))
    groups = blocks_of(x, 128)
    most = groups.abs().amax(1, keepdim=True)
    fixed = (groups * (127 / most) * 65536).nan_to_num().to(torch.int64)
    bits = number(noise, torch.arange(groups.numel() // 4))
    chance = (bits[:, None] >> torch.tensor([0, 16, 32, 48])) & 0xFFFF  # 16 bits for each element
    steps = ((fixed + chance.view_as(fixed)) >> 16).clamp(max=127)
    return (steps * (most / 127)).masked_fill(most < 2.0**-100, 0).view(-1)[: len(x)]


def int4(x, _):
    """Blocks of 64 with a bfloat16 scale that is rounded up, to the nearest of 15 steps."""
    blocks = blocks_of(x, 64)
    most = blocks.abs().amax(1, keepdim=True)
    scale = (((most / 7).view(torch.int32) + 0xFFFF) & ~0xFFFF).view(torch.float32)
    steps = (blocks * (1 / scale) + 8.5).nan_to_num().to(torch.int32) - 8
    return (steps * scale).masked_fill(most < 2.0**-100, 0).view(-1)[: len(x)]


def topk(x, _):
    """One of each 64 elements, the largest of each chunk of 4,096, in four bins about their mean (SparseLoCo, arXiv 2508.15706)."""
    kept = torch.zeros(len(x), dtype=torch.bool)
    for first in range(0, len(x), 4096):
        chunk = x[first : first + 4096].abs()
        kept[first + chunk.topk((len(chunk) + 63) // 64).indices] = True
    kept &= x != 0
    values = x[kept].double()
    if not len(values):
        return torch.zeros_like(x)
    width = 6 * values.std(unbiased=False) / 4
    bins = (((values - values.mean()) / width).nan_to_num(0).round() + 2).clamp(0, 3).long()
    sums, counts = torch.zeros(4).double().index_add(0, bins, values), torch.bincount(bins, minlength=4)
    out = torch.zeros_like(x)
    out[kept] = (sums / counts.clamp(min=1)).float()[bins]
    return out


CODECS = {"f32": lambda x, _: x, "bf16": lambda x, _: x.bfloat16().float(), "int8": int8, "int4": int4, "topk": topk}


class Replica:
    """Parameters and optimizer state of a replica, and what its messages lack."""

    def __init__(self, number):
        self.number = number
        self.params = {name: p.detach().clone().requires_grad_() for name, p in reference.items()}
        matrices = [p for p in self.params.values() if p.dim() > 1]
        others = [p for p in self.params.values() if p.dim() < 2]
        groups = [{"params": matrices, "weight_decay": run["decay"]}, {"params": others, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=run["lr"], betas=(run["beta1"], run["beta2"]), eps=run["eps"])
        self.missed, self.left = {name: torch.zeros_like(p).view(-1) for name, p in reference.items()}, {}

    def step(self, step, rows):
        for group in self.optimizer.param_groups:
            group["lr"] = rate(step)
        self.optimizer.zero_grad()
        loss = loss_of(self.params, rows[:, :-1], rows[:, 1:])
        loss.backward()
        norm = sum(p.grad.square().sum() for p in self.params.values()).sqrt()
        if 0 < run["clip"] < norm:
            for p in self.params.values():
                p.grad *= run["clip"] / norm
        self.optimizer.step()
        return loss.item()

    def message(self, begin):
        """What the others read of what this replica has learned since a step; the rest is kept for the next message."""
        read = {}
        for name, p in self.params.items():
            want = self.missed[name] * run["forget"] + (reference[name] - p).detach().view(-1)
            place = (begin, self.number, *run["places"][name])
            read[name] = CODECS[run["codec"]](want.float() if run["codec"] != "f32" else want, place)
            self.missed[name] = want - read[name]
        return read

    def merge(self):
        """Goes on from the newest outer step, with what was learned since its messages left."""
        with torch.no_grad():
            for name, p in self.params.items():
                p.copy_(reference[name] + (p - self.left[name]))

    def leave(self, step):
        """Ends a round, which is so many steps of the run."""
        self.left = {name: p.detach().clone() for name, p in self.params.items()}
        for state in self.optimizer.state.values():
            state["step"].fill_(step)


def begin(what):
    global run, reference, outer, replicas, rows
    run, reference, at = what, {}, 0
    run["places"] = {}
    initial = read(run["parameters"], torch.float32).to(DTYPE)
    for t in run["tensors"]:
        length = math.prod(t["shape"])
        reference[t["name"]] = initial[at : at + length].view(t["shape"]).clone()
        run["places"][t["name"]] = t["layer"], t["number"]
        at += length
    outer = torch.optim.SGD(reference.values(), lr=run["outer_lr"], momentum=run["outer_momentum"], nesterov=run["outer_momentum"] > 0)
    replicas = [Replica(r) for r in range(run["replicas"])]
    rows = read(run["tokens"], torch.int32).long().view(-1, run["context"] + 1)


def train(round):
    """Inner steps of all replicas, the outer step of the round before after some of them, and what the next one is made of."""
    global rows
    if any(p.grad is not None for p in reference.values()):
        outer.step()
    losses, mean = [], {name: torch.zeros_like(p).view(-1) for name, p in reference.items()}
    for replica, steps, size, weight in zip(replicas, round["steps"], round["rows"], round["weights"]):
        for i in range(steps):
            if i == round["delay"] and replica.left:
                replica.merge()
            losses.append(replica.step(round["from"] + 1 + i, rows[:size]))
            rows = rows[size:]
        if steps <= round["delay"] and replica.left:  # a round that was closed early
            replica.merge()
        if weight > 0:
            for name, read in replica.message(round["from"]).items():
                mean[name] += weight * read
        replica.leave(round["to"])
    for name, p in reference.items():
        p.grad = mean[name].view_as(p)
    return losses


def answer(request):
    if request.get("run"):
        begin(request["run"])
        return {}
    return {"losses": train(request["round"])}


serve(answer)
