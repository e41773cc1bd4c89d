package config

import (
	"fmt"
	"slices"
	"strings"
)

// nodeKeys lists the settings of a node or of this start alone. All others are part of the run's specification, which is
// fixed when the run starts.
var nodeKeys = []string{"dir", "resume", "local", "cluster", "emulate", "name", "listen", "threads", "devices", "memory", "trace", "json", "log_level"}

// flagOf returns the flag of a key.
func flagOf(key string) string { return "--" + strings.ReplaceAll(key, "_", "-") }

// refuseFixed refuses settings of the run's specification for a run that is resumed: in
// the file by name, or given by flag. The error wraps ErrInvalid.
func refuseFixed(file string, inFile []string, given func(key string) bool) error {
	var fixed []string
	for _, key := range Keys() {
		switch {
		case slices.Contains(nodeKeys, key):
		case given(key):
			fixed = append(fixed, flagOf(key))
		case slices.Contains(inFile, key):
			fixed = append(fixed, key+" (in "+file+")")
		}
	}
	if len(fixed) == 0 {
		return nil
	}
	const most = 4
	if more := len(fixed) - most; more > 0 {
		fixed = append(fixed[:most:most], fmt.Sprintf("%d more settings", more))
		fixed = append(fixed[:most-1], fixed[most-1]+" and "+fixed[most])
	}
	var free []string
	for _, key := range nodeKeys {
		if key != "resume" {
			free = append(free, flagOf(key))
		}
	}
	return fmt.Errorf("%w: %s cannot be given with --resume: a run's specification is fixed when it starts; only %s can be given, other settings need a new run, without --resume",
		ErrInvalid, strings.Join(fixed, ", "), strings.Join(free, ", "))
}
