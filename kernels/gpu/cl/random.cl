// Philox4x32-10 (Salmon et al. 2011, section 3.2): two 32x32->64 bit products a round, the
// keys raised by a Weyl sequence between rounds.
INLINE uint4 philox(ulong block, ulong stream, ulong key)
{
  uint4 c = (uint4)((uint)block, (uint)(block >> 32), (uint)stream, (uint)(stream >> 32));
  uint k0 = (uint)key, k1 = (uint)(key >> 32);
  for (int round = 0; round < 10; round++) {
    const ulong a = 0xD2511F53UL * c.x, b = 0xCD9E8D57UL * c.z;
    c = (uint4)((uint)(b >> 32) ^ c.y ^ k0, (uint)b, (uint)(a >> 32) ^ c.w ^ k1, (uint)a);
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return c;
}

// The parameters of a kernel whose n elements have a word each, element i word first+i.
#define NUMBERED const ulong n, const ulong first, const ulong key, const ulong stream

// All blocks of four words that the elements have, shared among all work-items.
#define BLOCKS(block) \
  for (ulong block = first / 4 + get_global_id(0); block < (first + n + 3) / 4; block += get_global_size(0))

// The element of word k of a block: past n, because unsigned, where it is before the first.
#define ELEMENT(block, k) (4 * (block) + (k) - first)

INLINE void philox_words(uint *word, ulong block, ulong stream, ulong key)
{
  const uint4 words = philox(block, stream, key);
  word[0] = words.x;
  word[1] = words.y;
  word[2] = words.z;
  word[3] = words.w;
}

// Elements whose word is below `least` go.
KERNEL void dropout(BUFFER(float, out), BUFFER(const float, x), NUMBERED, const uint least, const float factor)
{
  AT(out); AT(x);
  BLOCKS(block) {
    uint word[4];
    philox_words(word, block, stream, key);
    UNROLL
    for (int k = 0; k < 4; k++) {
      const ulong i = ELEMENT(block, k);
      if (i < n)
        out[i] = word[k] < least ? 0.0f : x[i] * factor;
    }
  }
}

// Rounds by chance to one of the two neighbours; NaN stays NaN.
INLINE ushort to_bf16_by_chance(float x, uint word)
{
  const uint bits = as_uint(x);
  if ((bits & 0x7fffffff) > 0x7f800000)
    return to_bf16(x);
  return (ushort)((bits + (word >> 16)) >> 16);
}

// A cast to bf16.
KERNEL void cast_by_chance(BUFFER(ushort, out), BUFFER(const float, x), NUMBERED)
{
  AT(out); AT(x);
  BLOCKS(block) {
    uint word[4];
    philox_words(word, block, stream, key);
    UNROLL
    for (int k = 0; k < 4; k++) {
      const ulong i = ELEMENT(block, k);
      if (i < n)
        out[i] = to_bf16_by_chance(x[i], word[k]);
    }
  }
}
