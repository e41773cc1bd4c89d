"""Hugging Face transformers' GPT-2 as a peer that generates text. Its argument is the task as JSON; a request {"texts", "seed"} asks for
so many batches of texts, and is answered by {"seconds", "prompt_seconds", "tokens", "peak_bytes"}: what their tokens but the first took,
what the first ones took, and the first text."""
os.environ["HF_HUB_OFFLINE"] = "1"
import inspect

try:
    import transformers
    from transformers import GPT2LMHeadModel, StaticCache
except ImportError as e:
    refuse("comes without transformers (PyPI: pip install transformers): " + said(e))
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

B, P, N = (cfg[k] for k in ("batch", "prompt", "tokens"))
model = GPT2LMHeadModel.from_pretrained(cfg["folder"]).to(torch.bfloat16 if cfg["dtype"] == "bf16" else torch.float32).eval()
V = model.config.vocab_size
known = inspect.signature(model.forward).parameters
CACHE = "cache" if "cache" in known else "past_key_values"  # its name since version 5
LAST = {"logits_to_keep": 1} if "logits_to_keep" in known else {}
step, static = model, None
if cfg.get("compile"):
    try:
        static = StaticCache(config=model.config, max_cache_len=P + N)
        step = torch.compile(model.forward, fullgraph=True, dynamic=False)
    except (TypeError, RuntimeError, AttributeError) as e:  # an older version
        refuse("cannot compile: " + said(e))


def prompts(seed):
    b, i = torch.arange(B)[:, None], torch.arange(P)
    return (7919 * seed + 104729 * b + 17 * i + 31 * i * i) % V


def run(seed):
    """Generates a batch of texts by what is likeliest, as generate() does, without its work between two tokens."""
    begin = time.perf_counter()
    if static is not None:
        static.reset()
    out = model(prompts(seed), use_cache=True, **{CACHE: static}, **LAST)
    cache = out[CACHE] if static is None else static
    token = out.logits[:, -1].argmax(-1, keepdim=True)
    text = [token[0].item()]
    begun = time.perf_counter()
    for _ in range(N - 1):
        out = step(token, use_cache=True, **{CACHE: cache})
        token = out.logits[:, -1].argmax(-1, keepdim=True)
        text.append(token[0].item())
    return time.perf_counter() - begun, begun - begin, text


def answer(request):
    with torch.no_grad():
        took = [run(request["seed"] + n) for n in range(request["texts"])]
    return {
        "seconds": sum(t[0] for t in took), "prompt_seconds": sum(t[1] for t in took), "tokens": took[0][2],
        "peak_bytes": peak_bytes(),
    }


serve(answer, f"transformers {transformers.__version__}", ["PyTorch " + torch.__version__])
