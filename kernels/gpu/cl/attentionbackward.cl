// The gradients of queries, and those of keys and values, from the probabilities computed
// anew (Dao 2023, "FlashAttention-2", algorithm 2), each in a kernel of its own: every element
// is summed by one work-item, in a fixed order.

// What backward kernels are given. dout, qkv and out are stored as `type` says, dqkv as dqkvType.
#define ATTENTION_BACKWARD                                                                              \
  BUFFER(void, dqkv), const int dqkvType, BUFFER(const float, delta), BUFFER(const void, dout),         \
    BUFFER(const void, qkv), const int type, BUFFER(const float, lse), BUFFER(const int, starts),       \
    const int T, const int begin, const int end, const int H, const int K, const int D,                 \
    const float factor

// Work-group (tile of the queries [begin, end), head, sequence).
KERNEL2 void NAME(attention_backward_queries)(ATTENTION_BACKWARD, global int *fault, const int op)
{
  local float panels[PANELS] __attribute__((aligned(16)));
  local float weights[TILE * PITCH] __attribute__((aligned(16)));
  AT(delta); AT(lse); AT(starts);
  const int from = begin + get_group_id(0) * TILE, head = get_group_id(1), b = get_group_id(2);
  const int x = get_local_id(0), y = get_local_id(1), last = min(end, from + TILE) - 1, kv = head / (H / K);
  const ulong stride = (ulong)(H + 2 * K) * D, row = (ulong)b * T * stride;
  const NAME(head) q = {qkv, qkvAt + row + head * D, type, end, D, stride};
  const NAME(head) k = {qkv, qkvAt + row + (H + kv) * D, type, end, D, stride};
  const NAME(head) v = {qkv, qkvAt + row + (H + K + kv) * D, type, end, D, stride};
  const NAME(head) g = {dout, doutAt + ((ulong)b * T * H + head) * D, type, end, D, (ulong)H * D};
  const head_out dq = {dqkv, dqkvAt + row + head * D, dqkvType, end, D, stride};
  int first[R];
  const int least = NAME(window)(first, starts ? starts + (ulong)b * T : starts, from, end, 0, fault, op);
  float sums[R][WIDTH], logs[R], deltas[R];
  NAME(clear)(sums);
  UNROLL for (int i = 0; i < R; i++) {
    const ulong at = ((ulong)b * H + head) * T + min(end - 1, from + 4 * y + i);
    logs[i] = lse[at];
    deltas[i] = delta[at];
  }
  for (int key = least / TILE * TILE; key <= last; key += TILE) {
    float s[R][R], slopes[R][R];
    NAME(scores)(s, panels, q, from, k, key);
    NAME(scores)(slopes, panels, g, from, v, key);
    UNROLL for (int i = 0; i < R; i++)
      UNROLL for (int j = 0; j < R; j++) {
        const int at = key + 4 * x + j, seen = at >= first[i] && at <= from + 4 * y + i;
        probability(s[i][j], logs[i], slopes[i][j] - deltas[i], seen, factor, &slopes[i][j]);
      }
    NAME(keep)(weights, slopes);
    NAME(weigh)(sums, weights, panels, k, key);
  }
  const float one[R] = {1.0f, 1.0f, 1.0f, 1.0f};
  NAME(store)(dq, from, sums, one, 0);
}

// Work-group (tile of the keys up to `end`, key-value head, sequence): rows are keys, columns the
// queries [begin, end) of all heads that share them.
KERNEL2 void NAME(attention_backward_keys)(ATTENTION_BACKWARD, const int accumulate)
{
  local float panels[PANELS] __attribute__((aligned(16)));
  local float weights[TILE * PITCH] __attribute__((aligned(16)));
  AT(delta); AT(lse); AT(starts);
  const int from = get_group_id(0) * TILE, kv = get_group_id(1), b = get_group_id(2);
  const int x = get_local_id(0), y = get_local_id(1), shared = H / K;
  const ulong stride = (ulong)(H + 2 * K) * D, row = (ulong)b * T * stride;
  float dk[R][WIDTH], dv[R][WIDTH];
  NAME(clear)(dk);
  NAME(clear)(dv);
  for (int head = kv * shared; head < (kv + 1) * shared; head++) {
    for (int query = max(from, begin); query < end; query += TILE) {
      // Places are reckoned anew for each tile: two gradients of 256 channels leave no registers for them.
      const int of = anew(kv), by = anew(head), seq = anew(b);
      const NAME(head) k = {qkv, qkvAt + row + (H + of) * D, type, end, D, stride};
      const NAME(head) v = {qkv, qkvAt + row + (H + K + of) * D, type, end, D, stride};
      const NAME(head) q = {qkv, qkvAt + row + by * D, type, end, D, stride};
      const NAME(head) g = {dout, doutAt + ((ulong)seq * T * H + by) * D, type, end, D, (ulong)H * D};
      float s[R][R], slopes[R][R];
      NAME(scores)(s, panels, k, from, q, query);
      NAME(scores)(slopes, panels, v, from, g, query);
      UNROLL for (int j = 0; j < R; j++) {
        const int t = query + 4 * x + j, inside = min(t, end - 1);
        const ulong at = ((ulong)seq * H + by) * T + inside;
        const int first = starts ? starts[(ulong)seq * T + inside] : 0;
        UNROLL for (int i = 0; i < R; i++) {
          const int key = from + 4 * y + i, seen = t < end && key >= first && key <= t;
          s[i][j] = probability(s[i][j], lse[at], slopes[i][j] - delta[at], seen, factor, &slopes[i][j]);
        }
      }
      NAME(keep)(weights, s);
      NAME(weigh)(dv, weights, panels, g, query);
      barrier(CLK_LOCAL_MEM_FENCE); // the probabilities were read
      NAME(keep)(weights, slopes);
      NAME(weigh)(dk, weights, panels, q, query);
    }
  }
  const head_out toKeys = {dqkv, dqkvAt + row + (H + kv) * D, dqkvType, end, D, stride};
  const head_out toValues = {dqkv, dqkvAt + row + (H + K + kv) * D, dqkvType, end, D, stride};
  const float one[R] = {1.0f, 1.0f, 1.0f, 1.0f};
  NAME(store)(toKeys, from, dk, one, accumulate);
  NAME(store)(toValues, from, dv, one, accumulate);
}
