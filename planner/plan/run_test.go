package plan

import (
	"encoding/json"
	"testing"

	"pnode/pipeline/model"
)

// TestSettingsOfATrainingThatAreNotGiven keeps specifications readable that were written
// before a setting was there, and their bytes as they were.
func TestSettingsOfATrainingThatAreNotGiven(t *testing.T) {
	const old = `{"seed":1,"steps":2,"micros":4,"micro_batch":4,"lr":0.1,"min_lr":0.01,"warmup_steps":0,"beta1":0.9,"beta2":0.95,"eps":1e-8,` +
		`"decay":0.1,"clip_norm":1,"held_out_every":5,"checkpoint_every":5,"keep_checkpoints":3,"sample_tokens":4,"replicas":0,"stages":0,"uneven_shares":false,"min_nodes":1}`
	var s TrainSpec
	if err := json.Unmarshal([]byte(old), &s); err != nil {
		t.Fatal(err)
	}
	if got, err := json.Marshal(s); err != nil || string(got) != old {
		t.Errorf("got %s (%v)\nwant %s", got, err, old)
	}
}

func TestMemorySettingsOfATraining(t *testing.T) {
	var s, again TrainSpec
	err := json.Unmarshal([]byte(`{"recompute":"outputs","storage":"bf16"}`), &s)
	if err != nil || s.Recompute != Recompute(model.RecomputeOutputs) || s.Storage != Storage(model.StorageBF16) {
		t.Fatalf("got %v, %v (%v)", s.Recompute, s.Storage, err)
	}
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &again); err != nil || again != s {
		t.Errorf("got %+v (%v), want %+v", again, err, s)
	}
	if err := json.Unmarshal([]byte(`{"recompute":"some"}`), &s); err == nil {
		t.Error("a level that there is not is accepted")
	}
	if err := json.Unmarshal([]byte(`{"storage":"f64"}`), &s); err == nil {
		t.Error("a storage that there is not is accepted")
	}
}
