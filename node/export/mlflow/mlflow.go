// Package mlflow logs numbers to an MLflow tracking server, by version 2.0 of its REST API
// (https://mlflow.org/docs/latest/rest-api.html): an experiment by its name, a run in it, and batches of metrics.
//
// Every request has a time limit, and answers are read up to a limit. The package starts no goroutine and tries nothing twice: whoever
// calls it decides that.
package mlflow

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
	"time"
)

// Limits of one request, as the server has them.
const (
	MostMetrics = 1000
	MostParams  = 100
	// MaxParamBytes bounds a parameter's value; versions before 2.8 took 500.
	MaxParamBytes = 500
)

const (
	requestTimeout = 10 * time.Second
	maxAnswer      = 1 << 20
	maxDetail      = 300 // of an error's text
)

// Metric is a value of a series at a step.
type Metric struct {
	Key       string  `json:"key"`
	Value     float64 `json:"value"`
	Timestamp int64   `json:"timestamp"` // milliseconds since 1970
	Step      uint64  `json:"step"`
}

// Param is a setting of a run: a text that does not change.
type Param struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// Status is a run's state.
type Status string

// The states that are set here.
const (
	Running  Status = "RUNNING"
	Finished Status = "FINISHED"
	Killed   Status = "KILLED"
)

// Error is the server's answer to a request that it refused.
type Error struct {
	HTTP int    // status code
	Code string // as in "RESOURCE_DOES_NOT_EXIST"; empty where the answer has none
	Text string
}

func (e *Error) Error() string {
	return strings.TrimRight(fmt.Sprintf("the server answers %d %s: %s", e.HTTP, e.Code, e.Text), ": ")
}

// Missing reports whether an error says that there is no such experiment or run.
func Missing(err error) bool {
	e := (*Error)(nil)
	return errors.As(err, &e) && (e.Code == "RESOURCE_DOES_NOT_EXIST" || e.HTTP == http.StatusNotFound)
}

// Refused reports whether an error says that the same request will not be taken later either.
func Refused(err error) bool {
	e := (*Error)(nil)
	return errors.As(err, &e) && e.HTTP == http.StatusBadRequest
}

// Credentials hold what a server asks for; empty is nothing.
type Credentials struct{ Token, User, Password string }

// Client talks to one server.
type Client struct {
	base        *url.URL
	credentials Credentials
	http        *http.Client
}

// New returns a client of a server. Credentials in its URL go before those that are given.
func New(server string, c Credentials) (*Client, error) {
	u, err := url.Parse(server)
	switch {
	case err != nil:
		return nil, errors.New("want the URL of an MLflow server, as in http://127.0.0.1:5000")
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, errors.New("want the URL of an MLflow server, as in http://127.0.0.1:5000 or https://mlflow.example")
	case u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("want a URL without what follows a ? or #")
	}
	if u.User != nil {
		password, _ := u.User.Password()
		c, u.User = Credentials{User: u.User.Username(), Password: password}, nil
	}
	return &Client{base: u, credentials: c, http: &http.Client{Timeout: requestTimeout, CheckRedirect: stay}}, nil
}

// stay follows no redirect: numbers and credentials are for this server alone.
func stay(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// URL returns the server's, without credentials.
func (c *Client) URL() string { return c.base.String() }

// Experiment returns the ID of an experiment, which is made where there is none. A deleted one, which servers keep, takes no runs.
func (c *Client) Experiment(ctx context.Context, name string) (id string, err error) {
	id, err = c.experiment(ctx, name)
	if !Missing(err) {
		return id, err
	}
	var made struct {
		ID string `json:"experiment_id"`
	}
	err = c.post(ctx, "experiments/create", map[string]string{"name": name}, &made)
	if e := (*Error)(nil); errors.As(err, &e) && e.Code == "RESOURCE_ALREADY_EXISTS" { // another node was quicker
		return c.experiment(ctx, name)
	}
	return made.ID, err
}

func (c *Client) experiment(ctx context.Context, name string) (string, error) {
	var found struct {
		Experiment struct {
			ID    string `json:"experiment_id"`
			Stage string `json:"lifecycle_stage"`
		} `json:"experiment"`
	}
	err := c.do(ctx, http.MethodGet, "experiments/get-by-name?experiment_name="+url.QueryEscape(name), nil, &found)
	if found.Experiment.Stage == "deleted" {
		return "", fmt.Errorf("the experiment %q is deleted: restore it with `mlflow experiments restore`, or name another one in MLFLOW_EXPERIMENT_NAME", name)
	}
	return found.Experiment.ID, err
}

// Create begins a run in an experiment and returns its ID.
func (c *Client) Create(ctx context.Context, experiment, name string, at time.Time) (run string, err error) {
	var made struct {
		Run struct {
			Info struct {
				ID string `json:"run_id"`
			} `json:"info"`
		} `json:"run"`
	}
	err = c.post(ctx, "runs/create", map[string]any{
		"experiment_id": experiment, "run_name": name, "start_time": at.UnixMilli(), "tags": []Param{{"mlflow.source.name", "pnode"}},
	}, &made)
	if err == nil && made.Run.Info.ID == "" {
		err = errors.New("the server names no run: is this an MLflow server?")
	}
	return made.Run.Info.ID, err
}

// Update sets a run's state. A run that ends has an end time; one that goes on has none.
func (c *Client) Update(ctx context.Context, run string, s Status, at time.Time) error {
	update := map[string]any{"run_id": run, "status": s}
	if s != Running {
		update["end_time"] = at.UnixMilli()
	}
	return c.post(ctx, "runs/update", update, nil)
}

// Log adds metrics and parameters to a run, MostMetrics and MostParams at most.
func (c *Client) Log(ctx context.Context, run string, metrics []Metric, params []Param) error {
	return c.post(ctx, "runs/log-batch", struct { // servers fail at a list that is null
		Run     string   `json:"run_id"`
		Metrics []Metric `json:"metrics,omitempty"`
		Params  []Param  `json:"params,omitempty"`
	}{run, metrics, params}, nil)
}

func (c *Client) post(ctx context.Context, path string, body, answer any) error {
	return c.do(ctx, http.MethodPost, path, body, answer)
}

// do makes one request. The answer may be nil.
func (c *Client) do(ctx context.Context, method, path string, body, answer any) error {
	var content io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return err
		}
		content = bytes.NewReader(b)
	}
	r, err := http.NewRequestWithContext(ctx, method, strings.TrimRight(c.base.String(), "/")+"/api/2.0/mlflow/"+path, content)
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	switch {
	case c.credentials.User != "":
		r.SetBasicAuth(c.credentials.User, c.credentials.Password)
	case c.credentials.Token != "":
		r.Header.Set("Authorization", "Bearer "+c.credentials.Token)
	}
	resp, err := c.http.Do(r)
	if err != nil {
		if u := (*url.Error)(nil); errors.As(err, &u) {
			err = u.Err // without the URL, which others say
		}
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("read the server's answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return refusal(resp.StatusCode, text)
	}
	if answer == nil {
		return nil
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return fmt.Errorf("the server's answer is no JSON: is this an MLflow server? %w", err)
	}
	return nil
}

// refusal reads the body of an answer that is no success.
func refusal(code int, text []byte) error {
	var body struct {
		Code    string `json:"error_code"`
		Message string `json:"message"`
	}
	if json.Unmarshal(text, &body) != nil || body.Message == "" {
		body.Message = http.StatusText(code)
	}
	body.Message = strings.ToValidUTF8(body.Message[:min(len(body.Message), maxDetail)], "")
	return &Error{HTTP: code, Code: body.Code, Text: strings.Join(strings.Fields(body.Message), " ")}
}
