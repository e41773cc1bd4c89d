// Causal attention of one head in tiles with the softmax computed on the way (Dao et al. 2022,
// "FlashAttention", algorithm 1): no [T,T] matrix is ever in memory. Compiled once for each
// CHANNELS, the most that a head may have, after tile.cl with R = 4.
//
// A tile of probabilities is a product of rows (queries by keys), and outputs are products of
// such a tile with rows of [.,D]; both directions of the pass are made of these two.

#define WIDTH (CHANNELS / SIDE)            // channels of a work-item
#define STRETCH (CHANNELS + 4)             // of a row of channels in local memory
#define CHUNK (SIDE * 128 / CHANNELS)      // such rows that fit where 2 panels do
#define PANELS (2 * PANEL)

// D channels of one head at `rows` positions; position p is at the element at + p*stride of x.
typedef struct {
  global const void *x;
  ulong at;
  int type, rows, D;
  ulong stride;
} NAME(head);

// sums[row][column] = row of a * row of b.
INLINE void NAME(scores)(float sums[R][R], local float *panels, NAME(head) a, int aRow, NAME(head) b, int bRow)
{
  const matrix_4 left = {a.x, a.at, a.type, a.rows, a.D, a.stride, 1}, right = {b.x, b.at, b.type, b.rows, b.D, b.stride, 1};
  rows_product_4(sums, panels, left, aRow, right, bRow);
}

// sums[row][channel] += the product of the tile of weights [column][row] and the TILE rows of v
// from `from` on.
INLINE void NAME(weigh)(float sums[R][WIDTH], local const float *weights, local float *chunk, NAME(head) v, int from)
{
  const int x = get_local_id(0), y = get_local_id(1), item = y * SIDE + x;
  for (int c = 0; c < TILE; c += CHUNK) {
    barrier(CLK_LOCAL_MEM_FENCE); // weights were written, the last chunk was read
    for (int i = item; i < CHUNK * CHANNELS; i += GROUP) {
      const int k = i / CHANNELS, d = i % CHANNELS;
      const int inside = from + c + k < v.rows && d < v.D;
      chunk[k * STRETCH + d] = inside ? get(v.x, v.at + (from + c + k) * v.stride + d, v.type) : 0.0f;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int k = 0; k < CHUNK; k++) {
      float w[R], row[4];
      quad_4(w, weights + (c + k) * PITCH + y * 4);
      UNROLL for (int j = 0; j < WIDTH; j++) {
        if (j % 4 == 0)
          quad_4(row, chunk + k * STRETCH + SPREAD(j, x));
        UNROLL for (int i = 0; i < R; i++)
          sums[i][j] = mad(w[i], row[j % 4], sums[i][j]);
      }
    }
  }
}

// Puts a work-item's part of a tile into weights [column][row].
INLINE void NAME(keep)(local float *weights, float tile[R][R])
{
  const int x = get_local_id(0), y = get_local_id(1);
  UNROLL for (int j = 0; j < R; j++)
    *(local float4 *)(weights + (4 * x + j) * PITCH + 4 * y) = (float4)(tile[0][j], tile[1][j], tile[2][j], tile[3][j]);
}

INLINE void NAME(clear)(float sums[R][WIDTH])
{
  UNROLL for (int i = 0; i < R; i++)
    UNROLL for (int j = 0; j < WIDTH; j++)
      sums[i][j] = 0.0f;
}

// Writes a work-item's rows of a head from `from` on, times factor[i], or adds them.
INLINE void NAME(store)(head_out out, int from, float sums[R][WIDTH], const float factor[R], int accumulate)
{
  const int x = get_local_id(0), y = get_local_id(1);
  UNROLL for (int i = 0; i < R; i++) {
    const int row = from + 4 * y + i;
    UNROLL for (int j = 0; j < WIDTH; j++)
      put_channel(out, row, SPREAD(j, x), sums[i][j] * factor[i], accumulate);
  }
}

// The first key that each of a work-item's queries sees, and the least of the whole tile:
// queries of a tile start at `from`, query t of up to T has position past+t.
INLINE int NAME(window)(int first[R], global const int *starts, int from, int T, int past, global int *fault, int op)
{
  if (!starts) {
    UNROLL for (int i = 0; i < R; i++)
      first[i] = 0;
    return 0;
  }
  UNROLL for (int i = 0; i < R; i++)
    first[i] = starts[min(T - 1, from + 4 * (int)get_local_id(1) + i)];
  return least_start(starts, from, min(T, from + TILE), past, fault, op);
}
