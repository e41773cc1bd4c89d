// out[M,N] (+)= A*B + bias[N] of matrices of halves on matrix units that are not NVIDIA's, with sums in
// f32. A work-group computes 128 x 128 products; its warps divide them into parts of
// WARP_ROWS x WARP_COLUMNS. Compiled after unitpanel.cl and a file that says what the units do:
//
//   WARP, LANE, WARP_NUMBER      items that work together; an item's number among them, theirs
//   UNIT_ROWS, UNIT_COLUMNS      what one instruction computes
//   UNIT_ROW(q), UNIT_COLUMN     where part q of an item's UNIT_PARTS is in that
//   unit_left, unit_right, unit_sums        an item's parts of the three matrices
//   load_left, load_right, unit_multiply_add, EXCHANGE
//   ACROSS                       how many times UNIT_COLUMNS a warp's part of the tile is wide
//   AHEAD                        whether there are registers to bring the next panels in meanwhile

#define DOWN 4
#define WARP_ROWS (DOWN * UNIT_ROWS)
#define WARP_COLUMNS (ACROSS * UNIT_COLUMNS)
#define WARPS_ACROSS (PANEL_ROWS / WARP_COLUMNS)

// Where a warp's part of the tile starts.
INLINE int warp_row(void) { return WARP_NUMBER / WARPS_ACROSS * WARP_ROWS; }
INLINE int warp_column(void) { return WARP_NUMBER % WARPS_ACROSS * WARP_COLUMNS; }

// sums += the products of a warp for one step.
INLINE void multiply_panels(unit_sums sums[DOWN][ACROSS], local const ushort *a, local const ushort *b, const int type,
                            local ushort *exchange)
{
  REPEAT(2, k, // of STEP / 16
    const int d = 16 * k;
    unit_right right[ACROSS];
    REPEAT(ACROSS, j, right[j] = load_right(b, warp_column() + j * UNIT_COLUMNS, d);)
    REPEAT(DOWN, i,
      const unit_left left = load_left(a, warp_row() + i * UNIT_ROWS, d);
      REPEAT(ACROSS, j, sums[i][j] = unit_multiply_add(sums[i][j], left, right[j], type, exchange);)
    )
  )
}

// The products of the rows of a from `row` on and those of b from `column` on over all depths. Behind
// the last depth there are zeros to take.
INLINE void sum_products(unit_sums sums[DOWN][ACROSS], local ushort *panels, unit_matrix a, int row, unit_matrix b, int column,
                         const int type, local ushort *exchange)
{
  uint4 left[2], right[2];
  REPEAT(DOWN, i, REPEAT(ACROSS, j, sums[i][j] = 0.0f;))
  if (AHEAD) {
    take_pieces(left, a, row, 0);
    take_pieces(right, b, column, 0);
  }
  for (int d = 0; d < a.depth; d += STEP) {
    barrier(CLK_LOCAL_MEM_FENCE); // the last panels were read
    if (!AHEAD)
      take_pieces(left, a, row, d);
    put_pieces(panels, left, a.across);
    if (!AHEAD)
      take_pieces(right, b, column, d);
    put_pieces(panels + PANEL_SIZE, right, b.across);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (AHEAD) {
      take_pieces(left, a, row, d + STEP);
      take_pieces(right, b, column, d + STEP);
    }
    multiply_panels(sums, panels, panels + PANEL_SIZE, type, exchange);
  }
}

// Where results go.
typedef struct {
  global void *x;
  ulong at;
  int type, rows, columns, accumulate;
  global const float *bias;
} unit_out;

INLINE void store_sum(unit_out out, int m, int n, float sum)
{
  if (m >= out.rows || n >= out.columns)
    return;
  const ulong place = out.at + (ulong)m * out.columns + n;
  if (out.bias)
    sum += out.bias[n];
  if (out.accumulate)
    sum += get(out.x, place, out.type);
  put(out.x, place, out.type, sum);
}

INLINE void store_sums(unit_sums sums[DOWN][ACROSS], unit_out out, int row, int column)
{
  const int m = row + warp_row(), n = column + warp_column() + UNIT_COLUMN;
  REPEAT(DOWN, i, REPEAT(ACROSS, j, REPEAT(UNIT_PARTS, q,
    store_sum(out, m + i * UNIT_ROWS + UNIT_ROW(q), n + j * UNIT_COLUMNS, sums[i][j][q]);
  )))
}

#define MATMUL_UNIT(form, type, transA, transB)                                                                  \
  UNIT_KERNEL void form(BUFFER(void, out), const int outType, BUFFER(const void, a), BUFFER(const void, b),      \
                        BUFFER(const float, bias), const int M, const int N, const int K, const int accumulate)  \
  {                                                                                                              \
    local ushort panels[2 * PANEL_SIZE] __attribute__((aligned(16)));                                            \
    local ushort exchange[EXCHANGE];                                                                             \
    AT(bias);                                                                                                    \
    const int row = get_group_id(1) * PANEL_ROWS, column = get_group_id(0) * PANEL_ROWS;                         \
    unit_sums sums[DOWN][ACROSS];                                                                                \
    sum_products(sums, panels, new_unit_matrix(a, aAt, M, K, transA), row, new_unit_matrix(b, bAt, N, K, !transB), \
                 column, type, exchange);                                                                        \
    const unit_out to = {out, outAt, OUT_TYPE(outType, type), M, N, accumulate, bias};                           \
    store_sums(sums, to, row, column);                                                                           \
  }

#ifdef UNIT_BF16
MATMUL_UNIT(matmul_unit_bf16_nn, BF16, 0, 0)
MATMUL_UNIT(matmul_unit_bf16_nt, BF16, 0, 1)
MATMUL_UNIT(matmul_unit_bf16_tn, BF16, 1, 0)
MATMUL_UNIT(matmul_unit_bf16_tt, BF16, 1, 1)
#endif
#ifdef UNIT_F16
MATMUL_UNIT(matmul_unit_f16_nn, F16, 0, 0)
MATMUL_UNIT(matmul_unit_f16_nt, F16, 0, 1)
MATMUL_UNIT(matmul_unit_f16_tn, F16, 1, 0)
MATMUL_UNIT(matmul_unit_f16_tt, F16, 1, 1)
#endif
