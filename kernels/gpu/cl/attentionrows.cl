// What attention needs beside its tiles.

// delta[B,H,T] = out * dout, the mean gradient of a query's probabilities.
KERNEL void attention_delta(BUFFER(float, delta), BUFFER(const float, dout), BUFFER(const float, out),
                            const int T, const int H, const int D, const ulong n)
{
  AT(delta); AT(dout); AT(out);
  EACH(i, n) {
    const ulong row = ((i / T / H * T + i % T) * H + i / T % H) * D;
    float sum = 0.0f;
    for (int d = 0; d < D; d++)
      sum += out[row + d] * dout[row + d];
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
