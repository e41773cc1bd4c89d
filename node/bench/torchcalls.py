"""Single operations in bf16. The argument names one, {"product": [m, n, k]} or {"attention": [b, t, h, d]};
a request {"calls", "round_time"} is answered by {"seconds"} of the fastest batch of calls in round_time seconds."""


def random(*shape):
    return (torch.rand(*shape, device=device) - 0.5).to(torch.bfloat16)


def product(m, n, k):
    """A product as in the forward pass of a linear layer, whose weights are [n, k]."""
    a, b, c = random(m, k), random(n, k), random(m, n)
    return lambda: torch.mm(a, b.t(), out=c)


def attention(b, t, h, d):
    """Causal attention and its gradients."""
    want_flash()
    q, k, v = (random(b, h, t, d).requires_grad_() for _ in range(3))
    dout = random(b, h, t, d)

    def call():
        torch.autograd.grad(F.scaled_dot_product_attention(q, k, v, is_causal=True), (q, k, v), dout)

    return call


call = None
for name, make in (("product", product), ("attention", attention)):
    if cfg.get(name):
        call = make(*cfg[name])


def batch(calls):
    begin = time.perf_counter()
    for _ in range(calls):
        call()
    synchronize()
    return time.perf_counter() - begin


def answer(request):
    fastest, begin = float("inf"), time.perf_counter()
    while True:
        fastest = min(fastest, batch(request["calls"]))
        if time.perf_counter() - begin >= request["round_time"]:
            return {"seconds": fastest}


serve(answer)
