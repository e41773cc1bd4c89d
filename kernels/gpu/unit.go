package gpu

import "fmt"

// Unit is a kind of matrix units that are not NVIDIA's. The zero value is none.
type Unit uint8

// The kinds, by the instruction for bf16. NVIDIA's are Geometry.Matrix.
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

// section is the part of the source that has the kernels on the unit.
func (u Unit) section() section {
	return section{"UNIT " + units[u].macro, []string{"unitbase", units[u].file, "unitpanel", "unitemulated", "matmulunit", "unitparts"}}
}

// UnitSource is the source of the kernels on a unit, alone: for a trial of it.
func UnitSource(u Unit) string {
	return text([]section{{fmt.Sprintf("SIDE %d", unitSide), []string{"base"}}, u.section()})
}

// Shape is what one instruction of a unit computes, [Rows,Columns], and how many work-items do it.
type Shape struct{ Lanes, Rows, Columns int }

// Shape is that of a kind.
func (u Unit) Shape() Shape { return units[u].shape }

// unitSide is the Side of geometries with a unit.
const unitSide = 16

// WithUnit is the geometry for devices that have a unit.
func WithUnit(u Unit) Geometry { return Geometry{Side: unitSide, Unit: u} }

// unitNames are the kernels for bf16 on a unit, by how a and b are stored.
var unitNames = [2][2]string{{"matmul_unit_nn", "matmul_unit_nt"}, {"matmul_unit_tn", "matmul_unit_tt"}}
