package synthetic

import (
	"bytes"
	"strconv"
	"strings"
)

// unseenBytes bounds the lines that Unseen chooses from: they hold about 2,000 digits of results.
const unseenBytes = 40_000

// Unseen returns lines as Write makes them, but none that occurs in a text of the usual size: no run trains on them. Products are too few to be among
// them.
func Unseen() []byte {
	var b bytes.Buffer
	if err := Write(&b, Bytes+unseenBytes); err != nil { // a buffer takes all
		panic(err)
	}
	all := b.Bytes()
	trained := bytes.LastIndexByte(all[:Bytes], '\n') + 1 // a text is as many lines as fit
	seen := map[string]bool{}
	for line := range bytes.Lines(all[:trained]) {
		seen[string(line)] = true
	}
	var unseen []byte
	for line := range bytes.Lines(all[trained:]) {
		if !seen[string(line)] {
			unseen = append(unseen, line...)
		}
	}
	return unseen
}

// Results reports of each byte of a text whether it is a digit of the right result of a sum or product, in a line as Write makes them.
func Results(text []byte) []bool {
	all, at := make([]bool, len(text)), 0
	for line := range bytes.Lines(text) {
		at += len(line)
		if whole, ended := bytes.CutSuffix(line, []byte{'\n'}); ended { // the last line may be cut
			for i := range resultOf(whole) {
				all[at-2-i] = true
			}
		}
	}
	return all
}

// operations compute the results of sums and products.
var operations = []struct {
	sign    string
	compute func(a, b uint64) uint64
}{
	{" + ", func(a, b uint64) uint64 { return a + b }},
	{" * ", func(a, b uint64) uint64 { return a * b }},
}

// resultOf returns how many digits the right result has at the end of a line; 0 where there is none.
func resultOf(line []byte) (digits int) {
	const longest = 64
	if len(line) > longest {
		return 0
	}
	operands, result, found := strings.Cut(string(line), " = ")
	if !found {
		return 0
	}
	for _, op := range operations {
		first, second, found := strings.Cut(operands, op.sign)
		a, errA := strconv.ParseUint(first, 10, 31)
		b, errB := strconv.ParseUint(second, 10, 31)
		if found && errA == nil && errB == nil && result == strconv.FormatUint(op.compute(a, b), 10) {
			return len(result)
		}
	}
	return 0
}
