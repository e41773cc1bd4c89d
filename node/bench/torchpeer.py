"""What comes before the scripts of peers in PyTorch. Their argument is JSON; its device is PyTorch's
name of one, the processor where there is none."""
import sys; sys.path[:] = filter(None, sys.path)  # this folder's files are none of Python's
import glob, json, math, os, re, time

try:
    import resource
except ImportError:  # Windows has none
    resource = None

cfg = json.loads(sys.argv[1])
if cfg.get("threads"):
    os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = str(cfg["threads"])

import torch
from torch.nn import functional as F

device = torch.device(cfg.get("device") or "cpu")
cuda = device.type == "cuda"
FLASH = hasattr(F, "scaled_dot_product_attention")


def refuse(why):
    """Says in place of an introduction why there is no such peer."""
    print(json.dumps({"error": f"PyTorch {torch.__version__} {why}"}), flush=True)
    sys.exit()


def said(e):
    """One line of an exception: PyTorch's compiler says what is missing in the second or third."""
    return " ".join((str(e) or repr(e)).split())[:500]


def want_flash():
    if not FLASH:
        refuse("has no flash attention: version 2.0 or newer has")


if cuda and not torch.cuda.is_available():
    refuse("finds no card: it was built without CUDA, or for another driver")
if cuda and device.index >= torch.cuda.device_count():
    refuse(f"finds {torch.cuda.device_count()} cards, and is asked for number {device.index}")
if cuda:
    want_flash()
    torch.cuda.set_device(device)
    for other in ("math", "mem_efficient", "cudnn"):  # where flash attention cannot, it is an error
        getattr(torch.backends.cuda, f"enable_{other}_sdp", lambda _: None)(False)
if cfg.get("threads"):
    torch.set_num_threads(cfg["threads"])
torch.manual_seed(1)


def libraries_inside():
    """The libraries of products that this PyTorch was built with, and their versions."""
    built = " ".join(torch.__config__.show().split())
    found = (re.search(pattern, built) for pattern in (r"(Math Kernel Library) Version ([\w.]+)", r"(MKL-DNN) v([\w.]+)"))
    names = {"Math Kernel Library": "MKL", "MKL-DNN": "oneDNN"}
    return [f"{names[f[1]]} {f[2]}" for f in found if f]


def kernel():
    if cuda:
        return torch.cuda.get_device_name(device)
    return getattr(getattr(torch.backends, "cpu", None), "get_cpu_capability", lambda: "")()


def libraries():
    """Folders with the cuBLASLt that PyTorch uses, where that is not the system's."""
    around = [os.path.join(os.path.dirname(torch.__file__), "lib")]
    for packages in sys.path:
        around += sorted(glob.glob(os.path.join(packages, "nvidia", "*", "lib")))
    return [at for at in around if cuda and glob.glob(os.path.join(at, "libcublasLt.so.*"))][:4]


def synchronize():
    if cuda:
        torch.cuda.synchronize(device)


def peak_bytes():
    """The most memory ever, 0 where that is not known."""
    if cuda:
        return torch.cuda.max_memory_allocated(device)
    if resource is None:
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def serve(answer, name="PyTorch " + torch.__version__, by=()):
    """Introduces the peer, which computes by further libraries, and answers a request a line, until there are none."""
    hello = {"name": name, "kernel": kernel(), "with": [*by, *libraries_inside()], "libraries": libraries()}
    print(json.dumps(hello), flush=True)
    for line in sys.stdin:
        try:
            reply = answer(json.loads(line))
        except Exception as e:  # memory that is too small, a compiler that is missing
            reply = {"error": said(e)}
        print(json.dumps(reply), flush=True)
