// The forward pass on matrix units.

// Products of queries from position `from` on and keys from `key` on: LOWEST where the query does not
// see the key.
INLINE void NAME(mask_rows)(float s[POSITIONS / 16][2][4], const int first[2], int key, int from)
{
  UNROLL for (int k = 0; k < POSITIONS / 16; k++)
    UNROLL for (int j = 0; j < 2; j++)
      UNROLL for (int q = 0; q < 4; q++) {
        const int at = key + 16 * k + 8 * j + NAME(column_of)(q);
        const int seen = at >= first[q / 2] && at <= from + NAME(row_of)(q);
        s[k][j][q] = seen ? s[k][j][q] : LOWEST;
      }
}

// Turns the products of one of a work-item's two rows into 2^((product-top)*steep) for the largest
// product `top` so far, to which what was summed before is brought down. The four items that share a
// row have its largest product alike; each has a total of its own columns.
INLINE void NAME(soften_row)(float s[POSITIONS / 16][2][4], int h, float *top, float *total, float sums[2 * SLICES][4],
                             float steep, local uint *exchange)
{
  float best = *top;
  UNROLL for (int k = 0; k < POSITIONS / 16; k++)
    UNROLL for (int j = 0; j < 2; j++)
      best = fmax(best, fmax(s[k][j][2 * h], s[k][j][2 * h + 1]));
  best = fmax(best, other(best, 1, exchange));
  best = fmax(best, other(best, 2, exchange));
  const float shrink = exp2((*top - best) * steep);
  *top = best;
  *total *= shrink;
  UNROLL for (int n = 0; n < 2 * SLICES; n++) {
    sums[n][2 * h] *= shrink;
    sums[n][2 * h + 1] *= shrink;
  }
  UNROLL for (int k = 0; k < POSITIONS / 16; k++)
    UNROLL for (int j = 0; j < 2; j++)
      UNROLL for (int q = 2 * h; q < 2 * h + 2; q++) {
        s[k][j][q] = s[k][j][q] == LOWEST ? 0.0f : exp2((s[k][j][q] - best) * steep);
        *total += s[k][j][q];
      }
}

// Work-group (ROWS of the queries [begin, end), head, sequence).
KERNEL2 void NAME(attention_mma_forward)(ATTENTION_FORWARD)
{
  local ushort tiles[STEPS_SIZE] __attribute__((aligned(16)));
  local uint exchange[EXCHANGE];
  AT(lse); AT(starts);
  const int from = begin + get_group_id(0) * ROWS, head = get_group_id(1), b = get_group_id(2);
  const int keyEnd = past + min(end, from + ROWS);
  const ulong kv = b * keyBatch + head / shared * D;
  const NAME(half_head) q = NAME(new_half_head)(queries, queriesAt + (ulong)b * T * queryStride + head * D, end, D, queryStride);
  const NAME(half_head) k = NAME(new_half_head)(keys, keysAt + kv, past + end, D, keyStride);
  const NAME(half_head) v = NAME(new_half_head)(values, valuesAt + kv, past + end, D, keyStride);
  const head_out o = {out, outAt + ((ulong)b * T * H + head) * D, HALF, end, D, (ulong)H * D};
  int first[2];
  const int least = NAME(rows_window)(first, starts ? starts + (ulong)b * T : starts, from, end, past, fault, op);
  uint rows[SLICES][4];
  float sums[2 * SLICES][4], top[2] = {LOWEST, LOWEST}, total[2] = {0.0f, 0.0f};
  NAME(take_rows)(rows, tiles, q, from, exchange);
  NAME(clear_sums)(sums);
  int key = least / POSITIONS * POSITIONS;
  NAME(load_step)(tiles, 0, k, v, key);
  close_copies();
  for (int step = 0; key < keyEnd; key += POSITIONS, step++) {
    local const ushort *tile = NAME(next_step)(tiles, step, k, v, key, keyEnd);
    float s[POSITIONS / 16][2][4];
    UNROLL for (int i = 0; i < POSITIONS / 16; i++)
      NAME(row_products)(s[i], rows, tile, 16 * i, exchange);
    NAME(mask_rows)(s, first, key, past + from);
    UNROLL for (int h = 0; h < 2; h++)
      NAME(soften_row)(s, h, &top[h], &total[h], sums, factor * LOG2E, exchange);
    UNROLL for (int i = 0; i < POSITIONS / 16; i++)
      NAME(weigh_positions)(sums, s[i], 0, tile + STEP_SIZE, 16 * i, exchange);
    barrier(CLK_LOCAL_MEM_FENCE); // the step was read
  }
  float share[2];
  UNROLL for (int h = 0; h < 2; h++) {
    const int row = from + NAME(row_of)(2 * h);
    total[h] += other(total[h], 1, exchange);
    total[h] += other(total[h], 2, exchange);
    share[h] = 1.0f / total[h];
    if (lse && row < end && NAME(column_of)(0) == 0)
      lse[((ulong)b * H + head) * T + row] = log_sum(top[h], total[h], factor);
  }
  NAME(store_rows)(o, from, sums, share, 0);
}
