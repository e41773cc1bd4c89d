"""Single operations. The argument names one in bf16, {"product": [m, n, k]} or {"attention": [b, t, h, d]}; a
request {"calls", "round_time"} is answered by {"seconds"} of the fastest batch of calls in round_time seconds.
A request that says {"m", "n", "k", "trans_a", "trans_b", "accumulate", "dtype", "threads"} is for that product."""


def random(*shape, dtype=torch.bfloat16):
    return (torch.rand(*shape, device=device) - 0.5).to(dtype)


def product(m, n, k):
    """A product as in the forward pass of a linear layer, whose weights are [n, k]."""
    a, b, c = random(m, k), random(n, k), random(m, n)
    return lambda: torch.mm(a, b.t(), out=c)


def any_product(r):
    """C = A*B (+ C), with operands that are stored transposed or not."""
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[r["dtype"]]

    def operand(rows, cols, transposed):
        return random(cols, rows, dtype=dtype).t() if transposed else random(rows, cols, dtype=dtype)

    a, b = operand(r["m"], r["k"], r["trans_a"]), operand(r["k"], r["n"], r["trans_b"])
    c = random(r["m"], r["n"], dtype=dtype)
    if r["accumulate"]:
        return lambda: torch.addmm(c, a, b, out=c)
    return lambda: torch.mm(a, b, out=c)


def attention(b, t, h, d):
    """Causal attention and its gradients."""
    want_flash()
    q, k, v = (random(b, h, t, d).requires_grad_() for _ in range(3))
    dout = random(b, h, t, d)

    def call():
        torch.autograd.grad(F.scaled_dot_product_attention(q, k, v, is_causal=True), (q, k, v), dout)

    return call


call, made = None, None
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
    global call, made
    wanted = {k: v for k, v in request.items() if k not in ("calls", "round_time")}
    if wanted and wanted != made:
        torch.set_num_threads(wanted["threads"])
        call, made = any_product(wanted), wanted
    fastest, begin = float("inf"), time.perf_counter()
    while True:
        fastest = min(fastest, batch(request["calls"]))
        if time.perf_counter() - begin >= request["round_time"]:
            return {"seconds": fastest}


serve(answer)
