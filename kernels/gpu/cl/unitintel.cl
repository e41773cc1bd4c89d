// Intel's matrix units (XMX) as a function of the extension
// cl_intel_subgroup_matrix_multiply_accumulate: c[8,WARP] += a[8,16] * b[16,WARP] in halves with
// sums in f32. A sub-group is a warp, of the one size that a device has the function for. Given is
// UNIT, one of
//
//   DPAS8   8 work-items: Arc A (DG2), Arrow Lake
//   DPAS16  16 work-items: Data Center GPU Max (PVC), Arc B (Battlemage), Lunar Lake
//
// Item i has column i of b, depth by depth, and of c. Of each row of a it has depth i of DPAS16,
// depths 2i and 2i+1 of DPAS8; component m of a and of c is row m.

#define AHEAD 0
#define ACROSS 2
#define UNIT_ROWS 8
#define UNIT_COLUMNS WARP
#define UNIT_PARTS 8
#define UNIT_ROW(q) (q)
#define UNIT_COLUMN LANE

#if UNIT == DPAS8
#define WARP 8
typedef int8 unit_left;
typedef int left_word;
#else
#define WARP 16
typedef short8 unit_left;
typedef short left_word;
#endif

typedef int8 unit_right;
typedef float8 unit_sums;

#ifdef EMULATED
#define LANE ((int)get_local_id(0) % WARP)
#define WARP_NUMBER ((int)get_local_id(0) / WARP)
#define UNIT_KERNEL KERNEL
#else
#define LANE ((int)get_sub_group_local_id())
#define WARP_NUMBER ((int)get_sub_group_id())
#define UNIT_KERNEL __attribute__((intel_reqd_sub_group_size(WARP))) KERNEL
#define EXCHANGE 1

#ifdef cl_intel_subgroups
#pragma OPENCL EXTENSION cl_intel_subgroups : enable
#endif
// Compilers that have the functions without declaring them are told of those that are used.

#ifdef UNIT_F16
#ifndef cl_intel_subgroup_matrix_multiply_accumulate
float8 __attribute__((overloadable)) intel_sub_group_f16_f16_matrix_mad_k16(unit_left a, int8 b, float8 c);
#endif
INLINE unit_sums multiply_add_f16(unit_sums c, unit_left a, unit_right b) { return intel_sub_group_f16_f16_matrix_mad_k16(a, b, c); }
#endif

#ifdef UNIT_BF16
#ifndef cl_intel_subgroup_matrix_multiply_accumulate
float8 __attribute__((overloadable)) intel_sub_group_bf16_bf16_matrix_mad_k16(unit_left a, int8 b, float8 c);
#endif
INLINE unit_sums multiply_add_bf16(unit_sums c, unit_left a, unit_right b) { return intel_sub_group_bf16_bf16_matrix_mad_k16(a, b, c); }
#endif
#endif

// What an item has of the 8 rows from `row` on at the 16 depths from d on of a panel, where the
// depths of a row are together.
INLINE unit_left load_left(local const ushort *panel, int row, int d)
{
  local const left_word *word = (local const left_word *)(panel + row * PITCH + d) + LANE;
  const int pitch = PITCH * sizeof(ushort) / sizeof(left_word);
  return (unit_left)(word[0], word[pitch], word[2 * pitch], word[3 * pitch], word[4 * pitch], word[5 * pitch],
                     word[6 * pitch], word[7 * pitch]);
}

// What an item has of the WARP columns from `column` on at the 16 depths from d on.
INLINE unit_right load_right(local const ushort *panel, int column, int d)
{
  local const int4 *halves = (local const int4 *)(panel + (column + LANE) * PITCH + d);
  return (int8)(halves[0], halves[1]);
}
