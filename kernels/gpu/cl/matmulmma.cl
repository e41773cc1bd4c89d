// out[M,N] (+)= A*B + bias[N] of matrices of halves on matrix units, with sums in f32. A work-group
// of 8 warps computes 128 x 128 products: warp w has the rows from 64*(w/4) on and the columns
// from 32*(w%4) on. Compiled after mma.cl, for SIDE 16.
//
// While the warps multiply one step of the depth, the next one is on its way to local memory.
// There a panel of 128 rows (of A, or columns of B) is as in the matrix: with the depths of a row
// together (along) or with the rows of a depth together (across). Rows of a panel are a little
// longer than needed, so that eight neighbours lie in different banks.

#define PANEL_ROWS 128
#define STEP 32
#define ALONG_PITCH (STEP + 8)
#define ACROSS_PITCH (PANEL_ROWS + 8)
#define PANEL_SIZE (PANEL_ROWS * ALONG_PITCH) // the larger of both

// A matrix whose panels are read: element (r, d) of [rows,depth] is at r*depth + d, or at
// d*rows + r where `across` is set. `aligned` says that eight neighbours lie in 16 aligned bytes.
typedef struct {
  global const ushort *x;
  int rows, depth, across, aligned;
} half_matrix;

INLINE half_matrix new_half_matrix(global const void *x, ulong at, int rows, int depth, int across)
{
  global const ushort *first = (global const ushort *)x + at;
  const int pitch = across ? rows : depth;
  const half_matrix m = {first, rows, depth, across, pitch % 8 == 0 && (ulong)first % 16 == 0};
  return m;
}

// Starts to load the panel of the rows from `row` on at the depths from `from` on, zeros outside.
INLINE void load_panel(local ushort *panel, half_matrix m, int row, int from)
{
  UNROLL for (int k = 0; k < PANEL_ROWS * STEP / 8 / GROUP; k++) {
    const int piece = item_number() + k * GROUP;
    const int r = m.across ? piece % (PANEL_ROWS / 8) * 8 : piece / (STEP / 8);
    const int d = m.across ? piece / (PANEL_ROWS / 8) : piece % (STEP / 8) * 8;
    local ushort *to = panel + (m.across ? d * ACROSS_PITCH + r : r * ALONG_PITCH + d);
    const int inside = row + r < m.rows && from + d < m.depth;
    const ulong place = m.across ? (ulong)(from + d) * m.rows + row + r : (ulong)(row + r) * m.depth + from + d;
    if (m.aligned) {
      start_copy(to, inside ? m.x + place : m.x, !inside);
      continue;
    }
    for (int i = 0; i < 8; i++) {
      const int there = inside && (m.across ? row + r + i < m.rows : from + d + i < m.depth);
      to[i] = there ? m.x[place + i] : 0;
    }
  }
}

// The element of a panel where an item's row of four 8x8 matrices starts, which lie at the
// blocks (rowBlock, depthBlock) behind (row, d).
INLINE int matrix_start(int across, int row, int d, int rowBlock, int depthBlock)
{
  const int k = item_number() % 8;
  return across ? (d + 8 * depthBlock + k) * ACROSS_PITCH + row + 8 * rowBlock
                : (row + 8 * rowBlock + k) * ALONG_PITCH + d + 8 * depthBlock;
}

// sums += the products of a warp for one step.
INLINE void multiply_panels(float sums[4][4][4], local const ushort *a, int aAcross, local const ushort *b, int bAcross,
                            const int type, local uint *exchange)
{
  const int warp = item_number() / WARP, block = item_number() % WARP / 8;
  UNROLL for (int d = 0; d < STEP; d += 16) {
    uint left[4][4], right[2][4];
    UNROLL for (int i = 0; i < 4; i++)
      load_matrices(left[i], a, matrix_start(aAcross, warp / 4 * 64 + i * 16, d, block % 2, block / 2), aAcross, exchange);
    UNROLL for (int j = 0; j < 2; j++)
      load_matrices(right[j], b, matrix_start(bAcross, warp % 4 * 32 + j * 16, d, block / 2, block % 2), bAcross, exchange);
    UNROLL for (int i = 0; i < 4; i++)
      UNROLL for (int j = 0; j < 4; j++)
        multiply_add(sums[i][j], left[i], right[j / 2] + j % 2 * 2, type, exchange);
  }
}

// The products of the rows of a from `row` on and those of b from `column` on over all depths.
INLINE void sum_products(float sums[4][4][4], local ushort *panels, half_matrix a, int row, half_matrix b, int column,
                         const int type, local uint *exchange)
{
  UNROLL for (int i = 0; i < 4; i++)
    UNROLL for (int j = 0; j < 4; j++)
      UNROLL for (int q = 0; q < 4; q++)
        sums[i][j][q] = 0.0f;
  load_panel(panels, a, row, 0);
  load_panel(panels + PANEL_SIZE, b, column, 0);
  close_copies();
  for (int d = 0; d < a.depth; d += STEP) {
    local ushort *now = panels + d / STEP % 2 * 2 * PANEL_SIZE, *next = panels + (d / STEP + 1) % 2 * 2 * PANEL_SIZE;
    if (d + STEP < a.depth) {
      load_panel(next, a, row, d + STEP);
      load_panel(next + PANEL_SIZE, b, column, d + STEP);
    }
    close_copies(); // of none at the end, so that the last but one is what is waited for
    wait_copies();
    barrier(CLK_LOCAL_MEM_FENCE);
    multiply_panels(sums, now, a.across, now + PANEL_SIZE, b.across, type, exchange);
    barrier(CLK_LOCAL_MEM_FENCE); // the panels were read
  }
}

INLINE void store_sums(float sums[4][4][4], global void *out, ulong outAt, int outType, int row, int column, int M, int N,
                       global const float *bias, int accumulate)
{
  const int warp = item_number() / WARP, lane = item_number() % WARP;
  UNROLL for (int i = 0; i < 4; i++)
    UNROLL for (int j = 0; j < 4; j++)
      UNROLL for (int q = 0; q < 4; q++) {
        const int m = row + warp / 4 * 64 + i * 16 + lane / 4 + q / 2 * 8;
        const int n = column + warp % 4 * 32 + j * 8 + lane % 4 * 2 + q % 2;
        if (m >= M || n >= N)
          continue;
        const ulong place = outAt + (ulong)m * N + n;
        float sum = sums[i][j][q];
        if (bias)
          sum += bias[n];
        if (accumulate)
          sum += get(out, place, outType);
        put(out, place, outType, sum);
      }
}

#define MATMUL_MMA(form, type, transA, transB)                                                                   \
  KERNEL2 void form(BUFFER(void, out), const int outType, BUFFER(const void, a), BUFFER(const void, b),          \
                    BUFFER(const float, bias), const int M, const int N, const int K, const int accumulate)      \
  {                                                                                                              \
    local ushort panels[4 * PANEL_SIZE] __attribute__((aligned(16)));                                            \
    local uint exchange[EXCHANGE];                                                                               \
    AT(bias);                                                                                                    \
    const int row = get_group_id(1) * PANEL_ROWS, column = get_group_id(0) * PANEL_ROWS;                         \
    float sums[4][4][4];                                                                                         \
    sum_products(sums, panels, new_half_matrix(a, aAt, M, K, transA), row, new_half_matrix(b, bAt, N, K, !transB), \
                 column, type, exchange);                                                                        \
    store_sums(sums, out, outAt, OUT_TYPE(outType, type), row, column, M, N, bias, accumulate);                  \
  }

MATMUL_MMA(matmul_mma_f16_nn, F16, 0, 0)
MATMUL_MMA(matmul_mma_f16_nt, F16, 0, 1)
MATMUL_MMA(matmul_mma_f16_tn, F16, 1, 0)
MATMUL_MMA(matmul_mma_f16_tt, F16, 1, 1)
#ifndef TURING
MATMUL_MMA(matmul_mma_bf16_nn, BF16, 0, 0)
MATMUL_MMA(matmul_mma_bf16_nt, BF16, 0, 1)
MATMUL_MMA(matmul_mma_bf16_tn, BF16, 1, 0)
MATMUL_MMA(matmul_mma_bf16_tt, BF16, 1, 1)
#endif
