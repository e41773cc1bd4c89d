// Operations on each element for itself.

KERNEL void add(BUFFER(float, out), BUFFER(const float, a), BUFFER(const float, b), const ulong n)
{
  AT(out); AT(a); AT(b);
  EACH(i, n)
    out[i] = a[i] + b[i];
}

KERNEL void scale(BUFFER(float, x), const ulong n, const float factor)
{
  AT(x);
  EACH(i, n)
    x[i] *= factor;
}

// out may be a or b. Every element whose number is a multiple of the period gets some more: the diagonal of a square matrix.
KERNEL void combine(BUFFER(float, out), BUFFER(const float, a), BUFFER(const float, b), const ulong n, const ulong period,
                    const float as, const float bs, const float more)
{
  AT(out); AT(a); AT(b);
  EACH(i, n)
    out[i] = as * a[i] + bs * b[i] + (period && i % period == 0 ? more : 0.0f);
}

KERNEL void fill(BUFFER(float, x), const ulong n, const float value)
{
  AT(x);
  EACH(i, n)
    x[i] = value;
}

// Copies, and changes the storage type where those of both sides differ.
KERNEL void cast(BUFFER(void, out), const int outType, BUFFER(const void, x), const int xType, const ulong n)
{
  EACH(i, n)
    put(out, outAt + i, outType, get(x, xAt + i, xType));
}

INLINE float sigmoid(float x) { return 1.0f / (1.0f + exp2(-LOG2E * x)); }

// GELU with the tanh approximation is x*sigmoid(2u) for u = sqrt(2/pi)*(x + 0.044715*x^3).
#define GELU_LINEAR 1.59576912160573071176f
#define GELU_CUBIC 0.044715f

INLINE float gelu_gate(float x) { return sigmoid(GELU_LINEAR * (x + GELU_CUBIC * x * x * x)); }

KERNEL void gelu_forward(BUFFER(float, out), BUFFER(const float, x), const ulong n)
{
  AT(out); AT(x);
  EACH(i, n)
    out[i] = x[i] * gelu_gate(x[i]);
}

KERNEL void gelu_backward(BUFFER(float, dx), BUFFER(const float, dout), BUFFER(const float, x), const ulong n)
{
  AT(dx); AT(dout); AT(x);
  EACH(i, n) {
    const float v = x[i], gate = gelu_gate(v);
    const float slope = GELU_LINEAR * (1.0f + 3.0f * GELU_CUBIC * v * v);
    dx[i] = dout[i] * (gate + v * gate * (1.0f - gate) * slope);
  }
}

// A work-group for each row: gate [F], then up [F].
KERNEL void swiglu_forward(BUFFER(float, out), BUFFER(const float, gateUp), const int F)
{
  AT(out); AT(gateUp);
  out += get_group_id(0) * (ulong)F;
  gateUp += get_group_id(0) * (ulong)F * 2;
  COLUMNS(j, F)
    out[j] = gateUp[j] * sigmoid(gateUp[j]) * gateUp[F + j];
}

// dgateUp may be gateUp.
KERNEL void swiglu_backward(BUFFER(float, dgateUp), BUFFER(const float, dout), BUFFER(const float, gateUp), const int F)
{
  AT(dgateUp); AT(dout); AT(gateUp);
  dgateUp += get_group_id(0) * (ulong)F * 2;
  gateUp += get_group_id(0) * (ulong)F * 2;
  dout += get_group_id(0) * (ulong)F;
  COLUMNS(j, F) {
    const float gate = gateUp[j], up = gateUp[F + j], s = sigmoid(gate);
    dgateUp[j] = dout[j] * up * (s + gate * s * (1.0f - s));
    dgateUp[F + j] = dout[j] * gate * s;
  }
}

// A work-group for each row of x [N,width], whose first heads*D channels are turned.
KERNEL void rope(BUFFER(float, x), BUFFER(const float, cosines), BUFFER(const float, sines),
                 const int T, const int start, const int heads, const int D, const int width, const float direction)
{
  AT(x); AT(cosines); AT(sines);
  const int pairs = D / 2;
  const ulong row = get_group_id(0), position = start + row % T;
  x += row * width;
  COLUMNS(j, heads * pairs) {
    const int low = j / pairs * D + j % pairs, high = low + pairs;
    const float c = cosines[position * pairs + j % pairs];
    const float s = sines[position * pairs + j % pairs] * direction;
    const float a = x[low], b = x[high];
    x[low] = a * c - b * s;
    x[high] = b * c + a * s;
  }
}
