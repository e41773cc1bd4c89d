"""A GPT-2 style training step in plain PyTorch as a peer. Its argument is the model as JSON;
a request {"steps"} is answered by {"seconds", "loss", "peak_bytes"} of so many steps."""
from torch import nn

V, T, L, H, C, B = (cfg[k] for k in ("vocab", "context", "blocks", "heads", "channels", "batch"))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(C), nn.LayerNorm(C)
        self.qkv, self.proj = nn.Linear(C, 3 * C), nn.Linear(C, C)
        self.up, self.down = nn.Linear(C, 4 * C), nn.Linear(4 * C, C)
        if not FLASH:
            self.register_buffer("future", torch.ones(T, T, dtype=torch.bool).triu(1))

    def attention(self, x):
        q, k, v = (y.view(B, T, H, C // H).transpose(1, 2) for y in self.qkv(x).split(C, dim=2))
        if FLASH:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = (q @ k.transpose(-2, -1)) * (C // H) ** -0.5
            y = F.softmax(scores.masked_fill(self.future, float("-inf")), dim=-1) @ v
        return self.proj(y.transpose(1, 2).reshape(B, T, C))

    def forward(self, x):
        x = x + self.attention(self.ln1(x))
        return x + self.down(F.gelu(self.up(self.ln2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(V, C), nn.Embedding(T, C)
        self.blocks, self.lnf = nn.ModuleList(Block() for _ in range(L)), nn.LayerNorm(C)
        self.head = nn.Linear(C, V, bias=False)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)
        self.head.weight = self.wte.weight

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe.weight
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.lnf(x)).view(-1, V), targets.view(-1))


model = GPT().to(device)
forward = model
if cfg.get("compile"):
    if not hasattr(torch, "compile"):
        refuse("has no torch.compile: version 2.0 or newer has")
    try:
        forward = torch.compile(model)
    except RuntimeError as e:  # a Python that is newer than this version
        refuse("cannot compile: " + said(e))
decayed = [p for p in model.parameters() if p.dim() > 1]
others = [p for p in model.parameters() if p.dim() < 2]
groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
settings = dict(lr=1e-4, betas=(0.9, 0.95), eps=1e-8)
try:  # newer versions have the fused update for CPUs
    optimizer = torch.optim.AdamW(groups, fused=True, **settings)
except (TypeError, RuntimeError):
    optimizer = torch.optim.AdamW(groups, **settings)


def step():
    tokens = torch.randint(0, V, (B, T + 1), device=device)
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast(device.type, torch.bfloat16, enabled=cfg.get("dtype") == "bf16"):
        loss = forward(tokens[:, :-1], tokens[:, 1:].contiguous())
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.detach()


def answer(request):
    begin = time.perf_counter()
    for _ in range(request["steps"]):
        loss = step()
    loss = loss.item()  # waits for a card
    return {"seconds": time.perf_counter() - begin, "loss": loss, "peak_bytes": peak_bytes()}


serve(answer)
