// What each work-item has of the matrices that matrix units work on, so that a test can compare it
// with what the instructions are said to do, on a card and where something stands in for them.

// Of each item, in: its parts of a, b and c for multiply_add, the element of the tile where its row
// of load_matrices starts. Out: c, the matrices that it gets along and across, a's first part of
// the item with the next even or odd number, and c's first two numbers as a pair. The tile is a
// square of GROUP/WARP*8 rows whose elements are their numbers.
#define MATRIX_PARTS(form, type)                                                                      \
  KERNEL2 void form(BUFFER(uint, out), BUFFER(const uint, in))                                        \
  {                                                                                                   \
    local ushort tile[GROUP / WARP * 8 * (GROUP / WARP * 8)] __attribute__((aligned(16)));            \
    local uint exchange[EXCHANGE];                                                                    \
    find_parts(tile, exchange, out + outAt + item_number() * 14, in + inAt + item_number() * 11, type); \
  }

INLINE void find_parts(local ushort *tile, local uint *exchange, global uint *out, global const uint *in, const int type)
{
  for (int i = item_number(); i < GROUP / WARP * 8 * (GROUP / WARP * 8); i += GROUP)
    tile[i] = (ushort)i;
  barrier(CLK_LOCAL_MEM_FENCE);
  const uint a[4] = {in[0], in[1], in[2], in[3]}, b[2] = {in[4], in[5]};
  float c[4] = {as_float(in[6]), as_float(in[7]), as_float(in[8]), as_float(in[9])};
  uint along[4], across[4];
  out[13] = half_pair(c[0], c[1], type);
  multiply_add(c, a, b, type, exchange);
  load_matrices(along, tile, in[10], 0, exchange);
  load_matrices(across, tile, in[10], 1, exchange);
  for (int j = 0; j < 4; j++) {
    out[j] = as_uint(c[j]);
    out[4 + j] = along[j];
    out[8 + j] = across[j];
  }
  out[12] = as_uint(other(as_float(a[0]), 1, exchange));
}

MATRIX_PARTS(matrix_parts_f16, F16)
#ifndef TURING
MATRIX_PARTS(matrix_parts_bf16, BF16)
#endif
