// What attention needs beside its tiles.

// D channels of one head at `rows` positions that are written; position p is at the element
// at + p*stride of x.
typedef struct {
  global void *x;
  ulong at;
  int type, rows, D;
  ulong stride;
} head_out;

// Writes a channel of a position, or adds to it, if there is such a one.
INLINE void put_channel(head_out out, int row, int d, float value, int accumulate)
{
  if (row >= out.rows || d >= out.D)
    return;
  const ulong at = out.at + row * out.stride + d;
  put(out.x, at, out.type, accumulate ? value + get(out.x, at, out.type) : value);
}

// The first key that any of the queries [from, to) sees, which have the positions past+from and
// so on.
INLINE int least_start(global const int *starts, int from, int to, int past, global int *fault, int op)
{
  int least = past + to;
  for (int t = from; t < to; t++)
    least = valid(starts[t], 0, past + t + 1, fault, op) ? min(least, starts[t]) : 0;
  return least;
}

// The log of a query's sum of exponentials, from its largest product of query and key, and the sum of
// exponentials that are so many times as small; and from a product of a query and a key, that log, and
// the gradient of the key's probability less delta: the probability and, in *slope, the gradient of the
// score. A score is `factor` times the product.
//
// Logs have the error of a float, which is 1/2 at a score of 10^7: it is a factor of all probabilities of
// a query. Both functions therefore round the score in the same way: where one key has it all, whose
// score is the log, its probability is exactly 1 at scores of any size. Others are off by up to
// score * 2^-23, 1% at scores of 10^5; and none is above 1, as e^(such an error) may be beyond f16, and float.
INLINE float log_sum(float top, float total, float factor)
{
#pragma OPENCL FP_CONTRACT OFF
  const float score = top * factor, more = log2(total) * LN2;
  return score + more;
}

INLINE float probability(float product, float lse, float gradient, int seen, float factor, float *slope)
{
#pragma OPENCL FP_CONTRACT OFF
  const float score = product * factor, below = score - lse; // NaN stays NaN
  const float p = seen ? exp2(LOG2E * (below > 0.0f ? 0.0f : below)) : 0.0f;
  *slope = seen ? p * gradient * factor : 0.0f;
  return p;
}

// delta[B,H,T] = out * dout, the mean gradient of a query's probabilities.
KERNEL void attention_delta(BUFFER(float, delta), BUFFER(const void, dout), BUFFER(const void, out), const int type,
                            const int T, const int H, const int D, const ulong n)
{
  AT(delta);
  EACH(i, n) {
    const ulong row = ((i / T / H * T + i % T) * H + i / T % H) * D;
    float sum = 0.0f;
    for (int d = 0; d < D; d++)
      sum += get(out, outAt + row + d, type) * get(dout, doutAt + row + d, type);
    delta[i] = sum;
  }
}

// Appends the keys and values of qkv [B,T,stride], `width` numbers from `skip` on, to the
// cache [B,room,width] at `past`. A work-group for each row.
KERNEL void cache_append(BUFFER(float, cache), BUFFER(const float, qkv), const int T, const int stride, const int skip,
                         const int width, const int past, const int room)
{
  AT(cache); AT(qkv);
  const ulong row = get_group_id(0);
  cache += (row / T * room + past + row % T) * width;
  qkv += row * stride + skip;
  COLUMNS(j, width)
    cache[j] = qkv[j];
}
