// Package formula holds the numbers that the generators of every architecture write into
// the assembly of package cpu: constants, whose plain Go kernels say where they come from,
// and the layout of a tile.
package formula

// Exp2 are the coefficients of the polynomial for 2^x on [-1/2, 1/2], of x^5 first.
var Exp2 = [6]float32{0.0013276472454890609, 0.009675540961325169, 0.05550713092088699, 0.24022120237350464, 0.6931469440460205, 1}

// GELU(x) = x * sigmoid(2u) with 2u = GELUTwoRootPi * (x + GELUCube x^3), x limited to
// [-GELULimit, GELULimit].
const (
	GELUTwoRootPi = 1.5957691216057308 // 2*sqrt(2/pi)
	GELUCube      = 0.044715
	GELULimit     = 10
)

// Multipliers and rounds of Philox4x32.
const (
	PhiloxA      = 0xD2511F53
	PhiloxB      = 0xCD9E8D57
	PhiloxRounds = 10
)
