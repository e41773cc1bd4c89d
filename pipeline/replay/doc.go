// Package replay brings the state of workers that are gone up to the newest committed step. A step is a pure
// function of the state before it and of what others send. So whoever has a worker's state of an older step, and
// what the others sent it since, computes the same bits again, without anybody else computing anything.
//
//   - Logs keep what this node's workers send to other nodes, in the newest steps, within a budget of bytes; a Log has one generation.
//   - AppendFrames and DecodeFrames are its content on the wire.
//   - Frames are the messages that the living sent to the lost workers, step by step; Frames.For is the
//     collective.Exchange with which a pipeline.Worker computes its steps again. What it sends goes nowhere, but for
//     messages between lost workers that are replayed together.
//
// Messages of saves and reports are not kept. Commits are for who goes on in a lost worker's place (Log.After); a replay
// has them from pipeline.Config.Replay, since they are the same for all workers.
//
// The package decides nothing and asks nobody: package node brings kept messages from node to node.
package replay
