// Two kernels for each half that tell whether matrix units do what matmulunit.cl takes them to do.

// out[row][column] = the product of row `row` and row 128+column of in, which has 256 rows of 32
// depths, for UNIT_ROWS rows and UNIT_COLUMNS columns: what loads, multiplies and stores agree on.
// Every warp computes it, and warp w writes the w-th such matrix.
#define UNIT_PROBE(form, type)                                                                                   \
  UNIT_KERNEL void form(BUFFER(float, out), BUFFER(const ushort, in))                                            \
  {                                                                                                              \
    local ushort panels[2 * PANEL_SIZE] __attribute__((aligned(16)));                                            \
    local ushort exchange[EXCHANGE];                                                                             \
    uint4 pieces[2];                                                                                             \
    AT(out);                                                                                                     \
    for (int p = 0; p < 2; p++) {                                                                                \
      take_pieces(pieces, new_unit_matrix(in, inAt + p * PANEL_ROWS * STEP, PANEL_ROWS, STEP, 0), 0, 0);         \
      put_pieces(panels + p * PANEL_SIZE, pieces, 0);                                                            \
    }                                                                                                            \
    barrier(CLK_LOCAL_MEM_FENCE);                                                                                \
    unit_sums sums = 0.0f;                                                                                       \
    for (int d = 0; d < STEP; d += 16)                                                                           \
      sums = unit_multiply_add(sums, load_left(panels, 0, d), load_right(panels + PANEL_SIZE, 0, d), type, exchange); \
    REPEAT(UNIT_PARTS, q, out[(WARP_NUMBER * UNIT_ROWS + UNIT_ROW(q)) * UNIT_COLUMNS + UNIT_COLUMN] = sums[q];)  \
  }

// Of each item, in: its parts of a, b and c, 8 words each at most. Out: its parts of c.
#define UNIT_PARTS_OF(form, type)                                                                                \
  UNIT_KERNEL void form(BUFFER(float, out), BUFFER(const uint, in))                                              \
  {                                                                                                              \
    local ushort exchange[EXCHANGE];                                                                             \
    const int item = WARP_NUMBER * WARP + LANE;                                                                  \
    in += inAt + item * 24;                                                                                      \
    const unit_left a = *(global const unit_left *)in;                                                           \
    const unit_right b = *(global const unit_right *)(in + 8);                                                   \
    const unit_sums c = unit_multiply_add(*(global const unit_sums *)(in + 16), a, b, type, exchange);           \
    *(global unit_sums *)(out + outAt + item * 8) = c;                                                           \
  }

#ifdef UNIT_BF16
UNIT_PROBE(unit_probe_bf16, BF16)
UNIT_PARTS_OF(unit_parts_bf16, BF16)
#endif
#ifdef UNIT_F16
UNIT_PROBE(unit_probe_f16, F16)
UNIT_PARTS_OF(unit_parts_f16, F16)
#endif
