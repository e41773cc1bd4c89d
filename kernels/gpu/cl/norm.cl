// Layer norm, and RMS norm (Zhang and Sennrich 2019), which is the same without mean and bias:
// there these operands are absent. A work-group takes a row.

// out[N,C] = (x - mean) * rstd * w + bias for x = a or, where b is given, sum = a + b.
KERNEL void norm_forward(BUFFER(float, out), BUFFER(float, sum), BUFFER(float, mean), BUFFER(float, rstd),
                         BUFFER(const float, a), BUFFER(const float, b), BUFFER(const float, w), BUFFER(const float, bias),
                         const int C, const float eps)
{
  local float shared[GROUP];
  AT(out); AT(sum); AT(mean); AT(rstd); AT(a); AT(b); AT(w); AT(bias);
  const ulong row = get_group_id(0), first = row * C;
  global const float *x = a + first;
  if (b) {
    COLUMNS(j, C)
      sum[first + j] = a[first + j] + b[first + j];
    x = sum + first;
  }
  float middle = 0.0f;
  if (mean) {
    float total = 0.0f;
    COLUMNS(j, C)
      total += x[j];
    middle = group_sum(total, shared) / C;
  }
  float squares = 0.0f;
  COLUMNS(j, C)
    squares += (x[j] - middle) * (x[j] - middle);
  const float r = 1.0f / sqrt(group_sum(squares, shared) / C + eps);
  COLUMNS(j, C)
    out[first + j] = (x[j] - middle) * r * w[j] + (bias ? bias[j] : 0.0f);
  if (get_local_id(0) == 0) {
    rstd[row] = r;
    if (mean)
      mean[row] = middle;
  }
}

// dx = residual + rstd * (g - mean of g - norm * mean of g*norm) for g = dout*w and the
// normalised row norm; without mean of g for the RMS norm. dx may be dout, x or residual.
KERNEL void norm_backward_input(BUFFER(float, dx), BUFFER(const float, dout), BUFFER(const float, x), BUFFER(const float, w),
                                BUFFER(const float, mean), BUFFER(const float, rstd), BUFFER(const float, residual), const int C)
{
  local float shared[GROUP];
  AT(dx); AT(dout); AT(x); AT(w); AT(mean); AT(rstd); AT(residual);
  const ulong row = get_group_id(0), first = row * C;
  const float middle = mean ? mean[row] : 0.0f, r = rstd[row];
  float plain = 0.0f, weighted = 0.0f;
  COLUMNS(j, C) {
    const float g = dout[first + j] * w[j];
    plain += g;
    weighted += g * (x[first + j] - middle) * r;
  }
  plain = mean ? group_sum(plain, shared) / C : 0.0f;
  weighted = group_sum(weighted, shared) / C;
  COLUMNS(j, C) {
    const float g = dout[first + j] * w[j], norm = (x[first + j] - middle) * r;
    const float dxj = r * (g - plain - norm * weighted);
    dx[first + j] = residual ? residual[first + j] + dxj : dxj;
  }
}

// First stage of dw (and of db where mean is given): sums over the rows of a part, into
// dwParts[parts,C] and dbParts[parts,C]; add_parts is the second.
KERNEL void norm_weight_parts(BUFFER(float, dwParts), BUFFER(float, dbParts), BUFFER(const float, dout), BUFFER(const float, x),
                              BUFFER(const float, mean), BUFFER(const float, rstd), const int N, const int C, const int rows)
{
  AT(dwParts); AT(dbParts); AT(dout); AT(x); AT(mean); AT(rstd);
  const int column = get_global_id(0), part = get_group_id(1);
  if (column >= C)
    return;
  float dw = 0.0f, db = 0.0f;
  for (int row = part * rows; row < min(N, (part + 1) * rows); row++) {
    const float g = dout[(ulong)row * C + column];
    dw += g * (x[(ulong)row * C + column] - (mean ? mean[row] : 0.0f)) * rstd[row];
    db += g;
  }
  dwParts[(ulong)part * C + column] = dw;
  if (mean)
    dbParts[(ulong)part * C + column] = db;
}
