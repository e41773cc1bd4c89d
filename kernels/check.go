package kernels

import (
	"fmt"
	"unicode"
)

// Check reports whether the operands of the call fit its operation and dimensions: nil, or
// an error that wraps ErrBadCall or ErrUnsupported. Backends call it before they run
// anything.
func (c Call) Check() error {
	if c.Op == 0 || c.Op >= opCount {
		return fmt.Errorf("%w: no operation %d", ErrBadCall, uint8(c.Op))
	}
	return table[c.Op].permits(&c)
}

// permits is Call.Check for a call of this operation. Neither is copied: devices check every call.
func (i *OpInfo) permits(c *Call) error {
	if err := i.checkDims(c); err != nil {
		return err
	}
	for k := range c.Args {
		if k >= len(i.Operands) {
			if c.Args[k].Present() {
				return fmt.Errorf("%w: %v: operand %d is one too many", ErrBadCall, *c, k)
			}
			continue
		}
		if err := i.checkOperand(c, k); err != nil {
			return err
		}
	}
	if err := i.checkAlike(c); err != nil {
		return err
	}
	if err := i.checkHalves(c); err != nil {
		return err
	}
	if err := i.checkOverlap(c); err != nil || i.check == nil {
		return err
	}
	if err := i.check(*c); err != nil {
		return fmt.Errorf("%w: %v: %w", ErrBadCall, *c, err)
	}
	return nil
}

func (i *OpInfo) checkDims(c *Call) error {
	if extra := c.Flags &^ i.Flags; extra != 0 {
		return fmt.Errorf("%w: %v: flags %b have no meaning here", ErrBadCall, *c, extra)
	}
	product := 1
	for k, letter := range i.Dims {
		d, least := c.Dims[k], 1
		if unicode.IsLower(letter) {
			least = 0
		}
		if d < least {
			return fmt.Errorf("%w: %v: %c must be at least %d", ErrBadCall, *c, letter, least)
		}
		// An operand has each dimension once at most, and a factor of up to 40: a row of int8 weights takes a whole panel.
		if d > maxElements/product {
			return fmt.Errorf("%w: %v: too large", ErrBadCall, *c)
		}
		if least > 0 { // else it is added to another one
			product *= d
		}
	}
	return nil
}

// maxElements bounds the product of a call's dimensions so that no size overflows.
const maxElements = 1 << 56

func (i *OpInfo) checkOperand(c *Call, k int) error {
	o, v := &i.Operands[k], &c.Args[k]
	if !v.Present() {
		if o.Optional {
			return nil
		}
		return fmt.Errorf("%w: %v: operand %s is absent", ErrBadCall, *c, o.Name)
	}
	if got := v.Buf.DType(); got != o.DType && !(o.Half && got.Half()) {
		if o.DType == F32 && got.Half() {
			return fmt.Errorf("%w: %v: operand %s as %v", ErrUnsupported, *c, o.Name, got)
		}
		return fmt.Errorf("%w: %v: operand %s is %v, want %v", ErrBadCall, *c, o.Name, got, o.DType)
	}
	if n := v.Buf.Len(); v.Off < 0 || v.Len < 0 || v.Off > n || v.Len > n-v.Off {
		return fmt.Errorf("%w: %v: operand %s is elements [%d, %d) of a buffer of %d", ErrBadCall, *c, o.Name, v.Off, v.Off+v.Len, n)
	}
	want := o.count(*c)
	if v.Len < want || v.Len > want && !o.Longer {
		return fmt.Errorf("%w: %v: operand %s has %d elements, want %d", ErrBadCall, *c, o.Name, v.Len, want)
	}
	return nil
}

// checkAlike refuses operands of two types where the op wants one.
func (i *OpInfo) checkAlike(c *Call) error {
	first := -1
	for k := range i.Operands {
		o := &i.Operands[k]
		switch {
		case !o.Alike:
		case first < 0:
			first = k
		case c.Args[k].Buf.DType() != c.Args[first].Buf.DType():
			return fmt.Errorf("%w: %v: %s is %v and %s is %v, want one type for both", ErrBadCall, *c,
				i.Operands[first].Name, c.Args[first].Buf.DType(), o.Name, c.Args[k].Buf.DType())
		}
	}
	return nil
}

// checkHalves refuses both halves in one call, and rounding by chance where there is F16.
func (i *OpInfo) checkHalves(c *Call) error {
	first := -1
	for k := range i.Operands {
		o := &i.Operands[k]
		switch half := c.stored(k); {
		case !half.Half():
		case half == F16 && c.Flags&Stochastic != 0:
			return fmt.Errorf("%w: %v: stochastic rounding with %s as f16", ErrUnsupported, *c, o.Name)
		case first < 0:
			first = k
		case half != c.stored(first):
			return fmt.Errorf("%w: %v: %s is %v and %s is %v, want one half for both", ErrBadCall, *c,
				i.Operands[first].Name, c.stored(first), o.Name, half)
		}
	}
	return nil
}

// checkOverlap refuses outputs that share memory with another operand, except the very
// same view where an input allows it.
func (i *OpInfo) checkOverlap(c *Call) error {
	for k := range i.Operands {
		o := &i.Operands[k]
		if o.Role == In || !c.Args[k].Present() {
			continue
		}
		for j := range i.Operands {
			p, a, b := &i.Operands[j], &c.Args[k], &c.Args[j]
			apart := a.Buf != b.Buf || a.Off >= b.Off+b.Len || b.Off >= a.Off+a.Len
			if j == k || apart || p.Yields && *a == *b {
				continue
			}
			return fmt.Errorf("%w: %v: operands %s and %s overlap", ErrBadCall, *c, o.Name, p.Name)
		}
	}
	return nil
}

// CheckTransfer reports whether v is a range of its buffer that holds so many bytes, as
// Queue.Write and Queue.Read need it: nil or an error that wraps ErrBadCall.
func (v View) CheckTransfer(bytes int) error {
	if !v.Present() {
		return fmt.Errorf("%w: transfer of an absent view", ErrBadCall)
	}
	if n := v.Buf.Len(); v.Off < 0 || v.Len < 0 || v.Off > n || v.Len > n-v.Off || v.Len*v.Buf.DType().SizeBytes() != bytes {
		return fmt.Errorf("%w: transfer of %d bytes for elements [%d, %d) of %d", ErrBadCall, bytes, v.Off, v.Off+v.Len, n)
	}
	return nil
}
