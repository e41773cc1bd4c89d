// Panels of matrices of halves for matrix units (unitamd.cl, unitintel.cl): rows of A, or columns of B.
// The depths of a row are together, as these units want them, however the matrix is stored.
//
// A work-item brings 16 elements of a panel in registers first, on AMD's cards while the panel before
// it is still in use: these cards have no copies from global to local memory that go on by themselves.

// A matrix whose panels are read: element (r, d) of [rows,depth] is at r*depth + d, or at
// d*rows + r where `across` is set. `aligned` says that eight neighbours lie in 16 aligned bytes.
typedef struct {
  global const ushort *x;
  int rows, depth, across, aligned;
} unit_matrix;

INLINE unit_matrix new_unit_matrix(global const void *x, ulong at, int rows, int depth, int across)
{
  global const ushort *first = (global const ushort *)x + at;
  const int pitch = across ? rows : depth;
  const unit_matrix m = {first, rows, depth, across, pitch % 8 == 0 && (ulong)first % 16 == 0};
  return m;
}

// Where the k-th of an item's two pieces is in a panel, each 8 depths of a row. Neighbours read
// what lies together in the matrix: depths, or rows, two of which an item has.
INLINE int piece_row(int across, int k)
{
  const int item = get_local_id(0);
  return across ? item % (PANEL_ROWS / 2) * 2 + k : item / (STEP / 8) + k * (GROUP * 8 / STEP);
}

INLINE int piece_depth(int across)
{
  const int item = get_local_id(0);
  return across ? item / (PANEL_ROWS / 2) * 8 : item % (STEP / 8) * 8;
}

// Element (r, d), 0 outside.
INLINE uint element_or_zero(unit_matrix m, int r, int d)
{
  return r < m.rows && d < m.depth ? m.x[m.across ? (ulong)d * m.rows + r : (ulong)r * m.depth + d] : 0;
}

// Elements (r, d) and (r, d+1).
INLINE uint pair_or_zero(unit_matrix m, int r, int d) { return element_or_zero(m, r, d) | element_or_zero(m, r, d + 1) << 16; }

// Brings an item's pieces of the panel of the rows from `row` on at the depths from `from` on.
INLINE void take_pieces(uint4 pieces[2], unit_matrix m, int row, int from)
{
  const int d = from + piece_depth(m.across);
  if (!m.aligned) {
    REPEAT(2, k,
      const int r = row + piece_row(m.across, k);
      pieces[k] = (uint4)(pair_or_zero(m, r, d), pair_or_zero(m, r, d + 2), pair_or_zero(m, r, d + 4), pair_or_zero(m, r, d + 6));
    )
  } else if (m.across) {
    const int r = row + piece_row(1, 0);
    uint both[8]; // the elements of two rows
    REPEAT(8, i, both[i] = r < m.rows && d + i < m.depth ? *(global const uint *)(m.x + (ulong)(d + i) * m.rows + r) : 0;)
    const uint4 even = (uint4)(both[0], both[2], both[4], both[6]), odd = (uint4)(both[1], both[3], both[5], both[7]);
    pieces[0] = (even & 0xffff) | odd << 16;
    pieces[1] = even >> 16 | (odd & 0xffff0000);
  } else {
    REPEAT(2, k,
      const int r = row + piece_row(0, k);
      pieces[k] = r < m.rows && d < m.depth ? *(global const uint4 *)(m.x + (ulong)r * m.depth + d) : (uint4)(0);
    )
  }
}

// Puts them into the panel.
INLINE void put_pieces(local ushort *panel, const uint4 pieces[2], int across)
{
  REPEAT(2, k, *(local uint4 *)(panel + piece_row(across, k) * PITCH + piece_depth(across)) = pieces[k];)
}
