// What matrix units do, on NVIDIA's cards from compute capability 8.0 on as instructions (PTX ISA,
// sections "mma.m16n8k16", "ldmatrix", "cp.async"). 32 work-items with neighbouring numbers, a
// warp, work together: each has a part of every matrix, and calls must not depend on the item. `type`
// is BF16 or F16, and known when a kernel is compiled.
//
// With TURING the instructions are those of compute capability 7.5 (section "mma.m16n8k8"), which
// multiply f16 alone, half as deep, and copy nothing beside themselves.
//
// Anywhere else the same is done by ordinary means, slowly, so that the kernels can be tested:
// there items pass their parts to each other in `exchange`, which holds EXCHANGE uints.

#define WARP 32

INLINE int item_number(void) { return get_local_id(1) * SIDE + get_local_id(0); }

#ifdef __NVPTX__

#define EXCHANGE 1

// to = four 8x8 matrices of 16-bit elements: item i has the elements 2*(i%4) and the next one of
// row i/4 of each, or of column i/4 where `across` is set. Row k of matrix j starts at the
// element `at` of item 8*j+k.
INLINE void load_matrices(uint to[4], local const ushort *tile, int at, int across, local uint *exchange)
{
  const uint address = (uint)(ulong)(tile + at);
  if (across)
    __asm__ volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(address) : "memory");
  else
    __asm__ volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(address) : "memory");
}

#ifdef TURING

// The depths of a factor of 16 are those of two factors of 8.
INLINE void multiply_add_8(float c[4], uint top, uint bottom, uint b)
{
  __asm__("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
          : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(top), "r"(bottom), "r"(b));
}

INLINE void multiply_add(float c[4], const uint a[4], const uint b[2], const int type, local uint *exchange)
{
  multiply_add_8(c, a[0], a[1], b[0]);
  multiply_add_8(c, a[2], a[3], b[1]);
}

INLINE void start_copy(local ushort *to, global const ushort *from, int zeros)
{
  *(local uint4 *)to = zeros ? (uint4)(0) : *(global const uint4 *)from;
}

INLINE void close_copies(void) {}
INLINE void wait_copies(void) {}

#else

// c[16,8] += a[16,16] * b[16,8] with sums in f32. Item i = 4*g+t has of a the rows g and
// g+8 at the depths 2t, 2t+1 (a[0], a[1]) and 2t+8, 2t+9 (a[2], a[3]); of b the column g at the
// same depths (b[0], b[1]); of c the columns 2t and 2t+1 of row g, then of row g+8.
INLINE void multiply_add(float c[4], const uint a[4], const uint b[2], const int type, local uint *exchange)
{
  if (type == F16)
    __asm__("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  else
    __asm__("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Starts a copy of 16 bytes, both sides aligned to that, or of zeros.
INLINE void start_copy(local ushort *to, global const ushort *from, int zeros)
{
  __asm__ volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" : : "r"((uint)(ulong)to), "l"(from), "r"(zeros ? 0 : 16) : "memory");
}

// Closes the group of the copies that were started.
INLINE void close_copies(void) { __asm__ volatile("cp.async.commit_group;" : : : "memory"); }

// Waits for an item's groups but for the last one. A barrier must follow.
INLINE void wait_copies(void) { __asm__ volatile("cp.async.wait_group 1;" : : : "memory"); }

#endif

// x of the item whose number differs from an item's in the bits of `distance`.
INLINE float other(float x, int distance, local uint *exchange)
{
  uint from;
  __asm__ volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=r"(from) : "r"(as_uint(x)), "r"(distance));
  return as_float(from);
}

// Two numbers rounded to a half, the first in the low bits.
INLINE uint half_pair(float low, float high, const int type)
{
  uint pair;
#ifdef TURING
  __asm__("{ .reg .b16 l, h; cvt.rn.f16.f32 l, %1; cvt.rn.f16.f32 h, %2; mov.b32 %0, {l, h}; }" : "=r"(pair) : "f"(low), "f"(high));
#else
  if (type == F16)
    __asm__("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  else
    __asm__("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
#endif
  return pair;
}

#else

#define EXCHANGE (GROUP * 6)

INLINE void load_matrices(uint to[4], local const ushort *tile, int at, int across, local uint *exchange)
{
  const int item = item_number(), lane = item % WARP, row = lane / 4, column = lane % 4 * 2;
  barrier(CLK_LOCAL_MEM_FENCE);
  exchange[item] = at;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int j = 0; j < 4; j++) {
    local const uint *starts = exchange + (item - lane) + 8 * j;
    const ushort low = across ? tile[starts[column] + row] : tile[starts[row] + column];
    const ushort high = across ? tile[starts[column + 1] + row] : tile[starts[row] + column + 1];
    to[j] = low | (uint)high << 16;
  }
}

INLINE float from_half(ushort x, const int type) { return type == F16 ? vload_half(0, (const half *)&x) : from_bf16(x); }

INLINE ushort to_half(float x, const int type)
{
  ushort bits = to_bf16(x);
  if (type == F16)
    vstore_half_rte(x, 0, (half *)&bits);
  return bits;
}

// Half `depth`%2 of the part of item 4*row + depth%8/2 that starts at `from`.
INLINE float element(local const uint *from, int row, int part, int depth, const int type)
{
  const uint pair = from[(4 * row + depth % 8 / 2) * 6 + part];
  return from_half((ushort)(depth % 2 ? pair >> 16 : pair & 0xffff), type);
}

INLINE void multiply_add(float c[4], const uint a[4], const uint b[2], const int type, local uint *exchange)
{
  const int item = item_number(), lane = item % WARP;
  local const uint *warp = exchange + (item - lane) * 6;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int j = 0; j < 4; j++)
    exchange[item * 6 + j] = a[j];
  for (int j = 0; j < 2; j++)
    exchange[item * 6 + 4 + j] = b[j];
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int q = 0; q < 4; q++)
    for (int depth = 0; depth < 16; depth++)
      c[q] += element(warp, lane / 4, q / 2 + depth / 8 * 2, depth, type) * element(warp, lane % 4 * 2 + q % 2, 4 + depth / 8, depth, type);
}

INLINE void start_copy(local ushort *to, global const ushort *from, int zeros)
{
  for (int i = 0; i < 8; i++)
    to[i] = zeros ? 0 : from[i];
}

INLINE float other(float x, int distance, local uint *exchange)
{
  const int item = item_number();
  barrier(CLK_LOCAL_MEM_FENCE);
  exchange[item] = as_uint(x);
  barrier(CLK_LOCAL_MEM_FENCE);
  return as_float(exchange[item ^ distance]);
}

INLINE uint half_pair(float low, float high, const int type) { return to_half(low, type) | (uint)to_half(high, type) << 16; }

INLINE void close_copies(void) {}
INLINE void wait_copies(void) {}

#endif

// Two f16 numbers with the largest one in place of infinity, whose bits come right behind.
INLINE uint clip_pair(uint pair)
{
  pair -= (pair & 0x7fff) == 0x7c00 ? 1 : 0;
  return pair - ((pair & 0x7fff0000) == 0x7c000000 ? 0x10000 : 0);
}

// Turns a work-item's part of the products c of two neighbours [16,8] into its part of a factor
// a [16,16], rounded: both have the same rows, and a product's columns are the factor's depths. What
// may be beyond f16 is to be `wild`.
INLINE void to_factor(uint to[4], float products[2][4], const int type, const int wild)
{
  UNROLL for (int j = 0; j < 4; j++) {
    to[j] = half_pair(products[j / 2][j % 2 * 2], products[j / 2][j % 2 * 2 + 1], type);
    if (wild && type == F16)
      to[j] = clip_pair(to[j]);
  }
}
