package safetensors

import (
	"fmt"
	"slices"
)

// DType is the format's name of an element type.
type DType string

// The types that convert from and to float32.
const (
	F32  DType = "F32"
	F16  DType = "F16"
	BF16 DType = "BF16"
)

// dtypes are the format's types with their sizes, by rising alignment: the reference
// writer's order from back to front.
var dtypes = []struct {
	dtype DType
	bits  int
}{
	{"BOOL", 8},
	{"F4", 4},
	{"F6_E2M3", 6},
	{"F6_E3M2", 6},
	{"U8", 8},
	{"I8", 8},
	{"F8_E5M2", 8},
	{"F8_E4M3", 8},
	{"F8_E8M0", 8},
	{"F8_E4M3FNUZ", 8},
	{"F8_E5M2FNUZ", 8},
	{"I16", 16},
	{"U16", 16},
	{F16, 16},
	{BF16, 16},
	{"I32", 32},
	{"U32", 32},
	{F32, 32},
	{"C64", 64},
	{"F64", 64},
	{"I64", 64},
	{"U64", 64},
}

// rank is the place of a type in dtypes, -1 if it is unknown.
func (d DType) rank() int {
	for i, known := range dtypes {
		if known.dtype == d {
			return i
		}
	}
	return -1
}

func (d DType) bits() int { return dtypes[d.rank()].bits }

// Converts says whether values of this type convert from and to float32.
func (d DType) Converts() bool { return slices.Contains([]DType{F32, F16, BF16}, d) }

// checkConverts is the error of a conversion that is not offered.
func (t Tensor) checkConverts() error {
	if t.DType.Converts() {
		return nil
	}
	return fmt.Errorf("%w: tensor %q holds %s; F32, F16 and BF16 are accepted", ErrDType, t.Name, t.DType)
}
