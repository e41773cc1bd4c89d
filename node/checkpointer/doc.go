// Package checkpointer saves the state of a run's stages and keeps it where it can be had.
//
// # Nouns
//
//   - Checkpointer: this node's part. It saves the stages that run here, holds copies of
//     other nodes' stages, and drops what a newer checkpoint replaces.
//   - Stored: tells the log that what it has in this node's memory since a pause is durable by now.
//   - PlanSaver: a Checkpointer as the workers of one plan use it (pipeline.Keeper).
//   - Fetcher: brings chunks here from the members that have them.
//   - ID: tells checkpoints apart; after a rollback a step is saved once more.
//
// A checkpoint counts when the consensus log names every layer of it. It is then committed
// here: its manifest is stored, and the pins and checkpoints that it replaces are dropped.
//
// It decides neither when to save nor which checkpoint a plan starts from. It starts no goroutines but
// two that end a copy when another plan is to follow or its holder does not answer, and those that fetch from several members, which it waits for. Packages node and node/generation
// call it; it never imports node, its other rooms but node/api, or pipeline/link.
package checkpointer
