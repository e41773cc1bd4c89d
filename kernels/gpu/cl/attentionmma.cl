// Attention of operands in halves on matrix units (Dao 2023, "FlashAttention-2", section 3.3).
// Compiled once for each HALF, the type of those, and CHANNELS, the most that a head may have, after
// mma.cl and attentionrows.cl.
//
// A work-group of 8 warps has ROWS rows of one head, queries or keys: each warp 16 of them, which
// it keeps in registers as factors of products. It goes over the positions on the other side in
// steps. Of these positions two operands are in local memory, keys and values or queries and
// gradients; while the warps work on one step, the next one is on its way.

#define ROWS (GROUP / WARP * 16)
#define SLICES (CHANNELS / 16)      // depths of products, 16 channels each
#define POSITIONS (4096 / CHANNELS) // of a step, a multiple of 16
#define ROW_PITCH (CHANNELS + 8)    // of a position in local memory: eight neighbours lie in different banks
#define STEP_SIZE (POSITIONS * ROW_PITCH)
#define STEPS_SIZE (4 * STEP_SIZE)  // two operands of two steps, or one operand of ROWS positions

// D channels of one head at `rows` positions; position p is at x + p*stride. `aligned` says that
// eight neighbours lie in 16 aligned bytes.
typedef struct {
  global const ushort *x;
  int rows, D, stride, aligned;
} NAME(half_head);

INLINE NAME(half_head) NAME(new_half_head)(global const void *x, ulong at, int rows, int D, int stride)
{
  global const ushort *first = (global const ushort *)x + at;
  const NAME(half_head) h = {first, rows, D, stride, D % 8 == 0 && stride % 8 == 0 && (ulong)first % 16 == 0};
  return h;
}

// Starts to load `count` positions from `from` on, zeros outside.
INLINE void NAME(load_positions)(local ushort *tile, NAME(half_head) h, int from, int count)
{
  const int item = anew(item_number()), d = item % (CHANNELS / 8) * 8;
  ONE_BY_ONE for (int r = item / (CHANNELS / 8); r < count; r += GROUP / (CHANNELS / 8)) {
    const int inside = from + r < h.rows && d < h.D;
    local ushort *to = tile + r * ROW_PITCH + d;
    global const ushort *x = h.x + (inside ? (ulong)(from + r) * h.stride + d : 0);
    if (h.aligned) {
      start_copy(to, x, !inside);
      continue;
    }
    ONE_BY_ONE for (int i = 0; i < 8; i++)
      to[i] = inside && d + i < h.D ? x[i] : 0;
  }
}

// Starts to load both operands of a step whose first position is `from`.
INLINE void NAME(load_step)(local ushort *tiles, int step, NAME(half_head) a, NAME(half_head) b, int from)
{
  local ushort *tile = tiles + step % 2 * 2 * STEP_SIZE;
  NAME(load_positions)(tile, a, from, POSITIONS);
  NAME(load_positions)(tile + STEP_SIZE, b, from, POSITIONS);
}

// Starts to load the next step, if there are positions up to `end`, and waits for this one, which
// starts at `from`: its operands are STEP_SIZE apart.
INLINE local const ushort *NAME(next_step)(local ushort *tiles, int step, NAME(half_head) a, NAME(half_head) b, int from, int end)
{
  if (from + POSITIONS < end)
    NAME(load_step)(tiles, step + 1, a, b, from + POSITIONS);
  close_copies(); // of none at the end, so that the last but one is what is waited for
  wait_copies();
  barrier(CLK_LOCAL_MEM_FENCE);
  return tiles + step % 2 * 2 * STEP_SIZE;
}

// Where an item's row of four 8x8 matrices starts, which lie at the blocks (positionBlock,
// channelBlock) behind (position, channel).
INLINE int NAME(block_start)(int position, int channel, int positionBlock, int channelBlock)
{
  return (position + 8 * positionBlock + item_number() % 8) * ROW_PITCH + channel + 8 * channelBlock;
}

// Loads a warp's rows of the ROWS from `from` on as factors.
INLINE void NAME(take_rows)(uint rows[SLICES][4], local ushort *tiles, NAME(half_head) h, int from, local uint *exchange)
{
  const int warp = item_number() / WARP, block = item_number() % WARP / 8;
  NAME(load_positions)(tiles, h, from, ROWS);
  close_copies();
  close_copies(); // of none, see wait_copies
  wait_copies();
  barrier(CLK_LOCAL_MEM_FENCE);
  UNROLL for (int s = 0; s < SLICES; s++)
    load_matrices(rows[s], tiles, NAME(block_start)(warp * 16, s * 16, block % 2, block / 2), 0, exchange);
  barrier(CLK_LOCAL_MEM_FENCE); // the rows were read
}

// products = rows * the 16 positions of the tile from `position` on.
INLINE void NAME(row_products)(float products[2][4], const uint rows[SLICES][4], local const ushort *tile, int position,
                               local uint *exchange)
{
  const int block = item_number() % WARP / 8;
  UNROLL for (int j = 0; j < 2; j++)
    UNROLL for (int q = 0; q < 4; q++)
      products[j][q] = 0.0f;
  UNROLL for (int s = 0; s < SLICES; s++) {
    uint right[4];
    load_matrices(right, tile, NAME(block_start)(position, s * 16, block / 2, block % 2), 0, exchange);
    multiply_add(products[0], rows[s], right, HALF, exchange);
    multiply_add(products[1], rows[s], right + 2, HALF, exchange);
  }
}

// sums[16,CHANNELS] += weights[16,16], as products, * the 16 positions of the tile from
// `position` on. Probabilities are not wild, gradients of scores are.
INLINE void NAME(weigh_positions)(float sums[2 * SLICES][4], float weights[2][4], const int wild, local const ushort *tile, int position,
                                  local uint *exchange)
{
  const int block = item_number() % WARP / 8;
  uint left[4];
  to_factor(left, weights, HALF, wild);
  UNROLL for (int s = 0; s < SLICES; s++) {
    uint right[4];
    load_matrices(right, tile, NAME(block_start)(position, s * 16, block % 2, block / 2), 1, exchange);
    multiply_add(sums[2 * s], left, right, HALF, exchange);
    multiply_add(sums[2 * s + 1], left, right + 2, HALF, exchange);
  }
}

// Where a work-item's part q of products is: the row among ROWS, the column among 8.
INLINE int NAME(row_of)(int q) { return item_number() / WARP * 16 + item_number() % WARP / 4 + q / 2 * 8; }
INLINE int NAME(column_of)(int q) { return item_number() % 4 * 2 + q % 2; }

INLINE void NAME(clear_sums)(float sums[2 * SLICES][4])
{
  UNROLL for (int n = 0; n < 2 * SLICES; n++)
    UNROLL for (int q = 0; q < 4; q++)
      sums[n][q] = 0.0f;
}

// Writes a warp's rows of the ROWS from `from` on, times the factor of their half, or adds them.
INLINE void NAME(store_rows)(head_out out, int from, float sums[2 * SLICES][4], const float factor[2], int accumulate)
{
  UNROLL for (int n = 0; n < 2 * SLICES; n++)
    UNROLL for (int q = 0; q < 4; q++)
      put_channel(out, from + NAME(row_of)(q), 8 * n + NAME(column_of)(q), sums[n][q] * factor[q / 2], accumulate);
}

// The first key that each of a work-item's two queries sees, and the least of all ROWS from
// `from` on: like window.
INLINE int NAME(rows_window)(int first[2], global const int *starts, int from, int T, int past, global int *fault, int op)
{
  UNROLL for (int h = 0; h < 2; h++)
    first[h] = starts ? starts[min(T - 1, from + NAME(row_of)(2 * h))] : 0;
  return starts ? least_start(starts, from, min(T, from + ROWS), past, fault, op) : 0;
}
