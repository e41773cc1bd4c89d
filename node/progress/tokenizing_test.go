package progress

import (
	"strings"
	"testing"
	"time"

	"pnode/node/dataset/shard"
	"pnode/node/dataset/source"
)

func TestTokenizing(t *testing.T) {
	clock := time.Unix(1000, 0)
	var lines strings.Builder
	show := Tokenizing(&lines, false, func() time.Time { return clock })
	p := shard.Progress{TotalBytes: 100e6, ReadBytes: 30e6, ResumedBytes: 10e6, Counts: shard.Counts{Documents: 7, Tokens: 5_250_000}}
	for range 3 { // 4, 8 and 12 s: only the last is 10 s behind the beginning
		clock = clock.Add(4 * time.Second)
		show(p)
	}
	p.ReadBytes, p.Skipped = p.TotalBytes, source.Skipped{Malformed: 2}
	show(p) // the end is always shown
	want := "30.0 of 100.0 MB, 7 documents, 5,250,000 tokens, 1.7 MB/s, ETA 42 s\n" +
		"100.0 of 100.0 MB, 7 documents, 5,250,000 tokens, 2 malformed left out, 7.5 MB/s, ETA 0 s\n"
	if lines.String() != want {
		t.Errorf("shown:\n%swant:\n%s", &lines, want)
	}
}
