// Package hardware opens, limits and measures what this machine computes on.
//
// # Nouns
//
//   - Machine: the devices in use, how much of their memory may be taken, and the profile
//     that was measured. It loses devices that stop working, and is measured again.
//   - Options: the values that choose and limit the devices.
//   - Emulation: what a device and its links are made to look like (config.Emulation).
//   - Dry run: the members of a plan without a run, from a cluster file or this machine.
//
// Package node opens one Machine per process and gossips its profile; `pnode plan` makes dry
// runs. node/generation gets devices of it. The package starts no goroutine, knows no plan, and talks to no other node: link
// measurements are brought to it. It imports neither swarm nor planner's search.
package hardware
