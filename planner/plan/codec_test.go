package plan

import (
	"encoding/json"
	"errors"
	"testing"
)

func TestCodecRules(t *testing.T) {
	for _, text := range CodecRules() {
		rule, err := ParseCodecRule(text)
		if err != nil || rule.String() != text {
			t.Errorf("%s reads as %v: %v", text, rule, err)
		}
		b, err := json.Marshal(TrainSpec{Codec: rule})
		var back TrainSpec
		if err != nil || json.Unmarshal(b, &back) != nil || back.Codec != rule {
			t.Errorf("%s comes back as %v: %v", text, back.Codec, err)
		}
	}
	if rule, _ := ParseCodecRule("f32"); rule != (CodecRule{}) {
		t.Error("the default is not f32")
	}
	for _, text := range []string{"", "fp4", "auto:", "auto:f32", "auto:fp4", "autobf16", "bf16:auto"} {
		if rule, err := ParseCodecRule(text); !errors.Is(err, ErrBadInput) {
			t.Errorf("%q reads as %v: %v", text, rule, err)
		}
	}
}

func TestAPlanWithAnUnknownCodec(t *testing.T) {
	for codec, good := range map[string]bool{"": true, "f32": true, "int8": true, "int4": true, "fp4": false, "auto": false} {
		p := Plan{Generation: 1, Schedule: "1f1b", Replicas: []Pipeline{{Micros: 1, Warmups: []int{0, 0}, Stages: []Placement{
			{Layers: LayerRange{First: 0, End: 1}, Codec: codec}, {Layers: LayerRange{First: 1, End: 2}},
		}}}}
		if err := p.Validate(2, Sums{1, 1}); (err == nil) != good || (err != nil && !errors.Is(err, ErrBadPlan)) {
			t.Errorf("codec %q: %v", codec, err)
		}
	}
}
