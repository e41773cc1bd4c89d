package gpu

import (
	"fmt"
	"strings"

	"pnode/kernels"
)

// Unit is a kind of matrix units that are not NVIDIA's. The zero value is none.
type Unit uint8

// The kinds, by the instructions for halves. NVIDIA's are Geometry.Matrix.
const (
	NoUnit Unit = iota
	// WMMA11 is that of AMD's RDNA3 and 3.5, WMMA12 of RDNA4, MFMA of CDNA2 to 4.
	WMMA11
	WMMA12
	MFMA
	// DPAS8 is that of Intel's cards with sub-groups of 8 (Arc A), DPAS16 of those with 16 (Data
	// Center GPU Max, Arc B).
	DPAS8
	DPAS16
)

// Units are all kinds.
var Units = [...]Unit{WMMA11, WMMA12, MFMA, DPAS8, DPAS16}

// units are the names of kinds in the source, the file that has them, what people call them, and
// their shapes.
var units = [...]struct {
	macro, file, text string
	shape             Shape
}{
	WMMA11: {"WMMA11", "unitamd", "AMD's WMMA of RDNA3", Shape{32, 16, 16}},
	WMMA12: {"WMMA12", "unitamd", "AMD's WMMA of RDNA4", Shape{32, 16, 16}},
	MFMA:   {"MFMA", "unitamd", "AMD's MFMA", Shape{64, 16, 16}},
	DPAS8:  {"DPAS8", "unitintel", "Intel's DPAS, 8 wide", Shape{8, 8, 8}},
	DPAS16: {"DPAS16", "unitintel", "Intel's DPAS, 16 wide", Shape{16, 8, 16}},
}

func (u Unit) String() string {
	if int(u) < len(units) && u != NoUnit {
		return units[u].text
	}
	return fmt.Sprintf("Unit(%d)", uint8(u))
}

// UnitHalves has the types that units multiply.
var UnitHalves = [...]kernels.DType{kernels.BF16, kernels.F16}

// unitSection is the part of the source that has the kernels on a geometry's unit.
func (g Geometry) unitSection() section {
	defines := "UNIT " + units[g.Unit].macro
	for _, half := range UnitHalves {
		if g.OnUnit(half) {
			defines += fmt.Sprintf("\nUNIT_%s 1", strings.ToUpper(half.String()))
		}
	}
	return section{defines, []string{"unitbase", units[g.Unit].file, "unitpanel", "unitemulated", "matmulunit", "unitparts"}}
}

// UnitSource is the source of the kernels on a geometry's unit, alone: for a trial of it.
func UnitSource(g Geometry) string {
	return text([]section{{fmt.Sprintf("SIDE %d", g.Side), []string{"base"}}, g.unitSection()})
}

// Shape is the result of one instruction of a unit, [Rows,Columns], and the number of work-items that compute it.
type Shape struct{ Lanes, Rows, Columns int }

// Shape returns the shape of an instruction of this kind.
func (u Unit) Shape() Shape { return units[u].shape }

// unitSide is the Side of geometries with a unit.
const unitSide = 16

// WithUnit is the geometry for devices that have a unit.
func WithUnit(u Unit) Geometry { return Geometry{Side: unitSide, Unit: u} }

// OnUnit reports whether the geometry's unit multiplies operands of a type.
func (g Geometry) OnUnit(dtype kernels.DType) bool {
	switch dtype {
	case kernels.BF16:
		return g.Unit != NoUnit && !g.VectorBF16
	case kernels.F16:
		return g.Unit != NoUnit && !g.VectorF16
	default:
		return false
	}
}

// Without is the geometry for a device that lacks something of its unit.
func (g Geometry) Without(l Lacks) Geometry {
	g.VectorBF16, g.VectorF16 = l.FastBF16 != nil, l.FastF16 != nil
	if g.VectorBF16 && g.VectorF16 {
		g.Unit = NoUnit
	}
	return g
}
