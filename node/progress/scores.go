package progress

import (
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
		p.f("FILE\tTOKENS\tPERPLEXITY\tNATS/TOKEN\tBITS/BYTE\n")
		line := func(name string, s infer.Score) {
			p.f("%s\t%d\t%.4f\t%.6f\t%.6f\n", name, s.Tokens, s.Perplexity(), s.NatsPerToken(), s.BitsPerByte())
		}
		var all infer.Score
		for _, s := range scores {
			line(clean(s.Path), s.Score)
			all = all.Add(s.Score)
		}
		if len(scores) > 1 {
			line("all", all)
		}
	})
}
