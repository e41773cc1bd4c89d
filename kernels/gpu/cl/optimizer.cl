// AdamW after Loshchilov and Hutter 2019, algorithm 2. correction1 = 1-beta1^t,
// correction2 = 1-beta2^t. The new parameters go to `rounded` too, in halves, where it is given.

// `...` is the parameter of that.
#define ADAMW_OPERANDS(...) \
  BUFFER(float, param), BUFFER(float, m), BUFFER(float, v), __VA_ARGS__, BUFFER(const float, grad)

#define ADAMW_SCALARS \
  const float rate, const float beta1, const float beta2, const float eps, const float decay, \
  const float correction1, const float correction2, const float gradScale

#define ADAMW_AT AT(param); AT(m); AT(v); AT(grad)

// The new parameter i.
#define ADAMW(i) \
  adamw_update(param, m, v, grad, i, rate, beta1, beta2, eps, decay, correction1, correction2, gradScale)

INLINE float adamw_update(global float *param, global float *m, global float *v, global const float *grad, ulong i, ADAMW_SCALARS)
{
  const float g = grad[i] * gradScale;
  const float first = beta1 * m[i] + (1.0f - beta1) * g;
  const float second = beta2 * v[i] + (1.0f - beta2) * g * g;
  const float update = first / correction1 / (sqrt(second / correction2) + eps);
  m[i] = first;
  v[i] = second;
  return param[i] -= rate * (update + decay * param[i]);
}

KERNEL void adamw(ADAMW_OPERANDS(BUFFER(void, rounded), const int roundedType), const ulong n, ADAMW_SCALARS)
{
  ADAMW_AT;
  EACH(i, n) {
    const float x = ADAMW(i);
    if (rounded)
      put(rounded, roundedAt + i, roundedType, x);
  }
}

// The copy is in bf16.
KERNEL void adamw_by_chance(ADAMW_OPERANDS(BUFFER(ushort, rounded)), NUMBERED, ADAMW_SCALARS)
{
  ADAMW_AT; AT(rounded);
  BLOCKS(block) {
    uint word[4];
    philox_words(word, block, stream, key);
    UNROLL
    for (int k = 0; k < 4; k++) {
      const ulong i = ELEMENT(block, k);
      if (i < n)
        rounded[i] = to_bf16_by_chance(ADAMW(i), word[k]);
    }
  }
}
