// Package notice hears that this machine is about to be taken away: signals, and the metadata services of clouds
// that take spot instances back.
//
// # Nouns
//
//   - Notice: who says that the machine goes, why, and until when.
//   - Setting: which cloud is asked, and where; the value of --notices.
//   - source: one thing to ask a metadata service for, and how often.
//
// Under "auto" the firmware's name of the maker says in which cloud this machine is. Elsewhere nothing is asked: no
// connection is made, no goroutine stays.
//
// # Sources
//
//   - AWS: a session token (IMDSv2, PUT), then spot/instance-action every 5 s, and the rebalance recommendation, which
//     is a hint alone. Amazon EC2 User Guide, "Spot Instance interruption notices".
//   - GCP: instance/preempted and instance/shutdown-details/stop-state, each by a question that waits for a change.
//     Compute Engine, "Spot VMs", "Graceful shutdown"; the second key as Google's guest agent reads it.
//   - Azure: scheduled events each second, those of this machine. Acknowledged with a POST once the node is ready to
//     go, which lets the platform begin. Azure, "Scheduled Events for Linux VMs", API version 2020-07-01.
//
// # What answers is not trusted
//
// Answers are read up to a bound, each question has a deadline, redirects are not followed, and no proxy is asked: the
// addresses are link-local. A wrong answer is an error in the log, and the question is asked again, less and less often.
//
// Package node starts Watch, and cmd/pnode makes notices of signals. It imports nothing of the project.
package notice
