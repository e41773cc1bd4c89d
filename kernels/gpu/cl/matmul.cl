// out[M,N] (+)= A*B + bias[N]: a work-group (column, row) computes a tile. Compiled once for
// each R, after tile.cl.

INLINE void NAME(matmul)(local float *panels, global void *out, ulong outAt, int outType, NAME(matrix) a, NAME(matrix) b,
                         global const float *bias, int accumulate)
{
  const int row = get_group_id(1) * TILE, column = get_group_id(0) * TILE;
  const int x = get_local_id(0), y = get_local_id(1);
  float sums[R][R];
  NAME(rows_product)(sums, panels, a, row, b, column);
  UNROLL for (int i = 0; i < R; i++) {
    const int m = row + SPREAD(i, y);
    UNROLL for (int j = 0; j < R; j++) {
      const int n = column + SPREAD(j, x);
      if (m >= a.rows || n >= b.rows)
        continue;
      const ulong place = outAt + (ulong)m * b.rows + n;
      float sum = sums[i][j];
      if (bias)
        sum += bias[n];
      if (accumulate)
        sum += get(out, place, outType);
      put(out, place, outType, sum);
    }
  }
}

// A is [M,K], or [K,M] where transA is set; B is [K,N], or [N,K]. The kernels differ in what
// the compiler knows of them.
#define MATMUL(form, type, transA, transB)                                                                        \
  KERNEL2 void NAME(form)(BUFFER(void, out), const int outType, BUFFER(const void, a), BUFFER(const void, b),      \
                          BUFFER(const float, bias), const int M, const int N, const int K, const int accumulate) \
  {                                                                                                               \
    local float panels[2 * PANEL] __attribute__((aligned(16)));                                                   \
    const NAME(matrix) left = {a, aAt, type, M, K, transA ? 1 : K, transA ? M : 1};                               \
    const NAME(matrix) right = {b, bAt, type, N, K, transB ? K : 1, transB ? 1 : N};                              \
    AT(bias);                                                                                                     \
    NAME(matmul)(panels, out, outAt, OUT_TYPE(outType, type), left, right, bias, accumulate);                     \
  }

MATMUL(matmul_f32_nn, F32, 0, 0)
MATMUL(matmul_f32_nt, F32, 0, 1)
MATMUL(matmul_f32_tn, F32, 1, 0)
MATMUL(matmul_f32_tt, F32, 1, 1)
MATMUL(matmul_bf16_nn, BF16, 0, 0)
MATMUL(matmul_bf16_nt, BF16, 0, 1)
MATMUL(matmul_bf16_tn, BF16, 1, 0)
MATMUL(matmul_bf16_tt, BF16, 1, 1)
MATMUL(matmul_f16_nn, F16, 0, 0)
MATMUL(matmul_f16_nt, F16, 0, 1)
MATMUL(matmul_f16_tn, F16, 1, 0)
MATMUL(matmul_f16_tt, F16, 1, 1)
