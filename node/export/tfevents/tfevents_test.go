package tfevents

import (
	"bytes"
	"encoding/hex"
	"testing"
	"time"
)

// TestBytes compares records with those that the tensorboard package of PyPI writes for the same events (version 2.18:
// EventFileWriter's RecordWriter and event_pb2).
func TestBytes(t *testing.T) {
	at := time.UnixMicro(1_700_000_000_250_000)
	for name, c := range map[string]struct {
		got  []byte
		want string
	}{
		"header":  {AppendHeader(nil, at), "1800000000000000a37f4b220900001040fc54d9411a0d627261696e2e4576656e743a32338d2fe9"},
		"start":   {AppendStart(nil, at, 300), "100000000000000095fbfe180900001040fc54d94110ac023a0208016b3b88f1"},
		"scalars": {AppendScalars(nil, at, 300, []Scalar{{"loss/train", 3.25}, {"speed", 1e6}}), "2f000000000000006d5d1d500900001040fc54d94110ac022a210a110a0a6c6f73732f747261696e15000050400a0c0a0573706565641500247449095c46a2"},
	} {
		want, err := hex.DecodeString(c.want)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(c.got, want) {
			t.Errorf("%s: %x, want %x", name, c.got, want)
		}
	}
}
