// What stands in for the matrix units of unitamd.cl and unitintel.cl where there are none, slowly,
// so that the kernels can be tested: items pass their parts to each other in `exchange`, which holds
// EXCHANGE numbers. That is given that EMULATED is defined; else it is the units that multiply.

#ifdef EMULATED

// Of an item: up to 16 numbers of a and 16 of b.
#define EXCHANGE (GROUP * 32)

// Which item of a warp has a[row][k] for an item that computes with it, as which of its numbers; and
// b[k][column] likewise.
#if UNIT == WMMA11
#define LEFT_AT(row, k) (LANE / 16 * 16 + (row)) * 32 + (k)
#define RIGHT_AT(k, column) (LANE / 16 * 16 + (column)) * 32 + (k)
#elif UNIT == WMMA12 || UNIT == MFMA
#define LEFT_AT(row, k) ((k) / DEPTHS * 16 + (row)) * 32 + (k) % DEPTHS
#define RIGHT_AT(k, column) ((k) / DEPTHS * 16 + (column)) * 32 + (k) % DEPTHS
#elif UNIT == DPAS8
#define LEFT_AT(row, k) ((k) / 2) * 32 + 2 * (row) + (k) % 2
#define RIGHT_AT(k, column) (column) * 32 + (k)
#else
#define LEFT_AT(row, k) (k) * 32 + (row)
#define RIGHT_AT(k, column) (column) * 32 + (k)
#endif

typedef union {
  unit_left vector;
  ushort numbers[sizeof(unit_left) / 2];
} left_numbers;

typedef union {
  unit_right vector;
  ushort numbers[sizeof(unit_right) / 2];
} right_numbers;

INLINE float from_half(ushort x, const int type) { return type == F16 ? vload_half(0, (const half *)&x) : from_bf16(x); }

INLINE unit_sums unit_multiply_add(unit_sums c, unit_left a, unit_right b, const int type, local ushort *exchange)
{
  local ushort *warp = exchange + WARP_NUMBER * WARP * 32;
  const left_numbers left = {a};
  const right_numbers right = {b};
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int i = 0; i < sizeof(unit_left) / 2; i++)
    warp[LANE * 32 + i] = left.numbers[i];
  for (int i = 0; i < sizeof(unit_right) / 2; i++)
    warp[LANE * 32 + 16 + i] = right.numbers[i];
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int q = 0; q < UNIT_PARTS; q++)
    for (int k = 0; k < 16; k++)
      c[q] += from_half(warp[LEFT_AT(UNIT_ROW(q), k)], type) * from_half(warp[16 + RIGHT_AT(k, UNIT_COLUMN)], type);
  return c;
}

#else

// c += a * b of numbers of a type that is known when a kernel is compiled.
INLINE unit_sums unit_multiply_add(unit_sums c, unit_left a, unit_right b, const int type, local ushort *exchange)
{
#ifdef UNIT_F16
  if (type == F16)
    return multiply_add_f16(c, a, b);
#endif
#ifdef UNIT_BF16
  if (type == BF16)
    return multiply_add_bf16(c, a, b);
#endif
  return c;
}

#endif
