// A work-group for each row of logits [N,V]: one pass for the maximum and the sum of
// exponentials relative to it, one that writes the gradient.
KERNEL void cross_entropy(BUFFER(float, losses), BUFFER(float, logits), BUFFER(const int, targets), const int V,
                          const float factor, global int *fault, const int op)
{
  local float shared[GROUP];
  AT(losses); AT(logits); AT(targets);
  const ulong row = get_group_id(0);
  const int target = targets[row];
  logits += row * V;
  if (target < 0 || !valid(target, 0, V, fault, op)) {
    COLUMNS(j, V)
      logits[j] = 0.0f;
    if (get_local_id(0) == 0)
      losses[row] = 0.0f;
    return;
  }
  float top = LOWEST, sum = 0.0f;
  COLUMNS(j, V) {
    const float x = logits[j], next = fmax(top, x);
    sum = sum * exp2((top - next) * LOG2E) + exp2((x - next) * LOG2E);
    top = next;
  }
  const float highest = group_max(top, shared);
  sum = group_sum(sum * exp2((top - highest) * LOG2E), shared);
  if (get_local_id(0) == 0)
    losses[row] = log2(sum) * LN2 + (highest - logits[target]);
  barrier(CLK_GLOBAL_MEM_FENCE); // the target's logit is read before its gradient is written
  const float share = factor / sum;
  COLUMNS(j, V) {
    const float slope = exp2((logits[j] - highest) * LOG2E) * share;
    logits[j] = j == target ? slope - factor : slope;
  }
}
