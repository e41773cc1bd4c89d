// Stands in for the library of OpenCL C where clang compiles the kernels on matrix units for AMD's
// cards: just what base.cl and the files unit*.cl and matmulunit.cl use.
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef unsigned long size_t;
typedef float float4 __attribute__((ext_vector_type(4)));
typedef float float8 __attribute__((ext_vector_type(8)));
typedef uint uint2 __attribute__((ext_vector_type(2)));
typedef uint uint4 __attribute__((ext_vector_type(4)));
typedef uint uint8 __attribute__((ext_vector_type(8)));
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
typedef half half4 __attribute__((ext_vector_type(4)));
typedef half half8 __attribute__((ext_vector_type(8)));
typedef half half16 __attribute__((ext_vector_type(16)));
typedef short short4 __attribute__((ext_vector_type(4)));
typedef short short8 __attribute__((ext_vector_type(8)));
typedef short short16 __attribute__((ext_vector_type(16)));
#define NULL ((void *)0)
#define CLK_LOCAL_MEM_FENCE 1
#define LIBRARY static inline __attribute__((always_inline))
LIBRARY size_t get_local_id(uint d) { return __builtin_amdgcn_workitem_id_x(); }
LIBRARY size_t get_group_id(uint d) { return d == 0 ? __builtin_amdgcn_workgroup_id_x() : __builtin_amdgcn_workgroup_id_y(); }
#define barrier(f) do { __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup"); __builtin_amdgcn_s_barrier(); __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup"); } while (0)
#define as_float(x) __builtin_astype((x), float)
#define as_uint(x) __builtin_astype((x), uint)
#define as_short4(x) __builtin_astype((x), short4)
#define as_short8(x) __builtin_astype((x), short8)
#define as_short16(x) __builtin_astype((x), short16)
#define as_half4(x) __builtin_astype((x), half4)
#define as_half8(x) __builtin_astype((x), half8)
#define as_half16(x) __builtin_astype((x), half16)
LIBRARY float fmax(float a, float b) { return __builtin_fmaxf(a, b); }
LIBRARY int atomic_max(volatile global int *p, int x) { return __atomic_fetch_max(p, x, __ATOMIC_RELAXED); }
LIBRARY float vload_half(size_t i, global const half *x)
{
  const ushort bits = ((global const ushort *)x)[i];
  return __builtin_load_halff((const half *)&bits);
}
LIBRARY void vstore_half_rte(float y, size_t i, global half *x)
{
  ushort bits;
  __builtin_store_halff(y, (half *)&bits);
  ((global ushort *)x)[i] = bits;
}
