// AMD's matrix units as instructions: c[16,16] += a[16,16] * b[16,16] in halves with sums in
// f32. Given is UNIT, one of
//
//   WMMA11  RDNA3 (gfx11), 32 work-items ("RDNA3 Instruction Set Architecture", Wave Matrix Multiply
//           Accumulate)
//   WMMA12  RDNA4 (gfx12), 32 work-items ("RDNA4 Instruction Set Architecture", the same)
//   MFMA    CDNA2 to 4 (gfx90a, gfx94x, gfx950), 64 work-items ("CDNA3 Instruction Set Architecture",
//           v_mfma_f32_16x16x16_bf16; f16 alike)
//
// Item i of a warp has row i%16 of a and column i%16 of b: DEPTHS neighbouring depths of each,
// from DEPTHS*(i/16) on; with WMMA11 both halves of the warp have all 16. Of c it has column i%16:
// part q is row UNIT_ROW.
//
// What an item has of a and of b is alike, so that one type and one function serve both.

#define AHEAD 1
#define UNIT_ROWS 16
#define UNIT_COLUMNS 16
#define UNIT_COLUMN (LANE % 16)

#if UNIT == WMMA11
#define WARP 32
#define ACROSS 2
#define DEPTHS 16
#define UNIT_PARTS 8
#define UNIT_ROW(q) (2 * (q) + LANE / 16)
#define FIRST_DEPTH 0
typedef short16 unit_left;
typedef float8 unit_sums;
#elif UNIT == WMMA12
#define WARP 32
#define ACROSS 2
#define DEPTHS 8
#define UNIT_PARTS 8
#define UNIT_ROW(q) (8 * (LANE / 16) + (q))
#define FIRST_DEPTH (8 * (LANE / 16))
typedef short8 unit_left;
typedef float8 unit_sums;
#else
#define WARP 64
#define ACROSS 4
#define DEPTHS 4
#define UNIT_PARTS 4
#define UNIT_ROW(q) (4 * (LANE / 16) + (q))
#define FIRST_DEPTH (4 * (LANE / 16))
typedef short4 unit_left;
typedef float4 unit_sums;
#endif

typedef unit_left unit_right;

#define LANE ((int)get_local_id(0) % WARP)
#define WARP_NUMBER ((int)get_local_id(0) / WARP)
#define UNIT_KERNEL KERNEL

// What an item has of the 16 rows from `row` on (of a, or columns of b) at the 16 depths from d on
// of a panel, where the depths of a row are together.
INLINE unit_left load_left(local const ushort *panel, int row, int d)
{
  local const ushort *from = panel + (row + LANE % 16) * PITCH + d + FIRST_DEPTH;
#if UNIT == WMMA11
  local const uint4 *quarters = (local const uint4 *)from;
  return as_short16((uint8)(quarters[0], quarters[1]));
#elif UNIT == WMMA12
  return as_short8(*(local const uint4 *)from);
#else
  return as_short4(*(local const uint2 *)from);
#endif
}

INLINE unit_right load_right(local const ushort *panel, int column, int d) { return load_left(panel, column, d); }

#ifndef EMULATED
#define EXCHANGE 1

#ifdef UNIT_F16
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
INLINE unit_sums multiply_add_f16(unit_sums c, unit_left a, unit_right b)
{
#if UNIT == WMMA11
  return __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(as_half16(a), as_half16(b), c);
#elif UNIT == WMMA12
  return __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(as_half8(a), as_half8(b), c);
#else
  return __builtin_amdgcn_mfma_f32_16x16x16f16(as_half4(a), as_half4(b), c, 0, 0, 0);
#endif
}
#endif

#ifdef UNIT_BF16
INLINE unit_sums multiply_add_bf16(unit_sums c, unit_left a, unit_right b)
{
#if UNIT == WMMA11
  return __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(a, b, c);
#elif UNIT == WMMA12
  return __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(a, b, c);
#else
  return __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(a, b, c, 0, 0, 0);
#endif
}
#endif
#endif
