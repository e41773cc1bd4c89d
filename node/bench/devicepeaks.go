package bench

import (
	"slices"
	"strings"
)

// peaks are the dense bf16 rates, with float32 sums, of the makers' data sheets in TFLOP/s, by a part
// of the driver's name of the card; the first that matches counts.
var peaks = []struct {
	model string
	tera  float64
}{
	{"B200", 2250},
	{"H200 NVL", 835},
	{"H200", 989},
	{"GH200", 989},
	{"H100 PCIe", 756},
	{"H100 NVL", 835},
	{"H100", 989},
	{"A100", 312},
	{"A800", 312},
	{"A30", 165},
	{"A10G", 70},
	{"A10", 125},
	{"L40S", 362},
	{"L40", 181},
	{"L4", 121},
	{"RTX 4090", 165},
	{"RTX 3090", 71},
}

// others are words by which the maker tells other cards, or parts of one, from those in the list.
var others = []string{"Laptop", "MIG", "D", "Ti", "SUPER"}

// knownPeak is a card's rate in FLOP/s, if it is in the list.
func knownPeak(model string) (flops float64, known bool) {
	if slices.ContainsFunc(strings.Fields(model), func(word string) bool { return slices.Contains(others, word) }) {
		return 0, false
	}
	words := " " + model + " "
	for _, p := range peaks {
		if strings.Contains(words, " "+p.model+" ") || strings.Contains(words, " "+p.model+"-") {
			return p.tera * 1e12, true
		}
	}
	return 0, false
}
