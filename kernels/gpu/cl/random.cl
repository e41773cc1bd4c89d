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

// A work-item takes the elements of a block of four words; element i has word first+i. Those
// whose word is below `least` go.
KERNEL void dropout(BUFFER(float, out), BUFFER(const float, x), const ulong n, const ulong first,
                    const uint least, const float factor, const ulong key, const ulong stream)
{
  AT(out); AT(x);
  EACH(b, (first % 4 + n + 3) / 4) {
    const ulong block = first / 4 + b;
    const uint4 words = philox(block, stream, key);
    const uint word[4] = {words.x, words.y, words.z, words.w};
    for (int k = 0; k < 4; k++) {
      const ulong place = 4 * block + k;
      if (place >= first && place < first + n)
        out[place - first] = word[k] < least ? 0.0f : x[place - first] * factor;
    }
  }
}
