package synthetic

import (
	"bytes"
	"compress/flate"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strings"
	"testing"
)

func write(t *testing.T, size int) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, size); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestTextIsTheSameEverywhere: losses of two machines can be compared only if their text is the same. A change of the grammar changes the
// sum here.
func TestTextIsTheSameEverywhere(t *testing.T) {
	text := write(t, Bytes)
	sum := sha256.Sum256(text)
	if got, want := hex.EncodeToString(sum[:8]), "2c1472846fda9a88"; got != want {
		t.Errorf("the text has SHA-256 %s..., want %s...; it begins\n%s", got, want, text[:200])
	}
	if len(text) < Bytes-100 || len(text) > Bytes {
		t.Errorf("%d bytes, want whole lines of at most %d", len(text), Bytes)
	}
	if small := write(t, 1000); !bytes.HasPrefix(text, small) || !bytes.HasSuffix(small, []byte("\n")) {
		t.Errorf("a smaller text is not the begin of a larger one:\n%s", small)
	}
	if none := write(t, 3); len(none) != 0 {
		t.Errorf("3 bytes have room for no line, but there is %q", none)
	}
}

// TestLinesAreTrue reads the text as a person would: results are right, and verbs have the number of their subject.
func TestLinesAreTrue(t *testing.T) {
	sentence := regexp.MustCompile(`^(\w+) (\w+) (\w+) (\w+) (\w+) (\w+) (\w+)\.$`)
	var sums, products, sentences int
	for line := range strings.Lines(string(write(t, 1_000_000))) {
		line = strings.TrimSuffix(line, "\n")
		var a, b, result int
		if n, _ := fmt.Sscanf(line, "%d + %d = %d", &a, &b, &result); n == 3 {
			sums++
			if a+b != result || line != fmt.Sprintf("%d + %d = %d", a, b, result) {
				t.Fatalf("%q is wrong", line)
			}
			continue
		}
		if n, _ := fmt.Sscanf(line, "%d * %d = %d", &a, &b, &result); n == 3 {
			products++
			if a*b != result || line != fmt.Sprintf("%d * %d = %d", a, b, result) {
				t.Fatalf("%q is wrong", line)
			}
			continue
		}
		sentences++
		m := sentence.FindStringSubmatch(line)
		if m == nil {
			t.Fatalf("%q is no line of the grammar", line)
		}
		for _, g := range [][]string{{m[1], m[3], m[4]}, {m[5], m[7]}} {
			plural := strings.Contains(" two some these ten ", " "+g[0]+" ")
			for _, word := range g[1:] {
				if isMany(word) != plural {
					t.Fatalf("%q: %q has another number than %q", line, word, g[0])
				}
			}
		}
	}
	if total := sums + products + sentences; min(sums, products, sentences) < total/4 {
		t.Errorf("%d sums, %d products, %d sentences: want as many of each", sums, products, sentences)
	}
}

// isMany reports whether a form stands for more than one.
func isMany(word string) bool {
	for _, list := range [][]noun{animals, verbs, things} {
		for _, n := range list {
			if n.many == word {
				return true
			}
		}
	}
	return false
}

// TestWordsTellTheirChoice: were two choices to make the same text, the floor would be too high.
func TestWordsTellTheirChoice(t *testing.T) {
	if len(one) != len(many) {
		t.Errorf("%d determiners for one and %d for many", len(one), len(many))
	}
	lists := [][]string{append(append([]string{}, one...), many...), adjectives, nil, nil, nil}
	for i, nouns := range [][]noun{animals, verbs, things} {
		for _, n := range nouns {
			lists[2+i] = append(lists[2+i], n.one, n.many)
		}
	}
	for _, list := range lists {
		seen := map[string]bool{}
		for _, word := range list {
			if seen[word] || strings.ContainsAny(word, " .\n") || word == "" {
				t.Errorf("%q comes twice in %v, or is no word", word, list)
			}
			seen[word] = true
		}
	}
}

// TestFloorIsTheEntropy counts lines: their mean length is the one that the floor assumes, and the choices of each come as often as
// equal chances have it.
func TestFloorIsTheEntropy(t *testing.T) {
	text := string(write(t, Bytes))
	lines := strings.Count(text, "\n")
	mean := 0.0
	for _, k := range kinds {
		mean += k.bytes / float64(len(kinds))
	}
	if got := float64(len(text)) / float64(lines); math.Abs(got-mean) > 0.01*mean {
		t.Errorf("a line has %.2f bytes, want %.2f", got, mean)
	}
	// A product has 1,000 equally likely choices, which the text holds often enough to estimate their entropy.
	counts, products := map[string]int{}, 0
	for line := range strings.Lines(text) {
		if strings.Contains(line, " * ") {
			counts[line]++
			products++
		}
	}
	entropy := 0.0
	for _, n := range counts {
		p := float64(n) / float64(products)
		entropy -= p * math.Log(p)
	}
	if want := kinds[1].entropy; math.Abs(entropy-want) > 0.02*want {
		t.Errorf("products have %.3f nats, want %.3f", entropy, want)
	}
	// A compressor is a model too.
	var packed bytes.Buffer
	w, err := flate.NewWriter(&packed, flate.BestCompression)
	if err == nil {
		_, err = w.Write([]byte(text))
		err = errors.Join(err, w.Close())
	}
	nats := float64(packed.Len()) * 8 * math.Ln2 / float64(len(text))
	if err != nil || nats < Floor() {
		t.Errorf("compressed to %.3f nats a byte, %v; the floor is %.3f", nats, err, Floor())
	}
	sentence := math.Log(2*4*8*8) + math.Log(8) + math.Log(2*4*8*8)
	if want := (3*math.Log(3) + math.Log(1000*1000) + math.Log(10*100) + sentence) / (3 * mean); math.Abs(Floor()-want) > 1e-9 {
		t.Errorf("the floor is %v, want %v", Floor(), want)
	}
	t.Logf("floor %.4f nats a byte, %.1f bytes a line, flate %.4f", Floor(), mean, nats)
}

// TestWriteStopsAtAnError: a full disk is told.
func TestWriteStopsAtAnError(t *testing.T) {
	full := errors.New("disk full")
	if err := Write(failing{full}, 1000); !errors.Is(err, full) {
		t.Errorf("got %v, want %v", err, full)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// TestDigitsOfResultsAreFound: of sums and products that are right, in whole lines.
func TestDigitsOfResultsAreFound(t *testing.T) {
	text := "407 + 88 = 495\n2 + 2 = 5\ntwo dogs = 3\n\n7 * 63 = 441\n1 + 1 = 2 \n10 + 9 = 19"
	var got strings.Builder
	for i, is := range Results([]byte(text)) {
		if is {
			got.WriteByte(text[i])
		}
	}
	if got.String() != "495441" {
		t.Errorf("found %q in %q, want the digits of 495 and 441", got.String(), text)
	}
	for _, odd := range []string{"", "\n", "=\n", " = \n", " + = \n", "1 +  = 1\n", "+1 + 1 = 2\n", strings.Repeat("9", 1000) + " + 1 = 2\n", "\xff + \x00 = 1\n"} {
		for _, is := range Results([]byte(odd)) {
			if is {
				t.Errorf("a result is found in %q", odd)
			}
		}
	}
}

// TestUnseenLinesAreNew: none of them is in the text that runs train on, and they are enough to count digits of results in.
func TestUnseenLinesAreNew(t *testing.T) {
	seen := map[string]bool{}
	for line := range bytes.Lines(write(t, Bytes)) {
		seen[string(line)] = true
	}
	unseen := Unseen()
	for line := range bytes.Lines(unseen) {
		if seen[string(line)] || line[len(line)-1] != '\n' {
			t.Errorf("runs train on %q, or it is cut", line)
		}
	}
	digits := 0
	for _, is := range Results(unseen) {
		if is {
			digits++
		}
	}
	if len(unseen) < unseenBytes/2 || digits < 1500 {
		t.Errorf("%d bytes with %d digits of results", len(unseen), digits)
	}
}
