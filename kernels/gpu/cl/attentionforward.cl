// Products of queries from position `from` on and keys from `key` on: LOWEST where the query does not
// see the key.
INLINE void NAME(mask)(float s[R][R], const int first[R], int key, int from)
{
  const int x = get_local_id(0), y = get_local_id(1);
  UNROLL for (int i = 0; i < R; i++)
    UNROLL for (int j = 0; j < R; j++) {
      const int at = key + 4 * x + j, seen = at >= first[i] && at <= from + 4 * y + i;
      s[i][j] = seen ? s[i][j] : LOWEST;
    }
}

// Turns the products of a tile into 2^((product-top)*steep) for the largest product `top` so far, to
// which what was summed before is brought down. `shared` holds TILE*SIDE floats.
INLINE void NAME(soften)(float s[R][R], float top[R], float total[R], float sums[R][WIDTH], float steep, local float *shared)
{
  const int x = get_local_id(0), y = get_local_id(1);
  UNROLL for (int i = 0; i < R; i++)
    shared[(4 * y + i) * SIDE + x] = fmax(fmax(s[i][0], s[i][1]), fmax(s[i][2], s[i][3]));
  barrier(CLK_LOCAL_MEM_FENCE);
  UNROLL for (int i = 0; i < R; i++) {
    float best = top[i];
    UNROLL for (int j = 0; j < SIDE; j++)
      best = fmax(best, shared[(4 * y + i) * SIDE + j]);
    const float shrink = exp2((top[i] - best) * steep);
    top[i] = best;
    total[i] *= shrink;
    UNROLL for (int j = 0; j < WIDTH; j++)
      sums[i][j] *= shrink;
    UNROLL for (int j = 0; j < R; j++) {
      s[i][j] = s[i][j] == LOWEST ? 0.0f : exp2((s[i][j] - best) * steep);
      total[i] += s[i][j];
    }
  }
  barrier(CLK_LOCAL_MEM_FENCE); // the maxima were read
}

// What forward kernels are given. The row of position t has all query heads, and keys and values
// are rows of their own stride, in qkv or in a cache that `past` earlier positions are in. `type`
// is how all of these and out are stored. lse may be absent.
#define ATTENTION_FORWARD                                                                              \
  BUFFER(void, out), BUFFER(float, lse), BUFFER(const void, queries), BUFFER(const void, keys),        \
    BUFFER(const void, values), BUFFER(const int, starts), const int type, const int T,                \
    const int begin, const int end, const int H, const int shared, const int D, const int past,        \
    const int queryStride, const int keyStride, const ulong keyBatch, const float factor,              \
    global int *fault, const int op

// Work-group (tile of the queries [begin, end), head, sequence).
KERNEL2 void NAME(attention_forward)(ATTENTION_FORWARD)
{
  local float panels[PANELS] __attribute__((aligned(16)));
  local float weights[TILE * PITCH] __attribute__((aligned(16)));
  AT(lse); AT(starts);
  const int from = begin + get_group_id(0) * TILE, head = get_group_id(1), b = get_group_id(2);
  const int x = get_local_id(0), y = get_local_id(1), last = past + min(end, from + TILE) - 1;
  const ulong kv = b * keyBatch + head / shared * D;
  const NAME(head) q = {queries, queriesAt + (ulong)b * T * queryStride + head * D, type, end, D, queryStride};
  const NAME(head) k = {keys, keysAt + kv, type, past + end, D, keyStride};
  const NAME(head) v = {values, valuesAt + kv, type, past + end, D, keyStride};
  const head_out o = {out, outAt + ((ulong)b * T * H + head) * D, type, end, D, (ulong)H * D};
  int first[R];
  const int least = NAME(window)(first, starts ? starts + (ulong)b * T : starts, from, end, past, fault, op);
  float sums[R][WIDTH], top[R], total[R];
  NAME(clear)(sums);
  UNROLL for (int i = 0; i < R; i++) {
    top[i] = LOWEST;
    total[i] = 0.0f;
  }
  for (int key = least / TILE * TILE; key <= last; key += TILE) {
    float s[R][R];
    NAME(scores)(s, panels, q, from, k, key);
    NAME(mask)(s, first, key, past + from);
    NAME(soften)(s, top, total, sums, factor * LOG2E, weights);
    NAME(keep)(weights, s);
    NAME(weigh)(sums, weights, panels, v, key);
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  UNROLL for (int i = 0; i < R; i++)
    weights[(4 * y + i) * SIDE + x] = total[i];
  barrier(CLK_LOCAL_MEM_FENCE);
  float share[R];
  UNROLL for (int i = 0; i < R; i++) {
    float all = 0.0f;
    UNROLL for (int j = 0; j < SIDE; j++)
      all += weights[(4 * y + i) * SIDE + j];
    share[i] = 1.0f / all;
    if (lse && x == 0 && from + 4 * y + i < end)
      lse[((ulong)b * H + head) * T + from + 4 * y + i] = log_sum(top[i], all, factor);
  }
  NAME(store)(o, from, sums, share, 0);
}
