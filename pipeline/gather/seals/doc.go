// Package seals has the signatures under messages of a round between replicas with local steps, and what two of them prove.
//
// Nouns:
//
//   - A Message names what a member sends to all other replicas alike: the outer gradient of a layer, or the losses of its replica's inner steps.
//   - A seal is the sender's signature under a message's name and hash, wire.Seal. Who gets a message without a good one does not have it. So nobody has
//     a message that its sender cannot be shown to have sent.
//   - An Exhibit is what a replica's coordinator shows of the messages of one replica in a round: all that plan.Part.Sum is of, with the seals. Two that
//     differ have two seals of one member under one name, which no honest member makes, however many others say so.
//
// It is pure but for the keys that it is given. Callers: package gather, which seals and checks messages; package node/leader/witness, which compares
// what coordinators show.
package seals
