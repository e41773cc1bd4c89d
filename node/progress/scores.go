package progress

import (
	"fmt"
	"io"

	"pnode/node/infer"
)

// FileScore is the score of a file.
type FileScore struct {
	Path  string
	Score infer.Score
}

// Scores writes a table, with all files together on its last line if there are several.
func Scores(w io.Writer, scores []FileScore) error {
	return table(w, func(p printer) {
		var all infer.Score
		for _, s := range scores {
			all = all.Add(s.Score)
		}
		heading := ""
		if all.Digits > 0 {
			heading = "\tRIGHT DIGITS"
		}
		p.f("FILE\tTOKENS\tPERPLEXITY\tNATS/TOKEN\tBITS/BYTE%s\n", heading)
		line := func(name string, s infer.Score) {
			right := ""
			if s.Digits > 0 {
				right = fmt.Sprintf("\t%.1f%% of %d", 100*float64(s.Right)/float64(s.Digits), s.Digits)
			}
			p.f("%s\t%d\t%.4f\t%.6f\t%.6f%s\n", name, s.Tokens, s.Perplexity(), s.NatsPerToken(), s.BitsPerByte(), right)
		}
		for _, s := range scores {
			line(clean(s.Path), s.Score)
		}
		if len(scores) > 1 {
			line("all", all)
		}
	})
}
