// Loshchilov and Hutter 2019, algorithm 2. correction1 = 1-beta1^t, correction2 = 1-beta2^t.
KERNEL void adamw(BUFFER(float, param), BUFFER(float, m), BUFFER(float, v), BUFFER(const float, grad), const ulong n,
                  const float rate, const float beta1, const float beta2, const float eps, const float decay,
                  const float correction1, const float correction2, const float gradScale)
{
  AT(param); AT(m); AT(v); AT(grad);
  EACH(i, n) {
    const float g = grad[i] * gradScale;
    const float first = beta1 * m[i] + (1.0f - beta1) * g;
    const float second = beta2 * v[i] + (1.0f - beta2) * g * g;
    const float update = first / correction1 / (sqrt(second / correction2) + eps);
    m[i] = first;
    v[i] = second;
    param[i] -= rate * (update + decay * param[i]);
  }
}
