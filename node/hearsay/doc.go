// Package hearsay has the commits of steps in which this node has no part told by members that took them, and writes them into its
// ledger, so that the ledgers of the living prove every step when the folders of all who computed it are gone.
//
// # Nouns
//
//   - Hearsay: this node's part. It asks, and answers others from what its own workers took.
//   - statement: what one member answered (ledger.Word), after it was checked.
//   - view: what this node knows of the run by itself, from the log.
//
// # Who is believed
//
// Nobody is, but everybody's word is written down under the name of who gave it, and pnode audit compares. A commit is written
// when two members of its plan told of it, whatever each of them said. One is enough where the log
// has a checkpoint of that step or a later one, since then there was such a commit, or where the plan has no second
// member. So a member alone cannot have others write down steps that never were, and two that do not agree are both
// named by the audit. Word is never passed on: who asks gets what the workers here took. Two members that lie
// together about steps that no honest one's ledger has are not found out.
//
// It follows the positions of commits, from the newest one in its ledger on: without a gap, but for steps that nobody who is
// there has taken. A node that was away, or joins late, gets what it missed that way, as far back as the others remember.
//
// It starts no goroutines: package node runs Run. It imports consensus for the state's nouns, never node or its other rooms
// but ledger.
package hearsay
