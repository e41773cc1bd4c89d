package export

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"pnode/node/api"
	"pnode/node/export/mlflow"
)

// Variables of MLflow's own clients.
const (
	ExperimentEnv = "MLFLOW_EXPERIMENT_NAME"
	tokenEnv      = "MLFLOW_TRACKING_TOKEN"
	userEnv       = "MLFLOW_TRACKING_USERNAME"
	passwordEnv   = "MLFLOW_TRACKING_PASSWORD"
)

const (
	// usualExperiment has runs for which no other one is named.
	usualExperiment = "pnode"
	// TrackedFile keeps in the run's folder which MLflow run it is.
	TrackedFile     = "mlflow.json"
	maxTrackedBytes = 4 << 10
	// mostMetrics bounds the values that wait for a server.
	mostMetrics = 64 * mlflow.MostMetrics
)

// trackedRun says which MLflow run a folder's run is.
type trackedRun struct {
	URL        string `json:"url"`
	Experiment string `json:"experiment"`
	Run        string `json:"run"`
}

// tracked logs rows to an MLflow server.
type tracked struct {
	client   *mlflow.Client
	file     string
	label    string // of the run, for people
	settings map[string]string
	run      trackedRun
	begun    bool // the server has the run, as one that runs
	metrics  []mlflow.Metric
	lost     int // values for which there was no room
	done     bool
}

// newTracked reads which MLflow run the folder's run is. The server is asked when there is something to log.
func newTracked(o Options) (*tracked, error) {
	c, err := mlflow.New(o.MLflow, mlflow.Credentials{Token: os.Getenv(tokenEnv), User: os.Getenv(userEnv), Password: os.Getenv(passwordEnv)})
	if err != nil {
		return nil, fmt.Errorf("--mlflow: %w", err)
	}
	t := &tracked{
		client: c, file: filepath.Join(o.Dir, TrackedFile), label: filepath.Base(o.Dir), settings: o.Settings,
		run: trackedRun{URL: c.URL(), Experiment: cmp.Or(os.Getenv(ExperimentEnv), usualExperiment)},
	}
	var before trackedRun
	st, err := os.Stat(t.file)
	if err == nil && st.Size() <= maxTrackedBytes {
		if text, err := os.ReadFile(t.file); err == nil && json.Unmarshal(text, &before) == nil && before.URL == t.run.URL && before.Experiment == t.run.Experiment {
			t.run = before
		}
	}
	return t, nil
}

func (t *tracked) batches() bool { return true }

func (t *tracked) name() string { return "--mlflow " + t.run.URL }

// take keeps the values of an event.
func (t *tracked) take(r Row) {
	t.done = t.done || r.Kind == api.KindDone && r.Step == r.Steps
	for _, s := range Scalars(r.Event) {
		if len(t.metrics) == mostMetrics {
			t.lost++
			continue
		}
		t.metrics = append(t.metrics, mlflow.Metric{Key: s.Tag, Value: s.Value, Timestamp: r.Time.UnixMilli(), Step: uint64(r.Step)})
	}
}

// flush sends what waits, in batches.
func (t *tracked) flush(ctx context.Context) error {
	if len(t.metrics) == 0 {
		return nil
	}
	if err := t.begin(ctx); err != nil {
		return err
	}
	for len(t.metrics) > 0 {
		n := min(len(t.metrics), mlflow.MostMetrics)
		err := t.client.Log(ctx, t.run.Run, t.metrics[:n], nil)
		if mlflow.Missing(err) || mlflow.Refused(err) && gone(t.client.Update(ctx, t.run.Run, mlflow.Running, time.Time{})) {
			t.run.Run, t.begun = "", false
			return fmt.Errorf("somebody has deleted the run, another one follows: %w", err)
		}
		if err != nil && !mlflow.Refused(err) {
			return err
		}
		t.metrics = slices.Delete(t.metrics, 0, n)
		if err != nil {
			return fmt.Errorf("%d values are missing: %w", n, err)
		}
	}
	if n := t.lost; n > 0 {
		t.lost = 0
		return fmt.Errorf("%d values are missing: there was no room for them", n)
	}
	return nil
}

// gone reports whether an Update says that its run is deleted. Servers keep a deleted run for a while, and then refuse what changes it; there
// is nothing else in an Update to refuse.
func gone(err error) bool { return mlflow.Missing(err) || mlflow.Refused(err) }

// begin makes the MLflow run, or goes on with that of the start before.
func (t *tracked) begin(ctx context.Context) error {
	if t.begun {
		return nil
	}
	if t.run.Run != "" {
		err := t.client.Update(ctx, t.run.Run, mlflow.Running, time.Time{})
		if err == nil {
			t.begun = true
			return nil
		}
		if !gone(err) {
			return err
		}
	}
	experiment, err := t.client.Experiment(ctx, t.run.Experiment)
	if err != nil {
		return err
	}
	if t.run.Run, err = t.client.Create(ctx, experiment, t.label, time.Now()); err != nil {
		return err
	}
	t.begun = true
	text, err := json.Marshal(t.run)
	if err == nil {
		err = os.WriteFile(t.file, append(text, '\n'), 0o600)
	}
	if err := t.client.Log(ctx, t.run.Run, nil, t.params()); err != nil && !mlflow.Refused(err) {
		return err
	}
	if err != nil {
		return fmt.Errorf("a later start will begin another MLflow run: %w", err)
	}
	return nil
}

// params returns the settings in the server's bounds.
func (t *tracked) params() (all []mlflow.Param) {
	for _, key := range slices.Sorted(maps.Keys(t.settings)) {
		value := t.settings[key]
		if len(value) <= mlflow.MaxParamBytes && len(all) < mlflow.MostParams {
			all = append(all, mlflow.Param{Key: key, Value: value})
		}
	}
	return all
}

// close says how the run has ended: finished, or stopped, to be resumed or not.
func (t *tracked) close(ctx context.Context) error {
	if !t.begun {
		return nil
	}
	status := mlflow.Killed
	if t.done {
		status = mlflow.Finished
	}
	if err := t.client.Update(ctx, t.run.Run, status, time.Now()); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("its run is not ended: %w", err)
	}
	return nil
}
