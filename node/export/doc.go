// Package export writes the numbers of a run where people keep them: TensorBoard's event files, CSV, and an MLflow server.
//
// # Nouns
//
//   - Options: which of these are wanted.
//   - Exports: takes events and hands them to each sink on a goroutine of its own.
//   - Row: an event and when it came; Scalars gives its numbers their names.
//
// # Rules
//
// Nothing here holds a run up: Event only queues, up to mostQueued rows for each sink, and leaves rows out where a sink is that far
// behind. What a sink takes is written at once, and held where it cannot be: a full disk or a server that does not answer gives one
// warning, is tried again every retryEvery, and loses no row until mostHeld bytes, or mostQueued rows, wait. Close waits for closeTime
// at most.
//
// A run that is resumed goes on in the same places; files with another run's numbers are refused before it begins. Steps that are done again come again, with a later generation: a CSV file has both,
// TensorBoard and MLflow show the later ones.
//
// # Goroutines
//
// One a sink, from Open to Close. The package decides nothing about the run; cmd/pnode opens it, and it imports node/api for the events.
package export
