// Stands in for the library of OpenCL C where clang compiles the kernels for NVIDIA's GPUs, which
// has none for them: just what cl/ uses, for groups of the sizes that it has.
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef unsigned long size_t;
typedef float float4 __attribute__((ext_vector_type(4)));
typedef uint uint4 __attribute__((ext_vector_type(4)));

#define CLK_LOCAL_MEM_FENCE 1
#define CLK_GLOBAL_MEM_FENCE 2
#define barrier(fence) __syncthreads()
#define NULL ((void *)0)

#define LIBRARY static inline __attribute__((always_inline))

LIBRARY size_t get_local_id(uint d) { return d == 0 ? __nvvm_read_ptx_sreg_tid_x() : __nvvm_read_ptx_sreg_tid_y(); }
LIBRARY size_t get_group_id(uint d)
{
  return d == 0 ? __nvvm_read_ptx_sreg_ctaid_x() : d == 1 ? __nvvm_read_ptx_sreg_ctaid_y() : __nvvm_read_ptx_sreg_ctaid_z();
}
LIBRARY size_t get_global_id(uint d) { return (size_t)__nvvm_read_ptx_sreg_ctaid_x() * __nvvm_read_ptx_sreg_ntid_x() + __nvvm_read_ptx_sreg_tid_x(); }
LIBRARY size_t get_global_size(uint d) { return (size_t)__nvvm_read_ptx_sreg_nctaid_x() * __nvvm_read_ptx_sreg_ntid_x(); }

// Bits, and arithmetic that is one instruction each. 2^x and log2 have 2 units in the last place.
LIBRARY float as_float(uint x) { return __builtin_astype(x, float); }
LIBRARY uint as_uint(float x) { return __builtin_astype(x, uint); }
LIBRARY float mad(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
LIBRARY float fmax(float a, float b) { return __builtin_fmaxf(a, b); }
LIBRARY float exp2(float x) { return __nvvm_ex2_approx_f(x); }
LIBRARY float log2(float x) { return __nvvm_lg2_approx_f(x); }
LIBRARY float sqrt(float x) { return __nvvm_sqrt_rn_f(x); }
LIBRARY int max(int a, int b) { return a > b ? a : b; }
LIBRARY int min(int a, int b) { return a < b ? a : b; }
LIBRARY int atomic_max(volatile global int *p, int x) { return __atomic_fetch_max(p, x, __ATOMIC_RELAXED); }

// Half-precision numbers in memory.
LIBRARY float vload_half(size_t i, global const half *x)
{
  float y;
  __asm__("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(((global const ushort *)x)[i]));
  return y;
}
LIBRARY void vstore_half_rte(float y, size_t i, global half *x)
{
  ushort bits;
  __asm__("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(y));
  ((global ushort *)x)[i] = bits;
}
