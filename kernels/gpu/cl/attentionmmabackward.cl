// The backward pass on matrix units, in the two kernels of attentionbackward.cl. Steps are worked on
// in blocks of 16 positions, so that both gradients of 128 channels stay in registers.

// Work-group (ROWS of the queries [begin, end), head, sequence).
KERNEL2 void NAME(attention_mma_backward_queries)(ATTENTION_BACKWARD, global int *fault, const int op)
{
  local ushort tiles[STEPS_SIZE] __attribute__((aligned(16)));
  local uint exchange[EXCHANGE];
  AT(delta); AT(lse); AT(starts);
  const int from = begin + get_group_id(0) * ROWS, head = get_group_id(1), b = get_group_id(2);
  const int keyEnd = min(end, from + ROWS), kv = head / (H / K);
  const ulong stride = (ulong)(H + 2 * K) * D, row = qkvAt + (ulong)b * T * stride;
  const NAME(half_head) q = NAME(new_half_head)(qkv, row + head * D, end, D, stride);
  const NAME(half_head) k = NAME(new_half_head)(qkv, row + (H + kv) * D, end, D, stride);
  const NAME(half_head) v = NAME(new_half_head)(qkv, row + (H + K + kv) * D, end, D, stride);
  const NAME(half_head) g = NAME(new_half_head)(dout, doutAt + ((ulong)b * T * H + head) * D, end, D, (ulong)H * D);
  const head_out dq = {dqkv, dqkvAt + (ulong)b * T * stride + head * D, OUT_TYPE(dqkvType, HALF), end, D, stride};
  int first[2];
  const int least = NAME(rows_window)(first, starts ? starts + (ulong)b * T : starts, from, end, 0, fault, op);
  uint queries[SLICES][4], gradients[SLICES][4];
  float sums[2 * SLICES][4], logs[2], deltas[2];
  UNROLL for (int h = 0; h < 2; h++) {
    const ulong at = ((ulong)b * H + head) * T + min(end - 1, from + NAME(row_of)(2 * h));
    logs[h] = lse[at];
    deltas[h] = delta[at];
  }
  NAME(take_rows)(queries, tiles, q, from, exchange);
  NAME(take_rows)(gradients, tiles, g, from, exchange);
  NAME(clear_sums)(sums);
  int key = least / POSITIONS * POSITIONS;
  NAME(load_step)(tiles, 0, k, v, key);
  close_copies();
  for (int step = 0; key < keyEnd; key += POSITIONS, step++) {
    local const ushort *tile = NAME(next_step)(tiles, step, k, v, key, keyEnd);
    ONE_BY_ONE for (int i = 0; i < POSITIONS; i += 16) {
      float s[2][4], slopes[2][4];
      NAME(row_products)(s, queries, tile, i, exchange);
      NAME(row_products)(slopes, gradients, tile + STEP_SIZE, i, exchange);
      UNROLL for (int j = 0; j < 2; j++)
        UNROLL for (int p = 0; p < 4; p++) {
          const int at = key + i + 8 * j + NAME(column_of)(p);
          const int seen = at >= first[p / 2] && at <= from + NAME(row_of)(p);
          probability(s[j][p], logs[p / 2], slopes[j][p] - deltas[p / 2], seen, factor, &slopes[j][p]);
        }
      NAME(weigh_positions)(sums, slopes, 1, tile, i, exchange);
    }
    barrier(CLK_LOCAL_MEM_FENCE); // the step was read
  }
  const float one[2] = {1.0f, 1.0f};
  NAME(store_rows)(dq, from, sums, one, 0);
}

// What is known of the queries of a step.
typedef struct {
  float lse[POSITIONS], delta[POSITIONS];
  int first[POSITIONS]; // the first key that each sees; none if there is no such query
} NAME(step_queries);

// Loads them, of the queries from `query` on, from the rows of a head.
INLINE void NAME(load_queries)(local NAME(step_queries) *of, global const float *lse, global const float *delta,
                               global const int *starts, ulong rows, int query, int end)
{
  const int item = item_number(), t = query + item;
  if (item >= POSITIONS)
    return;
  of->lse[item] = t < end ? lse[rows + t] : 0.0f;
  of->delta[item] = t < end ? delta[rows + t] : 0.0f;
  of->first[item] = t < end ? (starts ? starts[t] : 0) : end;
}

// Turns the scores and the gradients of the probabilities of 16 queries, the i-th of the step and
// those behind it, into the probabilities and the gradients of the scores.
INLINE void NAME(differentiate_block)(float s[2][4], float slopes[2][4], local const NAME(step_queries) *of, int i, int query,
                                      int from, float factor)
{
  UNROLL for (int j = 0; j < 2; j++)
    UNROLL for (int p = 0; p < 4; p++) {
      const int t = i + 8 * j + NAME(column_of)(p), key = from + NAME(row_of)(p);
      const int seen = key >= of->first[t] && key <= query + t;
      s[j][p] = probability(s[j][p], of->lse[t], slopes[j][p] - of->delta[t], seen, factor, &slopes[j][p]);
    }
}

// Work-group (ROWS of the keys up to `end`, key-value head, sequence): positions are the queries
// [begin, end) of all heads that share them.
KERNEL2 void NAME(attention_mma_backward_keys)(ATTENTION_BACKWARD, const int accumulate)
{
  local ushort tiles[STEPS_SIZE] __attribute__((aligned(16)));
  local NAME(step_queries) of;
  local uint exchange[EXCHANGE];
  AT(delta); AT(lse); AT(starts);
  const int from = get_group_id(0) * ROWS, kv = get_group_id(1), b = get_group_id(2), shared = H / K;
  const ulong stride = (ulong)(H + 2 * K) * D, row = (ulong)b * T * stride;
  const NAME(half_head) k = NAME(new_half_head)(qkv, qkvAt + row + (H + kv) * D, end, D, stride);
  const NAME(half_head) v = NAME(new_half_head)(qkv, qkvAt + row + (H + K + kv) * D, end, D, stride);
  uint keys[SLICES][4], values[SLICES][4];
  float dk[2 * SLICES][4], dv[2 * SLICES][4];
  NAME(take_rows)(keys, tiles, k, from, exchange);
  NAME(take_rows)(values, tiles, v, from, exchange);
  NAME(clear_sums)(dk);
  NAME(clear_sums)(dv);
  starts = starts ? starts + (ulong)b * T : starts;
  for (int head = kv * shared; head < (kv + 1) * shared; head++) {
    const NAME(half_head) q = NAME(new_half_head)(qkv, qkvAt + row + head * D, end, D, stride);
    const NAME(half_head) g = NAME(new_half_head)(dout, doutAt + ((ulong)b * T * H + head) * D, end, D, (ulong)H * D);
    const ulong rows = ((ulong)b * H + head) * T;
    int query = max(from, begin);
    NAME(load_step)(tiles, 0, q, g, query);
    close_copies();
    ONE_BY_ONE for (int step = 0; query < end; query += POSITIONS, step++) {
      NAME(load_queries)(&of, lse, delta, starts, rows, query, end);
      local const ushort *tile = NAME(next_step)(tiles, step, q, g, query, end);
      ONE_BY_ONE for (int i = 0; i < POSITIONS; i += 16) {
        float s[2][4], slopes[2][4];
        NAME(row_products)(s, keys, tile, i, exchange);
        NAME(row_products)(slopes, values, tile + STEP_SIZE, i, exchange);
        NAME(differentiate_block)(s, slopes, &of, i, query, from, factor);
        NAME(weigh_positions)(dv, s, 0, tile + STEP_SIZE, i, exchange);
        NAME(weigh_positions)(dk, slopes, 1, tile, i, exchange);
      }
      barrier(CLK_LOCAL_MEM_FENCE); // the step was read
    }
  }
  const head_out toKeys = {dqkv, dqkvAt + row + (H + kv) * D, OUT_TYPE(dqkvType, HALF), end, D, stride};
  const head_out toValues = {dqkv, dqkvAt + row + (H + K + kv) * D, OUT_TYPE(dqkvType, HALF), end, D, stride};
  const float one[2] = {1.0f, 1.0f};
  NAME(store_rows)(toKeys, from, dk, one, accumulate);
  NAME(store_rows)(toValues, from, dv, one, accumulate);
}
