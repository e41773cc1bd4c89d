package notice

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"
)

const (
	awsEvery = 5 * time.Second // as Amazon recommends
	// awsNotice is how long before an interruption its notice comes. Hibernation begins at once.
	awsNotice = 2 * time.Minute
	// awsToken is for how long a session token is asked, which is what is allowed at most.
	awsToken = 6 * time.Hour
)

// ec2 asks the metadata service of Amazon EC2. One goroutine uses it.
type ec2 struct {
	client
	token   string
	expires time.Time
	hinted  bool
}

// sources of notices are one: the service takes few questions a second.
func (s *ec2) sources() []source {
	return []source{{name: "AWS spot/instance-action", every: awsEvery, ask: s.ask}}
}

// get returns the value of a key, nil where there is none.
func (s *ec2) get(ctx context.Context, path string) ([]byte, error) {
	if now := time.Now(); s.token == "" || !now.Before(s.expires) {
		token, _, err := s.client.ask(ctx, question{
			method: http.MethodPut, path: "/latest/api/token",
			header: map[string]string{"X-aws-ec2-metadata-token-ttl-seconds": fmt.Sprint(int(awsToken.Seconds()))},
		})
		if err != nil {
			return nil, fmt.Errorf("session token (a container needs a hop limit of 2 for it): %w", err)
		}
		s.token, s.expires = string(token), now.Add(awsToken-time.Minute)
	}
	body, _, err := s.client.ask(ctx, question{method: http.MethodGet, path: path, header: map[string]string{"X-aws-ec2-metadata-token": s.token}})
	switch {
	case status(err, http.StatusNotFound):
		return nil, nil
	case status(err, http.StatusUnauthorized): // the token is not valid any more
		s.token = ""
	}
	return body, err
}

func (s *ec2) ask(ctx context.Context) (*Notice, error) {
	body, err := s.get(ctx, "/latest/meta-data/spot/instance-action")
	if err != nil {
		return nil, err
	}
	if body != nil {
		return decodeAction(body, time.Now())
	}
	if s.hinted {
		return nil, nil
	}
	body, err = s.get(ctx, "/latest/meta-data/events/recommendations/rebalance")
	if body == nil || err != nil {
		return nil, err
	}
	s.hinted = true
	return &Notice{Why: "AWS expects to interrupt this instance (rebalance recommendation)", Hint: true}, nil
}

// decodeAction reads spot/instance-action: {"action": "terminate", "time": "2017-09-18T08:22:00Z"}. A time that cannot be read
// counts as the usual one.
func decodeAction(data []byte, now time.Time) (*Notice, error) {
	var said struct{ Action, Time string }
	if err := json.Unmarshal(data, &said); err != nil {
		return nil, fmt.Errorf("spot/instance-action: %w", err)
	}
	if !slices.Contains([]string{"terminate", "stop", "hibernate"}, said.Action) {
		return nil, fmt.Errorf("spot/instance-action: action %.20q, want terminate, stop or hibernate", said.Action)
	}
	at, err := time.Parse(time.RFC3339, said.Time)
	if err != nil {
		at = now.Add(awsNotice)
	}
	if said.Action == "hibernate" {
		at = now
	}
	return &Notice{Why: fmt.Sprintf("AWS takes this spot instance back (%s)", said.Action), At: between(at, now, awsNotice)}, nil
}
