package cpu

import "math"

// exp2Generic is 2^x with an error below 3e-7: a minimax polynomial of degree 5 on
// [-1/2, 1/2]. Beyond -126 and 126 it gives the power of these; NaN stays NaN.
func exp2Generic(x float32) float32 {
	x = min(max(x, -126), 126)
	n := float32(math.RoundToEven(float64(x)))
	r := x - n
	p := float32(0.0013276472454890609)
	p = p*r + 0.009675540961325169
	p = p*r + 0.05550713092088699
	p = p*r + 0.24022120237350464
	p = p*r + 0.6931469440460205
	p = p*r + 1
	return math.Float32frombits(math.Float32bits(p) + uint32(int32(n))<<23)
}

func powersGeneric(out, x []float32, scale, shift float32) float32 {
	for i := range out {
		out[i] = exp2Generic((x[i] - shift) * scale)
	}
	return sumGeneric(out)
}

func softmaxGeneric(x []float32, least float32) (top, sum float32) {
	top = max(least, maxGeneric(x))
	for i, v := range x {
		x[i] = exp2Generic(v - top)
	}
	return top, sumGeneric(x)
}

func softmaxGradGeneric(p, dp []float32, lse, delta float32) {
	for i, v := range p {
		p[i] = exp2Generic(v - lse)
		dp[i] = p[i] * (dp[i] - delta)
	}
}

func softmaxHalvesGeneric(out []uint16, x []float32, scale, least float32) (top, sum float32) {
	top = max(least, maxGeneric(x)*scale)
	sum = sumLanes(len(x), func(i int) float32 {
		power := exp2Generic(float32(x[i]*scale) - top) // not fused: a top is never exceeded
		out[i] = flushedBF16(power)
		return power
	})
	return top, sum
}

func softmaxGradHalvesGeneric(p, dp []uint16, x, dx []float32, by *[5]float32) {
	for i, v := range x {
		power := exp2Generic(float32(v*by[0])-by[1]) * by[2]
		p[i] = flushedBF16(power)
		dp[i] = flushedBF16(power * (dx[i] - by[3]) * by[4])
	}
}

// flushedBF16 rounds as VCVTNEPS2BF16 does.
func flushedBF16(x float32) uint16 { return nearestBF16(math.Float32bits(normal(x))) }

// GELU(x) = x/2 * (1 + tanh(u)) = x * sigmoid(2u), u = sqrt(2/pi) * (x + 0.044715 x^3)
// (Hendrycks and Gimpel 2016, section 2).
const (
	geluTwoRootPi = 1.5957691216057308 // 2*sqrt(2/pi)
	geluCube      = 0.044715
	geluLimit     = 10 // beyond it the sigmoid is 0 or 1 to the last bit
)

// geluGate is sigmoid(2u) of the limited x.
func geluGate(x float32) float32 {
	return sigmoid(geluTwoRootPi * x * (1 + geluCube*x*x))
}

func geluGeneric(out, x []float32) {
	for i, v := range x {
		out[i] = v * geluGate(max(min(v, geluLimit), -geluLimit))
	}
}

func geluGradGeneric(dx, dout, x []float32) {
	for i, v := range x {
		v = max(min(v, geluLimit), -geluLimit)
		s := geluGate(v)
		slope := geluTwoRootPi * (1 + 3*geluCube*v*v) // of 2u
		dx[i] = dout[i] * (s + v*s*(1-s)*slope)
	}
}

// sigmoid is 1/(1+exp(-x)).
func sigmoid(x float32) float32 { return 1 / (1 + exp2Generic(-math.Log2E*x)) }

func swigluGeneric(out, gate, up []float32) {
	for i, g := range gate {
		out[i] = g * sigmoid(g) * up[i]
	}
}

func swigluGradGeneric(dgate, dup, dout, gate, up []float32) {
	for i, g := range gate {
		s, d, u := sigmoid(g), dout[i], up[i]
		dup[i] = d * g * s
		dgate[i] = d * u * (s + g*s*(1-s))
	}
}

func adamWGeneric(param, m, v, grad []float32, s *[8]float32) {
	for i := range param {
		g := grad[i] * s[adamGradScale]
		m[i] += s[adamRest1] * (g - m[i])
		v[i] += s[adamRest2] * (g*g - v[i])
		root := float32(math.Sqrt(float64(v[i] * s[adamRate2])))
		param[i] -= s[adamLR] * (m[i]*s[adamRate1]/(root+s[adamEps]) + s[adamDecay]*param[i])
	}
}

func normGeneric(out, x, w, b []float32, mean, rstd float32) {
	for i := range out {
		out[i] = (x[i]-mean)*rstd*w[i] + b[i]
	}
}

func normSumsGeneric(dout, x, w []float32, mean, rstd float32) (plain, weighted float32) {
	plain = dotGeneric(dout, w)
	weighted = sumLanes(len(x), func(i int) float32 { return dout[i] * w[i] * ((x[i] - mean) * rstd) })
	return plain, weighted
}

func normGradGeneric(dx, base, dout, x, w []float32, s *[4]float32) {
	mean, rstd := s[0], s[1]
	for i := range dx {
		dx[i] = base[i] + rstd*(dout[i]*w[i]-s[2]-(x[i]-mean)*rstd*s[3])
	}
}

func normWeightGradGeneric(dw, db, dout, x []float32, mean, rstd float32) {
	for i := range dw {
		dw[i] += dout[i] * ((x[i] - mean) * rstd)
		db[i] += dout[i]
	}
}
