package gpu

import (
	"embed"
	"fmt"
	"strings"
)

//go:embed cl/*.cl
var files embed.FS

// section is a part of the source: some files under some definitions.
type section struct {
	defines string // `NAME value` lines, without #define
	files   []string
}

// naming makes NAME(kernel) the kernel's name and the value of a macro: attention_64.
func naming(macro string) string {
	return "JOIN_(x, n) x##_##n\nJOIN(x, n) JOIN_(x, n)\nNAME(x) JOIN(x, " + macro + ")"
}

func sections(g Geometry) []section {
	list := []section{{
		fmt.Sprintf("SIDE %d", g.Side),
		[]string{"base", "elementwise", "random", "sums", "optimizer", "norm", "embed", "crossentropy", "quantize", "attentionrows"},
	}}
	for _, r := range tileSizes { // ends with 4, which attention uses
		list = append(list, section{fmt.Sprintf("R %d\n%s", r, naming("R")), []string{"tile", "matmul"}})
	}
	for _, d := range headSizes {
		list = append(list, section{
			fmt.Sprintf("CHANNELS %d\n%s", d, naming("CHANNELS")),
			[]string{"attention", "attentionforward", "attentionbackward"},
		})
	}
	list = append(list, g.Matrix.sections()...)
	if g.Unit != NoUnit {
		list = append(list, g.unitSection())
	}
	return list
}

// sections have the kernels on NVIDIA's matrix units.
func (m Matrix) sections() []section {
	if m == NoMatrix {
		return nil
	}
	defines := ""
	if m == Turing {
		defines = "TURING 1"
	}
	list := []section{{defines, []string{"mma", "matrixparts", "matmulmma"}}}
	for _, half := range m.halves() {
		for _, d := range matrixHeadSizes[m] {
			list = append(list, section{
				fmt.Sprintf("HALF %s\nCHANNELS %d\nTAG %v_%d\n%s", strings.ToUpper(half.String()), d, half, d, naming("TAG")),
				[]string{"attentionmma", "attentionmmaforward", "attentionmmabackward"},
			})
		}
	}
	return list
}

// Source is all kernels for devices of geometry g as one text.
func Source(g Geometry) string { return text(sections(g)) }

// text is sections as one text. Compilers name lines by the files of cl/.
func text(sections []section) string {
	var s strings.Builder
	for k, part := range sections {
		again := k > 0
		for line := range strings.Lines(part.defines) {
			write(&s, "#define "+line, again)
		}
		for _, name := range part.files {
			text, err := files.ReadFile("cl/" + name + ".cl")
			if err != nil {
				panic(err) // a name above is wrong
			}
			fmt.Fprintf(&s, "#line 1 \"%s.cl\"\n", name)
			for line := range strings.Lines(string(text)) {
				write(&s, line, again)
			}
		}
	}
	return s.String()
}

// write adds a line. Sections after the first define some macros again, whose last definition
// holds.
func write(s *strings.Builder, line string, again bool) {
	line = strings.TrimRight(line, "\n")
	if rest, ok := strings.CutPrefix(line, "#define "); ok && again {
		name := rest[:strings.IndexAny(rest+" ", " (")]
		line = "#undef " + name + "\n" + line
	}
	s.WriteString(line + "\n")
}
