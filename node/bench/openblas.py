"""OpenBLAS as a peer: one JSON request a line, one JSON answer a line.

Request {"m","n","k","trans_a","trans_b","accumulate","threads","calls","round_time"}: row-major C = A*B (+ C).
Answer {"seconds"} of the fastest batch of calls in round_time seconds.
"""
import sys; sys.path[:] = filter(None, sys.path)  # this folder's files are none of Python's
import ctypes, ctypes.util, json, random, time

def load(path):
    names = [path] if path else ["libopenblas.so.0", ctypes.util.find_library("openblas")]
    for name in names:
        try:
            lib = ctypes.CDLL(name) if name else None
        except OSError:
            continue
        if lib is not None:
            return lib
    sys.exit("no OpenBLAS among " + ", ".join(str(n) for n in names))

lib = load(json.loads(sys.argv[1]))
for text in ("openblas_get_config", "openblas_get_corename"):
    getattr(lib, text).restype = ctypes.c_char_p
config = lib.openblas_get_config().decode().split()
print(json.dumps({"name": " ".join(config[:2]), "kernel": lib.openblas_get_corename().decode()}), flush=True)

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
    lib.openblas_set_num_threads(r["threads"])
    one, beta = ctypes.c_float(1), ctypes.c_float(1 if r["accumulate"] else 0)

    def run(calls):
        begin = time.perf_counter()
        for _ in range(calls):
            lib.cblas_sgemm(ROW_MAJOR, TRANSPOSED if ta else PLAIN, TRANSPOSED if tb else PLAIN, m, n, k,
                            one, a, m if ta else k, b, k if tb else n, beta, c, n)
        return time.perf_counter() - begin

    fastest, begin = float("inf"), time.perf_counter()
    while time.perf_counter() - begin < r["round_time"]:
        fastest = min(fastest, run(r["calls"]))
    print(json.dumps({"seconds": fastest}), flush=True)
