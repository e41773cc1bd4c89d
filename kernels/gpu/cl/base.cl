// What every kernel uses. SIDE is given: a work-group has SIDE x SIDE work-items.
//
// Only 2^x, log2, sqrt and fma-able arithmetic are taken from the language's library, so that a
// compiler without one needs a few lines to stand in for it.

#define GROUP (SIDE * SIDE)

// Kernels of one dimension and of two; both have GROUP work-items.
#define KERNEL kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
#define KERNEL2 kernel __attribute__((reqd_work_group_size(SIDE, SIDE, 1)))

// Before a loop over what a work-item keeps in registers. Given as nothing where registers are
// not what counts and the compiler's time is: on processors.
#ifndef UNROLL
#define UNROLL _Pragma("unroll")
#endif

// Before a loop that would take more registers if several rounds of it were mixed.
#define ONE_BY_ONE _Pragma("nounroll")

#define INLINE static inline __attribute__((always_inline))

// x, of which the compiler does not know that it is the same in every round of a loop: what is
// computed from it takes no registers between.
INLINE int anew(int x)
{
#ifdef __NVPTX__
  __asm__ volatile("" : "+r"(x));
#endif
  return x;
}

// A parameter that is a range of a buffer: where the buffer is and the first element. AT
// moves to that element. An absent operand is NULL.
#define BUFFER(type, name) global type *name, const ulong name##At
#define AT(name) name += name##At

// All elements of [0, n), shared among all work-items.
#define EACH(i, n) for (ulong i = get_global_id(0); i < (n); i += get_global_size(0))

// All columns of [0, n), shared among the work-items of a group.
#define COLUMNS(j, n) for (int j = get_local_id(0); j < (n); j += GROUP)

#define LOG2E 1.44269504088896340736f
#define LN2 0.69314718055994530942f

// Stands for minus infinity where a maximum starts: compilers may assume that infinity does
// not occur.
#define LOWEST (-3.0e38f)

// How the numbers of an array are stored.
#define F32 0
#define BF16 1
#define F16 2

// The type of what a call writes as outType, where it reads `type`: all halves of a call are of one
// type, and where that is known, compilers need not handle the other.
#define OUT_TYPE(outType, type) ((type) == F32 || (outType) == F32 ? (outType) : (type))

INLINE float from_bf16(ushort x) { return as_float((uint)x << 16); }

// Rounds to nearest, ties to even; NaN stays NaN.
INLINE ushort to_bf16(float x)
{
  const uint bits = as_uint(x);
  if ((bits & 0x7fffffff) > 0x7f800000)
    return (ushort)(bits >> 16 | 0x40);
  return (ushort)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// The bits of f16's largest finite number, 65504, as a float.
#define MOST_F16 0x477fe000

// What is finite and beyond the largest number of f16 becomes that; the rest stays as it is.
INLINE float clip(float x)
{
  const uint size = as_uint(x) & 0x7fffffff;
  return size > MOST_F16 && size < 0x7f800000 ? as_float((as_uint(x) & 0x80000000) | MOST_F16) : x;
}

// Element i of an array that is stored as the type says.
INLINE float get(global const void *x, ulong i, int type)
{
  if (type == F32)
    return ((global const float *)x)[i];
  return type == F16 ? vload_half(i, (global const half *)x) : from_bf16(((global const ushort *)x)[i]);
}

INLINE void put(global void *x, ulong i, int type, float value)
{
  if (type == F32)
    ((global float *)x)[i] = value;
  else if (type == F16)
    vstore_half_rte(clip(value), i, (global half *)x);
  else
    ((global ushort *)x)[i] = to_bf16(value);
}

// The sum of x over the work-group, in the order of a binary tree; every work-item gets it.
INLINE float group_sum(float x, local float *shared)
{
  const int item = get_local_id(0);
  barrier(CLK_LOCAL_MEM_FENCE); // others may still read the last result
  shared[item] = x;
  for (int width = GROUP / 2; width > 0; width /= 2) {
    barrier(CLK_LOCAL_MEM_FENCE);
    if (item < width)
      shared[item] += shared[item + width];
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  return shared[0];
}

// The largest x of the work-group, like group_sum.
INLINE float group_max(float x, local float *shared)
{
  const int item = get_local_id(0);
  barrier(CLK_LOCAL_MEM_FENCE);
  shared[item] = x;
  for (int width = GROUP / 2; width > 0; width /= 2) {
    barrier(CLK_LOCAL_MEM_FENCE);
    if (item < width)
      shared[item] = fmax(shared[item], shared[item + width]);
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  return shared[0];
}

// Whether an index is in [low, high). If not, the fault word of the queue keeps the
// operation, and the host tells at its next Sync.
INLINE int valid(int index, int low, int high, global int *fault, int op)
{
  if (index >= low && index < high)
    return 1;
  atomic_max(fault, op);
  return 0;
}
