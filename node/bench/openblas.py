"""OpenBLAS as a peer: one JSON request a line, one JSON answer a line.

The argument {"list": true} has it say in "found" which OpenBLAS libraries it can load, and end; {"library"} is the one to use.
Request {"m","n","k","trans_a","trans_b","accumulate","threads","calls","round_time"}: row-major C = A*B (+ C).
Answer {"seconds"} of the fastest batch of calls in round_time seconds.
"""
import sys; sys.path[:] = filter(None, sys.path)  # this folder's files are none of Python's
import ctypes, ctypes.util, glob, json, os, random, time

# Where wheels keep the library, beside or inside the package, on Linux, macOS and Windows.
FOLDERS = ("numpy.libs", "scipy.libs", "numpy/.dylibs", "scipy/.dylibs", "scipy_openblas64/lib", "scipy_openblas32/lib")


def candidates():
    """Paths and names that the loader may know, the system's first, each file once."""
    names = ["libopenblas.so.0", ctypes.util.find_library("openblas")]
    for packages in sys.path:
        for folder in FOLDERS:
            names += sorted(glob.glob(os.path.join(glob.escape(packages), folder, "*openblas*")))
    seen = []
    for name in names:
        if name and not any(name == s or os.path.exists(name) and os.path.exists(s) and os.path.samefile(name, s) for s in seen):
            seen.append(name)
    return seen[:64]


class OpenBLAS:
    """One library. Builds differ in what stands before and after the names of functions; those with
    64_ after them take integers of 64 bits."""

    def __init__(self, path):
        self.path, self.lib = path, ctypes.CDLL(path)
        self.before, self.after = next(
            (b, a) for b in ("", "scipy_") for a in ("", "64_") if hasattr(self.lib, b + "openblas_get_config" + a))
        self.int = ctypes.c_int64 if self.after else ctypes.c_int
        self.sgemm = self.function("cblas_sgemm")
        self.set_threads = self.function("openblas_set_num_threads")

    def function(self, name):
        return getattr(self.lib, self.before + name + self.after)

    def text(self, name):
        function = self.function(name)
        function.restype = ctypes.c_char_p
        return function().decode(errors="replace")

    def hello(self):
        return {"name": " ".join(self.text("openblas_get_config").split()[:2]), "kernel": self.text("openblas_get_corename")}


def found():
    for path in candidates():
        try:
            yield dict(OpenBLAS(path).hello(), path=path)
        except StopIteration:
            yield {"path": path, "error": "has no functions of OpenBLAS"}
        except (OSError, AttributeError) as e:
            if os.path.exists(path):
                yield {"path": path, "error": str(e)}


cfg = json.loads(sys.argv[1])
if cfg.get("list"):
    print(json.dumps({"name": "OpenBLAS", "found": list(found())}), flush=True)
    sys.exit()
try:
    blas = OpenBLAS(cfg["library"])
except (OSError, AttributeError, StopIteration) as e:
    print(json.dumps({"error": f"{cfg['library']} cannot be used as OpenBLAS: {e}"}), flush=True)
    sys.exit()
print(json.dumps(blas.hello()), flush=True)

block = (ctypes.c_float * 65536)(*(random.random() - 0.5 for _ in range(65536)))

def matrix(count):
    x = (ctypes.c_float * count)()
    for at in range(0, count, len(block)):
        ctypes.memmove(ctypes.byref(x, 4 * at), block, 4 * min(len(block), count - at))
    return x

matrices = {}

def operand(name, count):
    if name not in matrices or len(matrices[name]) != count:
        matrices[name] = matrix(count)
    return matrices[name]

ROW_MAJOR, PLAIN, TRANSPOSED = 101, 111, 112

for line in sys.stdin:
    r = json.loads(line)
    m, n, k, ta, tb = r["m"], r["n"], r["k"], r["trans_a"], r["trans_b"]
    a, b, c = operand("a", m * k), operand("b", n * k), operand("c", m * n)
    blas.set_threads(r["threads"])
    one, beta = ctypes.c_float(1), ctypes.c_float(1 if r["accumulate"] else 0)
    sizes = [blas.int(x) for x in (m, n, k)]
    strides = [blas.int(x) for x in (m if ta else k, k if tb else n, n)]

    def run(calls):
        begin = time.perf_counter()
        for _ in range(calls):
            blas.sgemm(ROW_MAJOR, TRANSPOSED if ta else PLAIN, TRANSPOSED if tb else PLAIN, *sizes,
                       one, a, strides[0], b, strides[1], beta, c, strides[2])
        return time.perf_counter() - begin

    fastest, begin = float("inf"), time.perf_counter()
    while time.perf_counter() - begin < r["round_time"]:
        fastest = min(fastest, run(r["calls"]))
    print(json.dumps({"seconds": fastest}), flush=True)
