// The int8 form of package quant, to the bit: groups of 128 elements, each a word with its scale, a
// float, and then a byte for each element. LANES work-items share a group, each has a word.
#define QUANT_GROUP 128
#define LANES (QUANT_GROUP / 4)
#define GROUP_WORDS (1 + LANES)

// The largest x, and the sum of x, of the work-items that share a group of elements; each of them
// gets it.
INLINE int lanes_max(int x, local int *shared)
{
  const int item = get_local_id(0), lane = item % LANES;
  shared[item] = x;
  for (int width = LANES / 2; width > 0; width /= 2) {
    barrier(CLK_LOCAL_MEM_FENCE);
    if (lane < width)
      shared[item] = max(shared[item], shared[item + width]);
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  return shared[item - lane];
}

INLINE float lanes_sum(float x, local float *shared)
{
  const int item = get_local_id(0), lane = item % LANES;
  barrier(CLK_LOCAL_MEM_FENCE); // others may still read the last result
  shared[item] = x;
  for (int width = LANES / 2; width > 0; width /= 2) {
    barrier(CLK_LOCAL_MEM_FENCE);
    if (lane < width)
      shared[item] += shared[item + width];
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  return shared[item - lane];
}

// The bits of a/b for positive, normal floats by their bits, rounded to nearest, ties to even:
// division itself may be off in the last bits. The result has to be normal too.
INLINE uint quotient(uint a, uint b)
{
  const ulong divisor = (b & 0x7fffff) | 0x800000;
  const ulong dividend = (ulong)((a & 0x7fffff) | 0x800000) << 26;
  const ulong q = dividend / divisor; // between 2^25 and 2^27
  const int spare = q >> 26 ? 3 : 2;  // bits beyond 24
  const uint low = (uint)q & ((1u << spare) - 1), tie = 1u << (spare - 1);
  uint digits = (uint)(q >> spare);
  if (low > tie || (low == tie && (q * divisor != dividend || (digits & 1))))
    digits++;
  const uint exponent = (a >> 23) - (b >> 23) + 124 + spare;
  return (exponent << 23) + digits - 0x800000;
}

// Number i of a noise: SplitMix64 (Steele, Lea, Flood 2014).
INLINE ulong noise_number(ulong noise, ulong i)
{
  ulong z = noise + (i + 1) * 0x9e3779b97f4a7c15UL;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9UL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebUL;
  return z ^ (z >> 31);
}

// Bits of 127, of the least largest element that is scaled, 2^-100, and of what is not finite.
#define BITS_127 0x42fe0000
#define LEAST_SCALED 0x0d800000
#define NOT_FINITE 0x7f800000

// number is that of the noise for x[0]. steps has the sums of squares of each group's errors and of
// its elements, in steps, -1 for both where int8 does not hold it.
KERNEL void quantize(BUFFER(int, words), BUFFER(float, steps), BUFFER(const float, x), const ulong n, const ulong number, const ulong noise)
{
  local int largest[GROUP];
  local float sums[GROUP];
  local uint scales[GROUP / LANES], inverses[GROUP / LANES];
  AT(words); AT(steps); AT(x);
  const int item = get_local_id(0), lane = item % LANES, own = item / LANES;
  const ulong group = get_group_id(0) * (ulong)(GROUP / LANES) + own, first = group * QUANT_GROUP + 4 * lane;
  float v[4];
  int most = 0; // without the sign, bits are in the order of the numbers
  UNROLL
  for (int k = 0; k < 4; k++) {
    v[k] = first + k < n ? x[first + k] : 0.0f;
    most = max(most, (int)(as_uint(v[k]) & 0x7fffffff));
  }
  most = lanes_max(most, largest);
  const int scaled = most >= LEAST_SCALED && most < NOT_FINITE;
  if (lane == 0) {
    scales[own] = scaled ? quotient(most, BITS_127) : most < NOT_FINITE ? 0 : 0x7fc00000;
    inverses[own] = scaled ? quotient(BITS_127, most) : 0;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  const float inverse = as_float(inverses[own]);
  const ulong bits = noise_number(noise, number + first / 4);
  float wrong = 0.0f, all = 0.0f;
  int word = 0;
  UNROLL
  for (int k = 0; k < 4; k++) {
    const float step = scaled ? v[k] * inverse : 0.0f;
    const int q = min(127, ((int)(step * 65536.0f) + (int)((bits >> (16 * k)) & 0xffff)) >> 16);
    word |= (q & 0xff) << (8 * k);
    wrong += (step - q) * (step - q);
    all += step * step;
  }
  wrong = lanes_sum(wrong, sums);
  all = lanes_sum(all, sums);
  if (first < n)
    words[group * GROUP_WORDS + 1 + lane] = word;
  if (first < n && lane == 0) {
    words[group * GROUP_WORDS] = (int)scales[own];
    const int unfit = most > 0 && !scaled;
    steps[2 * group] = unfit ? -1.0f : wrong;
    steps[2 * group + 1] = unfit ? -1.0f : all;
  }
}

KERNEL void dequantize(BUFFER(float, out), BUFFER(const int, words), const ulong n)
{
  AT(out); AT(words);
  EACH(i, n) {
    global const int *group = words + i / QUANT_GROUP * GROUP_WORDS;
    const int within = i % QUANT_GROUP, word = group[1 + within / 4];
    out[i] = (float)((int)((uint)word << (24 - 8 * (within % 4))) >> 24) * as_float(group[0]);
  }
}
