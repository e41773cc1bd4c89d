package otlp

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"pnode/pipeline/trace"
)

// span is a span in OTLP's JSON.
type span struct {
	TraceID    string      `json:"traceId"`
	SpanID     string      `json:"spanId"`
	ParentID   string      `json:"parentSpanId,omitempty"`
	Name       string      `json:"name"`
	Kind       int         `json:"kind"` // 1: internal
	Start      string      `json:"startTimeUnixNano"`
	End        string      `json:"endTimeUnixNano"`
	Attributes []attribute `json:"attributes,omitempty"`
}

type attribute struct {
	Key   string            `json:"key"`
	Value map[string]string `json:"value"`
}

func text(key, value string) attribute {
	return attribute{key, map[string]string{"stringValue": value}}
}

func number(key string, value uint64) attribute {
	return attribute{key, map[string]string{"intValue": strconv.FormatUint(value, 10)}}
}

// identity returns n bytes as hexadecimal digits that follow from texts, the same on all nodes.
func identity(n int, parts ...any) string {
	sum := sha256.Sum256([]byte(fmt.Sprintf("pnode span %#v", parts)))
	return hex.EncodeToString(sum[:n])
}

// requests returns what is sent of a worker's step. Of one that is sent already, only these spans follow.
func (e *Exporter) requests(key stepOf, spans []trace.Span) (all []request) {
	id := identity(16, e.options.Run, uint64(key.generation), uint64(key.step))
	root, own := identity(8, id, "step"), identity(8, id, "worker", key.worker)
	about := []attribute{number("pnode.generation", uint64(key.generation)), number("pnode.step", uint64(key.step))}
	describe := func(own, parent, name string, start, end int64, more ...attribute) span {
		return span{id, own, parent, name, 1, strconv.FormatInt(start, 10), strconv.FormatInt(end, 10), append(slices.Clone(about), more...)}
	}
	from, to := spans[0].Start, spans[0].End
	for _, s := range spans {
		from, to = min(from, s.Start), max(to, s.End)
	}
	var made []span
	worker, late := number("pnode.worker", uint64(key.worker)), slices.Contains(e.sent, key)
	if key.worker == 0 && !late {
		made = append(made, describe(root, "", fmt.Sprintf("step %d", key.step), from, to))
	}
	if !late {
		made = append(made, describe(own, root, fmt.Sprintf("worker %d", key.worker), from, to, worker))
	}
	for _, s := range spans {
		made = append(made, describe(identity(8, own, s.Row, s.Start, s.Name), own, s.Name, s.Start, s.End,
			worker, number("pnode.row", uint64(s.Row)), text("pnode.action", s.Category)))
	}
	resource := map[string]any{"attributes": []attribute{text("service.name", "pnode"), text("service.instance.id", e.options.Node), text("pnode.run", e.options.Run)}}
	for part := range slices.Chunk(made, requestSpans) {
		body, err := json.Marshal(map[string]any{"resourceSpans": []any{map[string]any{
			"resource": resource, "scopeSpans": []any{map[string]any{"scope": map[string]string{"name": "pnode"}, "spans": part}},
		}}})
		if err != nil {
			panic("otlp: texts and numbers do not marshal: " + err.Error())
		}
		all = append(all, request{body, len(part)})
	}
	return all
}
