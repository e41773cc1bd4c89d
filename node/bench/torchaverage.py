"""Sums of gradients over Gloo as a peer, in the buckets of PyTorch's DistributedDataParallel: a first one of 1 MiB, others of
25 MiB. Its argument is the peer as JSON; a request {"prepare"} makes a gradient where that is true, and else adds it up with
the others', which is answered when the sum is there."""
import torch.distributed as dist
from datetime import timedelta

N, RANK, SIZE = cfg["elements"], cfg["rank"], cfg["size"]
joined, buckets = False, []


def prepare():
    global joined, buckets
    if not joined:
        dist.init_process_group("gloo", init_method=f"tcp://{cfg['address']}:29500", rank=RANK, world_size=SIZE, timeout=timedelta(minutes=10))
        joined = True
    whole, at, size = torch.randn(N), 0, (1 << 20) // 4
    whole[0] = RANK + 1
    buckets = []
    while at < N:
        buckets.append(whole[at:at + size])
        at, size = at + size, (25 << 20) // 4


def answer(request):
    begin = time.perf_counter()
    if request["prepare"]:
        prepare()
        return {"seconds": time.perf_counter() - begin}
    for work in [dist.all_reduce(b, async_op=True) for b in buckets]:
        work.wait()
    took = time.perf_counter() - begin
    if buckets[0][0].item() != SIZE * (SIZE + 1) / 2:
        return {"error": "the sum is wrong"}
    return {"seconds": took}


serve(answer)
