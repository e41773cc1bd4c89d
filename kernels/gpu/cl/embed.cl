// A work-group for each row: out[B,T,C] = wte[token] + wpe[t]. A token outside the
// vocabulary leaves zeros and a fault.
KERNEL void embed_forward(BUFFER(float, out), BUFFER(const int, tokens), BUFFER(const void, wte), const int wteType,
                          BUFFER(const float, wpe), const int T, const int C, const int V, global int *fault, const int op)
{
  AT(out); AT(tokens); AT(wpe);
  const ulong row = get_group_id(0);
  const int token = tokens[row], known = valid(token, 0, V, fault, op);
  COLUMNS(j, C) {
    float x = known ? get(wte, wteAt + (ulong)token * C + j, wteType) : 0.0f;
    if (wpe)
      x += wpe[row % T * C + j];
    out[row * C + j] = x;
  }
}

// Whether a row of tokens[from, to) has the token; same[GROUP] tells which rows of the
// block that starts at `from` have it. Every work-item gets the answer.
INLINE int find(local int *same, local int *any, global const int *tokens, int token, int from, int to)
{
  const int item = get_local_id(0);
  barrier(CLK_LOCAL_MEM_FENCE);
  if (item == 0)
    *any = 0;
  barrier(CLK_LOCAL_MEM_FENCE);
  same[item] = from + item < to && tokens[from + item] == token;
  if (same[item])
    *any = 1;
  barrier(CLK_LOCAL_MEM_FENCE);
  return *any;
}

// dwte[V,C] by token. The work-group of the first row with a token adds all rows with it, in
// ascending order; the others have nothing to do.
KERNEL void embed_backward_tokens(BUFFER(float, dwte), BUFFER(const float, dout), BUFFER(const int, tokens),
                                  const int N, const int C, const int V, global int *fault, const int op)
{
  local int same[GROUP];
  local int any;
  AT(dwte); AT(dout); AT(tokens);
  const int row = get_group_id(0), token = tokens[row];
  if (!valid(token, 0, V, fault, op))
    return;
  for (int from = 0; from < row; from += GROUP)
    if (find(same, &any, tokens, token, from, row))
      return;
  for (int from = row; from < N; from += GROUP) {
    if (!find(same, &any, tokens, token, from, N))
      continue;
    COLUMNS(j, C) {
      float sum = dwte[(ulong)token * C + j];
      for (int i = 0; i < min(GROUP, N - from); i++)
        if (same[i])
          sum += dout[(ulong)(from + i) * C + j];
      dwte[(ulong)token * C + j] = sum;
    }
  }
}

// dwpe[T,C] by position: a work-item adds the B rows of its element in ascending order.
KERNEL void embed_backward_positions(BUFFER(float, dwpe), BUFFER(const float, dout), const int B, const ulong n)
{
  AT(dwpe); AT(dout);
  EACH(i, n) {
    float sum = dwpe[i];
    for (int b = 0; b < B; b++)
      sum += dout[b * n + i];
    dwpe[i] = sum;
  }
}
