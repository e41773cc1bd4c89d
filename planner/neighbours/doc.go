// Package neighbours changes an arrangement of devices step by step, for as long as that makes steps of training shorter.
//
// Two nouns:
//
//   - Arrangement: devices in order, and how they are cut into replicas and stages. Its neighbours are one small change away: a layer
//     goes to the next stage, devices change places, another device takes a place, a stage is left out, moved or added.
//   - Walk: goes to the first neighbour that is better, and on from there until none is. It knows devices that are alike, and skips what
//     its caller sees at a glance to be no better.
//
// What an arrangement is worth its caller says: the planner cuts its layers and simulates a step. The package works on numbers of
// devices and layers only, and imports nothing of the project.
package neighbours
