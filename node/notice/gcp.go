package notice

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	// gcpNotice is how long a preempted instance has.
	gcpNotice = 30 * time.Second
	// gcpHold is how long the service is asked to hold a question that waits for a change, gcpTimeout how long the
	// answer may take.
	gcpHold    = time.Minute
	gcpTimeout = gcpHold + 20*time.Second
	// gcpRest is the time between two answers at least: a service that does not hold questions is not asked at once.
	gcpRest = time.Second
)

// compute asks the metadata service of Google Compute Engine.
type compute struct{ client }

// sources returns the two keys that say that an instance stops.
func (s compute) sources() []source {
	preempted := watched{client: s.client, key: "instance/preempted", notice: func(value string, now time.Time) (*Notice, error) {
		return decodePreempted(value, now)
	}}
	stopping := watched{client: s.client, key: "instance/shutdown-details/stop-state", notice: func(value string, _ time.Time) (*Notice, error) {
		return decodeStopState(value), nil
	}}
	return []source{
		{name: "GCP " + preempted.key, every: gcpRest, ask: preempted.ask},
		{name: "GCP " + stopping.key, every: gcpRest, ask: stopping.ask},
	}
}

// watched is a key whose changes are waited for.
type watched struct {
	client
	key    string
	tag    string // of the newest answer; empty before the first, which comes at once
	notice func(value string, now time.Time) (*Notice, error)
}

func (w *watched) ask(ctx context.Context) (*Notice, error) {
	query := url.Values{}
	if w.tag != "" {
		query = url.Values{"wait_for_change": {"true"}, "last_etag": {w.tag}, "timeout_sec": {fmt.Sprint(int(gcpHold.Seconds()))}}
	}
	path := "/computeMetadata/v1/" + w.key
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	body, header, err := w.client.ask(ctx, question{
		method: http.MethodGet, path: path, timeout: gcpTimeout,
		header: map[string]string{"Metadata-Flavor": "Google"}, proof: "Metadata-Flavor",
	})
	if status(err, http.StatusNotFound) {
		return nil, errAbsent
	}
	if err != nil {
		w.tag = ""
		return nil, err
	}
	w.tag = header.Get("ETag")
	return w.notice(string(body), time.Now())
}

// decodePreempted reads TRUE or FALSE.
func decodePreempted(value string, now time.Time) (*Notice, error) {
	switch strings.TrimSpace(value) {
	case "TRUE":
		return &Notice{Why: "GCP takes this spot instance back (preempted)", At: now.Add(gcpNotice)}, nil
	case "FALSE":
		return nil, nil
	}
	return nil, fmt.Errorf("instance/preempted is %.20q, want TRUE or FALSE", value)
}

// decodeStopState reads the state of a graceful shutdown, which begins before an instance is preempted where it is switched
// on. How long it lasts is the owner's setting.
func decodeStopState(value string) *Notice {
	if strings.TrimSpace(value) != "PENDING_STOP" {
		return nil
	}
	return &Notice{Why: "GCP is about to stop this instance (graceful shutdown)"}
}
