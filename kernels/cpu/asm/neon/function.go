package main

import (
	"bytes"
	"fmt"
	"go/token"
	"go/types"
	"math"
	"strings"
)

// source is the text of the file.
type source struct{ text bytes.Buffer }

func (s *source) line(format string, args ...any) { fmt.Fprintf(&s.text, format+"\n", args...) }

// reg is a general register, vec a vector register of 16 bytes: four floats, unless an
// instruction says otherwise. Its lowest float is the scalar register of its number.
type (
	reg int
	vec int
)

func (r reg) String() string { return fmt.Sprintf("R%d", int(r)) }
func (v vec) String() string { return fmt.Sprintf("V%d", int(v)) }

// generalRegisters has the registers that Go leaves to assembly: not R16 and R17 of the linker, R18
// of the platform, R27 of the assembler, R28 of the goroutine, and what follows.
var generalRegisters = []reg{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 19, 20, 21, 22, 23, 24, 25, 26}

const vectorRegisters = 32

// function is one function while it is generated. Registers are taken and never given
// back, but for those that the body of a loop takes (loop.go).
type function struct {
	file       *source
	name, head string
	arguments  map[string]int // offset in bytes of each argument and result
	sizeBytes  int            // of all of them
	table      []uint32       // constants
	body       source
	regs, vecs int // taken
}

// begin starts a function and says what it computes.
func (s *source) begin(name, signature, doc string) *function {
	f := &function{file: s, name: name, arguments: map[string]int{}}
	f.head = fmt.Sprintf("// func %s%s\n//\n// %s %s", name, strings.TrimPrefix(signature, "func"), name, doc)
	value, err := types.Eval(token.NewFileSet(), nil, token.NoPos, signature)
	if err != nil {
		panic(err)
	}
	sig := value.Type.(*types.Signature)
	f.place(sig.Params())
	if sig.Results().Len() > 0 {
		f.sizeBytes = roundUp(f.sizeBytes, 8)
		f.place(sig.Results())
	}
	return f
}

// place gives the variables their places after those before.
func (f *function) place(variables *types.Tuple) {
	sizes := types.SizesFor("gc", "arm64")
	for v := range variables.Variables() {
		at := roundUp(f.sizeBytes, int(sizes.Alignof(v.Type())))
		name := v.Name()
		if name == "" {
			name = "ret"
		}
		f.arguments[name], f.sizeBytes = at, at+int(sizes.Sizeof(v.Type()))
	}
}

func roundUp(n, unit int) int { return (n + unit - 1) / unit * unit }

// end returns, and writes the function to the file.
func (f *function) end() {
	f.op("RET", "")
	s := f.file
	for i, w := range f.table {
		if i == 0 {
			s.line("")
		}
		s.line("DATA %sConstants<>+%d(SB)/4, $0x%08x", f.name, 4*i, w)
	}
	if len(f.table) > 0 {
		s.line("GLOBL %sConstants<>(SB), RODATA|NOPTR, $%d", f.name, 4*len(f.table))
	}
	s.line("\n%s\nTEXT ·%s(SB), NOSPLIT, $0-%d", f.head, f.name, f.sizeBytes)
	s.text.Write(f.body.text.Bytes())
}

// reg takes a general register.
func (f *function) reg() reg {
	f.regs++
	return generalRegisters[f.regs-1]
}

// vec takes a vector register.
func (f *function) vec() vec {
	if f.vecs == vectorRegisters {
		panic(f.name + ": no vector register left")
	}
	f.vecs++
	return vec(f.vecs - 1)
}

func (f *function) offset(name string) int {
	at, ok := f.arguments[name]
	if !ok {
		panic(f.name + ": no argument " + name)
	}
	return at
}

// word loads 8 bytes of an argument.
func (f *function) word(name, part string, offset int) reg {
	r := f.reg()
	f.op("MOVD", "%s%s+%d(FP), %v", name, part, f.offset(name)+offset, r)
	return r
}

// slice and length are the parts of a slice argument, integer an int or a pointer.
func (f *function) slice(name string) reg   { return f.word(name, "_base", 0) }
func (f *function) length(name string) reg  { return f.word(name, "_len", 8) }
func (f *function) integer(name string) reg { return f.word(name, "", 0) }

// stride loads an int that counts floats and makes it bytes.
func (f *function) stride(name string) reg {
	r := f.integer(name)
	f.op("LSL", "$2, %v, %v", r, r)
	return r
}

// scalar gives an argument of 4 bytes in each lane.
func (f *function) scalar(name string) vec {
	v := f.vec()
	f.op("FMOVS", "%s+%d(FP), F%d", name, f.offset(name), v)
	f.op("VDUP", "%v.S[0], %v.S4", v, v)
	return v
}

// give stores the lowest float as a result.
func (f *function) give(v vec, name string) {
	f.op("FMOVS", "F%d, %s+%d(FP)", v, name, f.offset(name))
}

// constants gives each number in all lanes of a register; a function does this once.
func (f *function) constants(numbers ...float32) []vec {
	words := make([]uint32, len(numbers))
	for i, x := range numbers {
		words[i] = math.Float32bits(x)
	}
	return f.words(words...)
}

// words is constants for integers.
func (f *function) words(words ...uint32) []vec {
	if f.table != nil {
		panic(f.name + ": a second table of constants")
	}
	f.table = words
	at := f.reg()
	f.op("MOVD", "$%sConstants<>(SB), %v", f.name, at)
	return f.eachSpread(at, len(words))
}

// eachSpread loads n numbers from a pointer on, each in all lanes of a register.
func (f *function) eachSpread(at reg, n int) []vec {
	loaded := make([]vec, n)
	for i := range loaded {
		loaded[i] = f.vec()
		f.op("VLD1R.P", "4(%v), [%v.S4]", at, loaded[i])
	}
	return loaded
}
