package notice

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

const (
	azureEvery = time.Second // as Microsoft recommends for events of 30 s
	// azureFirst bounds the first answer: it switches the service on, which takes up to 2 minutes.
	azureFirst = 130 * time.Second
	// azureNotice bounds how long ahead an event may be: 30 s for Preempt, up to 15 minutes for others.
	azureNotice = 15 * time.Minute
	azureEvents = "/metadata/scheduledevents?api-version=2020-07-01"
	azureName   = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"
	// maxEvents bounds the events of a document.
	maxEvents = 256
)

// takesAway are the events after which a machine is gone, or started anew.
var takesAway = []string{"Preempt", "Terminate", "Redeploy", "Reboot"}

// scheduled asks for Azure's scheduled events. One goroutine uses it.
type scheduled struct {
	client
	machine string // its name; empty until it is known
	awake   bool   // the service has answered once
}

func (s *scheduled) sources() []source {
	return []source{{name: "Azure scheduled events", every: azureEvery, ask: s.ask}}
}

var azureHeader = map[string]string{"Metadata": "true"}

func (s *scheduled) ask(ctx context.Context) (*Notice, error) {
	if s.machine == "" { // events of other machines of a scale set come here, too
		name, _, err := s.client.ask(ctx, question{method: http.MethodGet, path: azureName, header: azureHeader})
		if err != nil {
			return nil, err
		}
		if s.machine = strings.TrimSpace(string(name)); s.machine == "" {
			return nil, fmt.Errorf("%s: the machine has no name", azureName)
		}
	}
	q := question{method: http.MethodGet, path: azureEvents, header: azureHeader}
	if !s.awake {
		q.timeout = azureFirst
	}
	body, _, err := s.client.ask(ctx, q)
	if err != nil {
		return nil, err
	}
	s.awake = true
	n, event, err := decodeEvents(body, s.machine, time.Now())
	if n != nil {
		n.Ready = func(ctx context.Context) error { return s.start(ctx, event) }
	}
	return n, err
}

// start tells the platform that an event may begin.
func (s *scheduled) start(ctx context.Context, event string) error {
	type request struct{ EventId string } //nolint:revive,staticcheck // Azure's name
	body, err := json.Marshal(struct{ StartRequests []request }{[]request{{event}}})
	if err != nil {
		return err
	}
	_, _, err = s.client.ask(ctx, question{method: http.MethodPost, path: azureEvents, header: azureHeader, body: strings.NewReader(string(body))})
	return err
}

// decodeEvents returns the notice of the soonest event that takes the machine away, and the event's ID; nil where there is none.
func decodeEvents(data []byte, machine string, now time.Time) (soonest *Notice, id string, err error) {
	var document struct {
		Events []struct {
			EventId, EventStatus, EventType, NotBefore string //nolint:revive,staticcheck // Azure's names
			Resources                                  []string
		}
	}
	if err := json.Unmarshal(data, &document); err != nil {
		return nil, "", fmt.Errorf("scheduled events: %w", err)
	}
	if len(document.Events) > maxEvents {
		return nil, "", fmt.Errorf("scheduled events: %d events, at most %d", len(document.Events), maxEvents)
	}
	for _, e := range document.Events {
		mine := slices.ContainsFunc(e.Resources, func(r string) bool { return strings.EqualFold(r, machine) })
		if !mine || !slices.Contains(takesAway, e.EventType) {
			continue
		}
		at, err := time.Parse(time.RFC1123, e.NotBefore)
		if err != nil { // it has begun, and names no time any more
			at = now
		}
		if at = between(at, now, azureNotice); soonest == nil || at.Before(soonest.At) {
			soonest, id = &Notice{Why: fmt.Sprintf("Azure takes this machine away (%s)", e.EventType), At: at}, e.EventId
		}
	}
	return soonest, id, nil
}
