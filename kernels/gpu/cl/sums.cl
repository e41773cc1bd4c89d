// Sums in two stages, both in an order that depends on the sizes only. What the first stage
// leaves in `partial` the second adds up, one part after the other.

// partial[parts,C]: work-group (column block, part) adds the rows of its part.
KERNEL void column_sum_parts(BUFFER(float, partial), BUFFER(const float, in), const int N, const int C, const int rows)
{
  AT(partial); AT(in);
  const int column = get_global_id(0), part = get_group_id(1);
  if (column >= C)
    return;
  float sum = 0.0f;
  for (int row = part * rows; row < min(N, (part + 1) * rows); row++)
    sum += in[(ulong)row * C + column];
  partial[(ulong)part * C + column] = sum;
}

// out[C] (+)= the sum of the parts.
KERNEL void add_parts(BUFFER(float, out), BUFFER(const float, partial), const int C, const int parts, const int accumulate)
{
  AT(out); AT(partial);
  const int column = get_global_id(0);
  if (column >= C)
    return;
  float sum = 0.0f;
  for (int part = 0; part < parts; part++)
    sum += partial[(ulong)part * C + column];
  out[column] = accumulate ? out[column] + sum : sum;
}

// partial[groups]: the squares, added with the rounding error carried along (Kahan 1965), since
// an element may be one of billions.
KERNEL void sum_squares_parts(BUFFER(float, partial), BUFFER(const float, x), const ulong n)
{
  local float shared[GROUP];
  AT(partial); AT(x);
  float sum = 0.0f, lost = 0.0f;
  EACH(i, n) {
    const float term = x[i] * x[i] - lost, next = sum + term;
    lost = (next - sum) - term;
    sum = next;
  }
  sum = group_sum(sum, shared);
  if (get_local_id(0) == 0)
    partial[get_group_id(0)] = sum;
}

// One work-group: out[0] = the sum of partial[count].
KERNEL void sum_parts(BUFFER(float, out), BUFFER(const float, partial), const int count)
{
  local float shared[GROUP];
  AT(out); AT(partial);
  float sum = 0.0f;
  COLUMNS(j, count)
    sum += partial[j];
  sum = group_sum(sum, shared);
  if (get_local_id(0) == 0)
    out[0] = sum;
}
