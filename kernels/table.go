package kernels

import (
	"fmt"
	"math"
)

// Class groups ops that run at about the same speed on a device; a node measures one
// figure per class. The zero value is invalid.
type Class uint8

// The classes.
const (
	_ Class = iota
	// ClassMatMul is bound by arithmetic.
	ClassMatMul
	// ClassAttention is bound by arithmetic on small matrices and by exponentials.
	ClassAttention
	// ClassElementwise is bound by memory traffic.
	ClassElementwise
	// ClassOptimizer is bound by memory traffic and runs once a step.
	ClassOptimizer
)

func (c Class) String() string {
	names := [...]string{"invalid", ClassMatMul: "matmul", ClassAttention: "attention", ClassElementwise: "elementwise", ClassOptimizer: "optimizer"}
	if int(c) >= len(names) {
		c = 0
	}
	return names[c]
}

// Role says what an op does with an operand. The zero value is invalid.
type Role uint8

// The roles.
const (
	_ Role = iota
	// In is read.
	In
	// Out is overwritten; with Accumulate it is added to.
	Out
	// InOut is read and written.
	InOut
	// Scratch is overwritten by nothing in particular. It may be longer than needed.
	Scratch
)

// Operand describes one of an op's Args.
type Operand struct {
	Name  string
	Role  Role
	DType DType
	// Optional operands may be the zero View.
	Optional bool
	// Longer operands may have more elements than the op uses.
	Longer bool
	// Yields marks an input that may be the same view as an output.
	Yields bool
	// Half operands may be stored as BF16 or F16 instead of DType, where the device can: all of a
	// call that are, as one of the two.
	Half bool
	// Alike marks operands that are stored as one type, whichever it is.
	Alike bool
	// Rounded marks sums of products of which a device may round a factor to the half that the
	// call reads.
	Rounded bool

	count   func(Call) int
	touched func(Call) int // elements really moved, where that is not count
}

// Count is the number of elements that call c uses of the operand.
func (o Operand) Count(c Call) int { return o.count(c) }

// OpInfo is an op's row of the table.
type OpInfo struct {
	Name     string
	Class    Class
	Operands []Operand
	Dims     string // shape letters of Call.Dims, one each; a small letter may be 0
	Flags    Flags  // which flags the op understands
	// Optional ops may be lacking on a device, whose Supports says ErrUnsupported then.
	Optional bool

	tolerance float64
	flops     func(d Dims) int64
	check     func(c Call) error // what dimensions and operands alone do not tell
}

// Info gives the table's row of op; it panics on an op that does not exist.
func Info(op Op) OpInfo {
	if op == 0 || op >= opCount {
		panic(fmt.Sprintf("kernels: no op %d", op))
	}
	return table[op]
}

// table has one row per operation.
var table = joined(matMulTable, embedTable, normTable, attentionTable, elementwiseTable, optimizerTable, storageTable, quantizeTable, int8Table)

func joined(parts ...map[Op]OpInfo) (t [opCount]OpInfo) {
	for _, part := range parts {
		for op, info := range part {
			t[op] = info
		}
	}
	return t
}

// Ops lists all operations.
func Ops() []Op {
	ops := make([]Op, 0, opCount-1)
	for op := Op(1); op < opCount; op++ {
		ops = append(ops, op)
	}
	return ops
}

func (op Op) String() string {
	if op == 0 || op >= opCount {
		return fmt.Sprintf("op(%d)", uint8(op))
	}
	return table[op].Name
}

// String is the operation with its sizes: `matmul M=6 N=16 K=3`.
func (c Call) String() string {
	s := c.Op.String()
	if c.Op == 0 || c.Op >= opCount {
		return s
	}
	for i, letter := range table[c.Op].Dims {
		s += fmt.Sprintf(" %c=%d", letter, c.Dims[i])
	}
	for _, f := range flagNames {
		if c.Flags&f.flag != 0 {
			s += " " + f.name
		}
	}
	return s
}

var flagNames = []struct {
	flag Flags
	name string
}{{TransA, "transA"}, {TransB, "transB"}, {Accumulate, "accumulate"}, {Inverse, "inverse"}, {Stochastic, "stochastic"}}

// FLOPs is the number of floating-point operations of call c: exact for products, a
// round figure per element for the rest (a division or an exponential counts as some).
func (i OpInfo) FLOPs(c Call) int64 { return i.flops(c.Dims) }

// Bytes is the least memory traffic of call c: each operand read or written once.
func (i OpInfo) Bytes(c Call) int64 {
	total := int64(0)
	for k, o := range i.Operands {
		if o.Optional && !c.Args[k].Present() {
			continue
		}
		moved := o.count
		if o.touched != nil {
			moved = o.touched
		}
		dtype := o.DType
		if o.Half && c.stored(k).Half() {
			dtype = c.stored(k)
		}
		size := int64(moved(c)) * int64(dtype.SizeBytes())
		if o.Role == InOut || o.Role == Out && c.Flags&Accumulate != 0 {
			size *= 2
		}
		total += size
	}
	return total
}

// Tolerance is the relative error that operand k of call c, a result, may have against float64
// arithmetic on the same inputs.
func (i OpInfo) Tolerance(c Call, k int) float64 {
	switch read := i.reads(c); {
	case i.Operands[k].Rounded && read.Half():
		return math.Max(i.tolerance, 4*digit(read)) // factors and result are rounded
	case c.stored(k).Half():
		return math.Max(i.tolerance, 2*digit(c.stored(k))) // rounded twice
	default:
		return i.tolerance
	}
}

// digit is the last one of a half's mantissa, as a share of the number.
func digit(half DType) float64 {
	if half == F16 {
		return 1.0 / (1 << 11)
	}
	return 1.0 / (1 << 8)
}

// stored is the type of operand k; of an absent one the zero value.
func (c Call) stored(k int) DType {
	if !c.Args[k].Present() {
		return 0
	}
	return c.Args[k].Buf.DType()
}

// reads is the half that an input of the call is of, or the zero value.
func (i OpInfo) reads(c Call) DType {
	for k, o := range i.Operands {
		if o.Role == In && c.stored(k).Half() {
			return c.stored(k)
		}
	}
	return 0
}
