// The square tile of products that a work-group computes: TILE = SIDE*R rows and columns,
// R*R sums in each work-item. This file is compiled once for each R, a multiple of 4.
//
// A work-item (x, y) has the rows 4*y..4*y+3, 4*SIDE+4*y.. and so on, and the columns
// likewise by x: it reads four neighbours at once, and neighbours in the group read neighbours.

#define TILE (SIDE * R)
#define DEPTH 16          // of what is in local memory at a time
#define PITCH (TILE + 4)  // of a row of local memory: rows start in different banks
#define PANEL (DEPTH * PITCH)

// Where the i-th of a work-item's R rows or columns is in the tile.
#define SPREAD(i, id) ((i) / 4 * 4 * SIDE + (id) * 4 + (i) % 4)

// A matrix of which tiles are read: element (r, d) of [rows,depth] is at
// at + r*rowStride + d*depthStride of x.
typedef struct {
  global const void *x;
  ulong at;
  int type, rows, depth;
  ulong rowStride, depthStride;
} NAME(matrix);

// panel[DEPTH][PITCH] = the TILE rows from `row` on at the depths from `from` on, transposed,
// zeros outside. Neighbours of the group read what lies together.
INLINE void NAME(load)(local float *panel, NAME(matrix) m, int row, int from)
{
  const int item = get_local_id(1) * SIDE + get_local_id(0);
  for (int i = item; i < TILE * DEPTH; i += GROUP) {
    const int r = m.rowStride == 1 ? i % TILE : i / DEPTH;
    const int d = m.rowStride == 1 ? i / TILE : i % DEPTH;
    const int inside = row + r < m.rows && from + d < m.depth;
    panel[d * PITCH + r] = inside ? get(m.x, m.at + (row + r) * m.rowStride + (from + d) * m.depthStride, m.type) : 0.0f;
  }
}

// to[0..3] = four neighbours of local memory.
INLINE void NAME(quad)(float *to, local const float *from)
{
  const float4 v = *(local const float4 *)from;
  to[0] = v.x;
  to[1] = v.y;
  to[2] = v.z;
  to[3] = v.w;
}

// sums += the product of the rows of a and of b, both panels of DEPTH.
INLINE void NAME(multiply)(float sums[R][R], local const float *a, local const float *b)
{
  const int x = get_local_id(0), y = get_local_id(1);
  UNROLL for (int d = 0; d < DEPTH; d++) {
    float left[R], right[R];
    UNROLL for (int i = 0; i < R; i += 4) {
      NAME(quad)(left + i, a + d * PITCH + SPREAD(i, y));
      NAME(quad)(right + i, b + d * PITCH + SPREAD(i, x));
    }
    UNROLL for (int i = 0; i < R; i++)
      UNROLL for (int j = 0; j < R; j++)
        sums[i][j] = mad(left[i], right[j], sums[i][j]);
  }
}

// sums = the product of TILE rows of a from aRow on and TILE rows of b from bRow on, over
// the whole depth. panels holds 2*PANEL floats.
INLINE void NAME(rows_product)(float sums[R][R], local float *panels, NAME(matrix) a, int aRow, NAME(matrix) b, int bRow)
{
  UNROLL for (int i = 0; i < R; i++)
    UNROLL for (int j = 0; j < R; j++)
      sums[i][j] = 0.0f;
  for (int d = 0; d < a.depth; d += DEPTH) {
    barrier(CLK_LOCAL_MEM_FENCE); // the last panels were read
    NAME(load)(panels, a, aRow, d);
    NAME(load)(panels + PANEL, b, bRow, d);
    barrier(CLK_LOCAL_MEM_FENCE);
    NAME(multiply)(sums, panels, panels + PANEL);
  }
}
