// Package grace decides for how long replicas with local steps are waited for: when the leader ends a round early, leaves a replica
// out, or has the run go back to its newest checkpoint.
//
// Nouns:
//
//   - A replica that is unable has lost a member, or stands still: it is left out at once. What it had sent to everybody still counts.
//   - A replica hands in what it has done when its round ends. Once one has, the others have a tenth of a round to do so as well. Then the round is
//     closed: each hands in what it has done so far. The log cannot tell who has: it has no word of a replica before that has the messages of all
//     others. Heartbeats tell, and whose messages are lacking. Such a word is one member's: it counts where it is of this round and of a replica that is
//     waited for, and not before half of the round should be over.
//   - After as long again, and twice the time that the messages should take, one replica is left out: the one from which, or to which, the
//     messages of the most micro-batches are lacking; of equals the one with fewer micro-batches, and else the last. Those go first that have not handed in.
//     One that has all messages, by the log, is left out only where several others, with more than half of the micro-batches, say that they lack its own.
//     A slow one without which the rest is no quorum is waited for.
//   - Where messages travel while inner steps of the next round go on, replicas do not end that before it is time for the outer step: graces begin then, at the earliest.
//   - A round of which nothing is heard for twice as long as it should take is closed, too, which costs nobody anything.
//   - A round is lost when those who are not unable are no quorum, or when those who are not in a dispute are none. So it is where nobody can be left out,
//     and what is waited for does not come for so long that nothing comes of it: workers that wait for an outer step have nobody else to end that.
//   - Late follows whom a closed round waits for: plans then count on how long its inner steps take.
//
// The graces are the leader's clock, and begin anew with another leader: what it decides is in the log. The package does no I/O and reads no clock.
//
// Caller: package leader.
package grace
