package otlp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// refusal is an answer that is no success.
type refusal struct {
	code int
	text string
}

func (r *refusal) Error() string {
	return fmt.Sprintf("the collector answers %d %s", r.code, r.text)
}

// later reports whether the same request may be taken later.
func (r *refusal) later() bool {
	switch r.code {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// help says what can be done about it.
func (r *refusal) help() string {
	switch {
	case r.code >= 300 && r.code < 400:
		return "name the address that it leads to"
	case r.code == http.StatusUnauthorized || r.code == http.StatusForbidden:
		return "give it its key in " + HeadersEnv
	case r.code == http.StatusNotFound || r.code == http.StatusMethodNotAllowed:
		return "name the address where it takes OTLP over HTTP, as a rule port 4318"
	case r.code == http.StatusRequestEntityTooLarge:
		return "have it take requests of 2 MB"
	}
	return "its log may say why"
}

// post makes one request.
func (e *Exporter) post(ctx context.Context, sent request) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, e.at, bytes.NewReader(sent.body))
	if err != nil {
		return err
	}
	r.Header = e.headers.Clone()
	r.Header.Set("Content-Type", "application/json")
	resp, err := e.http.Do(r)
	if err != nil {
		if u := (*url.Error)(nil); errors.As(err, &u) {
			err = u.Err // without the URL, which others say
		}
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("read the collector's answer: %w", err)
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return &refusal{resp.StatusCode, clip(strings.TrimSuffix(http.StatusText(resp.StatusCode)+": "+string(text), ": "))}
	}
	var answer struct {
		Partial struct {
			Rejected json.Number `json:"rejectedSpans"`
			Message  string      `json:"errorMessage"`
		} `json:"partialSuccess"`
	}
	if json.Unmarshal(text, &answer) != nil {
		return nil
	}
	rejected, err := answer.Partial.Rejected.Int64()
	switch says := clip(answer.Partial.Message); {
	case err == nil && rejected > 0:
		e.missing.refused += int(min(rejected, int64(sent.spans)))
		e.tell("rejected", strings.TrimSuffix("spans are missing: the collector does not take all: its log may say why: "+says, ": "))
	case says != "":
		e.tell("says", "the collector takes all, and says: "+says)
	}
	return nil
}

// clip returns a text of others on one line of bounded length.
func clip(text string) string {
	return strings.ToValidUTF8(strings.Join(strings.Fields(text[:min(len(text), maxDetail)]), " "), "")
}
