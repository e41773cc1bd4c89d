package config

import (
	"fmt"
	"slices"
	"strings"
)

// nodeKeys are the settings of a node or of this start alone. All others are part of the
// run's specification, which is fixed when the run starts.
var nodeKeys = []string{"dir", "resume", "local", "cluster", "emulate", "listen", "threads", "devices", "memory", "trace", "json", "log_level"}

// flagOf is the flag of a key.
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
	var free []string
	for _, key := range nodeKeys {
		if key != "resume" {
			free = append(free, flagOf(key))
		}
	}
	return fmt.Errorf("%w: %s cannot be given with --resume: a run's specification is fixed when it starts; only %s can be given, other settings need a new run, without --resume",
		ErrInvalid, shortList(fixed), strings.Join(free, ", "))
}

// shortList names the first few.
func shortList(names []string) string {
	const most = 4
	if len(names) > most {
		return fmt.Sprintf("%s and %d more settings", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}
