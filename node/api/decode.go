package api

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"iter"
)

// decodeEvents reads one event a line, each at most maxEventBytes long. It ends with the
// first error; a clean end of r just ends the sequence.
func decodeEvents(r io.Reader) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		lines := bufio.NewScanner(r)
		lines.Buffer(make([]byte, 0, 4<<10), maxEventBytes)
		for lines.Scan() {
			var e Event
			if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
				yield(Event{}, fmt.Errorf("api: event %.80q: %w", lines.Bytes(), err))
				return
			}
			if !yield(e, nil) {
				return
			}
		}
		if err := lines.Err(); err != nil {
			yield(Event{}, fmt.Errorf("api: stream of events: %w", err))
		}
	}
}
