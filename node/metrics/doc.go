// Package metrics exports what a node knows of its run to Prometheus.
//
// # Nouns
//
//   - Source: functions that say what is known now; package node fills it.
//   - Family: a metric with its type, help and labels. Families lists all that there are, and docs/metrics.md says the same.
//   - Exporter: answers scrapes by a look at its Source, and counts events for what only grows.
//
// # Cost
//
// A step of training does nothing for this package. A scrape takes one status of the node, as the page does once a second; events,
// of which there is one a step, are counted on the goroutine of whoever calls Event.
//
// # Bounds
//
// Names and devices of members are labels, and members are not trusted: a label is cut at maxLabel bytes, and of stages, devices,
// links and replicas mostListed are exported, those of this node first. All other labels have values from closed lists.
//
// # Who may look
//
// Handler checks nothing: the local API puts it behind its key, and Listen offers it to whoever reaches an address that the user
// named, to GET and nothing else. What runs here, and its errors, are in it; keys, data and weights are not.
//
// The package decides nothing, and nothing depends on it but package node. It is the only importer of Prometheus' client.
package metrics
