package export

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"pnode/node/api"
	"pnode/node/export/mlflow"
	"pnode/planner/plan"
)

// server is an MLflow server with the requests that are made here, as far as they are written in its REST interface.
type server struct {
	t  *testing.T
	mu sync.Mutex // guards what follows

	experiments map[string]string
	deleted     map[string]bool // experiments; the server keeps them
	runs        map[string]*logged
	down        int    // answers so many requests with 503
	refuse      string // a metric that it refuses
	secret      string // it wants as Authorization
	asked       int
}

// logged is a run on the server.
type logged struct {
	Status  string
	Deleted bool // the server keeps it for a while
	Ended   bool
	Params  map[string]string
	Metrics []mlflow.Metric
}

func newServer(t *testing.T) (*server, string) {
	t.Helper()
	s := &server{t: t, experiments: map[string]string{}, deleted: map[string]bool{}, runs: map[string]*logged{}}
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	return s, h.URL
}

// with lets a test look at the server, or change it.
func (s *server) with(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// ServeHTTP answers a request.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	fail := func(code int, name, text string) {
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(map[string]string{"error_code": name, "message": text})
	}
	if s.down > 0 {
		s.down--
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	if r.Header.Get("Authorization") != s.secret {
		fail(http.StatusUnauthorized, "", "")
		return
	}
	var body struct {
		Name    string          `json:"name"`
		ID      string          `json:"experiment_id"`
		Run     string          `json:"run_id"`
		Status  string          `json:"status"`
		End     int64           `json:"end_time"`
		Start   int64           `json:"start_time"`
		Metrics []mlflow.Metric `json:"metrics"`
		Params  []mlflow.Param  `json:"params"`
	}
	text, err := io.ReadAll(r.Body)
	if err == nil && r.Method == http.MethodPost {
		err = json.Unmarshal(text, &body)
		if strings.Contains(string(text), "null") { // which the server of version 3.17 fails at
			s.t.Errorf("%s: %s", r.URL, text)
		}
	}
	if err != nil {
		s.t.Errorf("%s: %v", r.URL, err)
	}
	answer := any(map[string]string{})
	path, _ := strings.CutPrefix(r.URL.Path, "/api/2.0/mlflow/")
	run := s.runs[body.Run]
	switch r.Method + " " + path {
	case "GET experiments/get-by-name":
		id, there := s.experiments[r.URL.Query().Get("experiment_name")]
		if !there {
			fail(http.StatusNotFound, "RESOURCE_DOES_NOT_EXIST", "no experiment")
			return
		}
		stage := "active"
		if s.deleted[id] {
			stage = "deleted"
		}
		answer = map[string]any{"experiment": map[string]string{"experiment_id": id, "lifecycle_stage": stage}}
	case "POST experiments/create":
		id := fmt.Sprint(len(s.experiments) + 1)
		s.experiments[body.Name] = id
		answer = map[string]string{"experiment_id": id}
	case "POST runs/create":
		if body.ID == "" || body.Start == 0 {
			s.t.Errorf("runs/create: %s", text)
		}
		id := fmt.Sprintf("run%d", len(s.runs)+1)
		s.runs[id] = &logged{Status: "RUNNING", Params: map[string]string{}}
		answer = map[string]any{"run": map[string]any{"info": map[string]string{"run_id": id}}}
	case "POST runs/update", "POST runs/log-batch":
		if run == nil {
			fail(http.StatusNotFound, "RESOURCE_DOES_NOT_EXIST", "no run")
			return
		}
		if run.Deleted {
			fail(http.StatusBadRequest, "INVALID_PARAMETER_VALUE", "The run "+body.Run+" must be in the 'active' state. Current state is deleted.")
			return
		}
		if body.Status != "" {
			run.Status, run.Ended = body.Status, body.End > 0
		}
		if len(body.Metrics) > mlflow.MostMetrics || len(body.Params) > mlflow.MostParams {
			s.t.Errorf("%d metrics and %d params at once", len(body.Metrics), len(body.Params))
		}
		for _, m := range body.Metrics {
			if m.Key == s.refuse {
				fail(http.StatusBadRequest, "INVALID_PARAMETER_VALUE", "bad metric")
				return
			}
		}
		run.Metrics = append(run.Metrics, body.Metrics...)
		for _, p := range body.Params {
			run.Params[p.Key] = p.Value
		}
	default:
		s.t.Errorf("asked for %s %s", r.Method, r.URL)
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// losses returns the steps at which a run has losses.
func (l *logged) losses() (steps []uint64) {
	for _, m := range l.Metrics {
		if m.Key == tagLoss {
			steps = append(steps, m.Step)
		}
	}
	return steps
}

// TestMLflow: one run, with the settings and each step, which goes on at the next start; at the end it is finished.
func TestMLflow(t *testing.T) {
	s, url := newServer(t)
	dir := t.TempDir()
	e, w := opened(t, Options{MLflow: url, Dir: dir, Settings: map[string]string{"lr": "0.005", "long": strings.Repeat("x", 5000)}})
	for step := range 3000 {
		e.Event(made(plan.Step(step+1), 1))
	}
	e.Close()
	s.with(func() {
		run := s.runs["run1"]
		if len(s.runs) != 1 || run.Status != "KILLED" || !run.Ended || len(run.losses()) != 3000 || run.Params["lr"] != "0.005" || run.Params["long"] != "" || s.experiments["pnode"] != "1" {
			t.Errorf("%d runs; %s, %d losses, %v, %v", len(s.runs), run.Status, len(run.losses()), run.Params, s.experiments)
		}
		if m := run.Metrics[0]; m.Key != tagLoss || m.Value != 3.9 || m.Step != 1 || time.Since(time.UnixMilli(m.Timestamp)) > time.Hour {
			t.Errorf("the first value is %+v", m)
		}
	})
	if st, err := os.Stat(filepath.Join(dir, TrackedFile)); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st, err)
	}
	again, _ := opened(t, Options{MLflow: url, Dir: dir})
	again.Event(made(plan.Step(3001), 2))
	again.Event(api.Event{Kind: api.KindDone, Step: 3001, Steps: 3001})
	again.Close()
	s.with(func() {
		if run := s.runs["run1"]; len(s.runs) != 1 || run.Status != "FINISHED" || len(run.losses()) != 3001 {
			t.Errorf("%d runs; %s, %d losses", len(s.runs), run.Status, len(run.losses()))
		}
		delete(s.runs, "run1")
	})
	third, _ := opened(t, Options{MLflow: url, Dir: dir})
	third.Event(made(plan.Step(3002), 3))
	third.Close()
	s.with(func() {
		if run := s.runs["run1"]; run == nil || len(run.losses()) != 1 {
			t.Errorf("after its run was deleted: %v", s.runs)
		}
	})
	if len(w.said) > 0 {
		t.Errorf("said %q", w.said)
	}
}

// TestMLflowRunIsDeleted: a run that somebody deletes, as real servers do that, has another one in its place: at the next start without a
// word, and with one where it goes on. No value is lost.
func TestMLflowRunIsDeleted(t *testing.T) {
	s, url := newServer(t)
	o := Options{MLflow: url, Dir: t.TempDir()}
	log := func(tr *tracked, step plan.Step) error {
		tr.take(Row{made(step, 1), time.Now()})
		return tr.flush(t.Context())
	}
	first, err := newTracked(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := log(first, 1); err != nil {
		t.Fatal(err)
	}
	s.with(func() { s.runs["run1"].Deleted = true })
	again, err := newTracked(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := log(again, 2); err != nil {
		t.Fatalf("at the next start: %v", err)
	}
	s.with(func() { s.runs["run2"].Deleted = true })
	if err := log(again, 3); err == nil || !strings.Contains(err.Error(), "somebody has deleted the run, another one follows: the server answers 400") {
		t.Errorf("while it goes on: %v", err)
	}
	if err := log(again, 4); err != nil {
		t.Error(err)
	}
	s.with(func() {
		if len(s.runs) != 3 || len(s.runs["run2"].losses()) != 1 || len(s.runs["run3"].losses()) != 2 {
			t.Errorf("%d runs", len(s.runs))
		}
		s.runs["run3"].Deleted, s.deleted["1"] = true, true
	})
	_ = log(again, 5) // finds that it is deleted
	if err := log(again, 6); err == nil || !strings.Contains(err.Error(), `the experiment "pnode" is deleted: restore it`) {
		t.Errorf("without its experiment: %v", err)
	}
	s.with(func() { s.deleted["1"] = false })
	if err := log(again, 7); err != nil || len(s.runs["run4"].losses()) != 3 {
		t.Errorf("once it is back: %v, %v", err, s.runs["run4"])
	}
}

// TestMLflowRedirects: credentials go to the server that the user names, and to no other.
func TestMLflowRedirects(t *testing.T) {
	s, elsewhere := newServer(t)
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere+r.URL.RequestURI(), http.StatusTemporaryRedirect)
	}))
	defer h.Close()
	tr, err := newTracked(Options{MLflow: h.URL, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	tr.take(Row{made(1, 1), time.Now()})
	if err := tr.flush(t.Context()); err == nil || !strings.Contains(err.Error(), "the server answers 307") || s.asked > 0 {
		t.Errorf("%v; the other server was asked %d times", err, s.asked)
	}
}

// TestMLflowIsDown: nothing waits for a server that is away, one warning is given, and all is logged once it is back.
func TestMLflowIsDown(t *testing.T) {
	s, url := newServer(t)
	s.down = 2
	var w words
	tr, err := newTracked(Options{MLflow: url, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	q := &queue{sink: tr, warn: w.warn}
	for step := range 3 {
		tr.take(Row{made(plan.Step(step+1), 1), time.Now()})
		q.flush(t.Context())
	}
	s.with(func() {
		if len(s.runs) != 1 || len(s.runs["run1"].losses()) != 3 {
			t.Errorf("%v", s.runs)
		}
	})
	if len(w.said) != 2 || !strings.Contains(w.said[0], "503") || !strings.Contains(w.said[1], "written again") {
		t.Errorf("said %q", w.said)
	}
}

// TestMLflowRefuses: values that the server will never take do not keep others back, and a secret is shown to the server alone.
func TestMLflowRefuses(t *testing.T) {
	s, url := newServer(t)
	t.Setenv(tokenEnv, "sesame")
	s.secret, s.refuse = "Bearer sesame", "bad"
	tr, err := newTracked(Options{MLflow: url, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	tr.metrics = []mlflow.Metric{{Key: "bad"}}
	if err := tr.flush(t.Context()); err == nil || !strings.Contains(err.Error(), "1 values are missing: the server answers 400 INVALID_PARAMETER_VALUE: bad metric") {
		t.Errorf("%v", err)
	}
	tr.take(Row{made(1, 1), time.Now()})
	if err := tr.flush(t.Context()); err != nil || len(s.runs["run1"].losses()) != 1 {
		t.Errorf("%v, %v", err, s.runs)
	}
	t.Setenv(tokenEnv, "")
	with := strings.Replace(url, "http://", "http://ada:secret@", 1)
	other, err := newTracked(Options{MLflow: with, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	other.take(Row{made(1, 1), time.Now()})
	if err := other.flush(t.Context()); err == nil || strings.Contains(err.Error()+other.name(), "secret") {
		t.Errorf("%s: %v", other.name(), err)
	}
}

// TestMLflowIsBounded: values for which a server that is away leaves no room are counted.
func TestMLflowIsBounded(t *testing.T) {
	tr := &tracked{}
	for range mostMetrics {
		tr.take(Row{made(1, 1), time.Now()})
	}
	if len(tr.metrics) != mostMetrics || tr.lost == 0 {
		t.Errorf("%d values wait, %d are lost", len(tr.metrics), tr.lost)
	}
}

// TestNotMLflow: other servers are found out.
func TestNotMLflow(t *testing.T) {
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") }))
	defer h.Close()
	tr, err := newTracked(Options{MLflow: h.URL, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	tr.take(Row{made(1, 1), time.Now()})
	if err := tr.flush(t.Context()); err == nil || !strings.Contains(err.Error(), "is this an MLflow server?") {
		t.Errorf("%v", err)
	}
}
