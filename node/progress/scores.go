package progress

import (
	"errors"
	"io"
	"text/tabwriter"

	"pnode/node/infer"
)

// FileScore is the score of a file.
type FileScore struct {
	Path  string
	Score infer.Score
}

// Scores writes a table, with all files together on its last line if there are several.
func Scores(w io.Writer, scores []FileScore) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	p := printer{w: t}
	p.f("FILE\tTOKENS\tPERPLEXITY\tNATS/TOKEN\tBITS/BYTE\n")
	var all infer.Score
	for _, s := range scores {
		p.score(clean(s.Path), s.Score)
		all = all.Add(s.Score)
	}
	if len(scores) > 1 {
		p.score("all", all)
	}
	return errors.Join(p.err, t.Flush())
}

func (p *printer) score(name string, s infer.Score) {
	p.f("%s\t%d\t%.4f\t%.6f\t%.6f\n", name, s.Tokens, s.Perplexity(), s.NatsPerToken(), s.BitsPerByte())
}
