// Package page holds what a browser needs to show a run: HTML, style and script, as they are in
// files. There is nothing in them about any run; the script asks the node that served it
// (package api), with the key behind the # of the page's URL.
//
//   - main.js: starts, asks again every second, and says when the node is gone.
//   - node.js: the requests, and the stream of events.
//   - admission.js: an invite, and machines that ask to be let in, with a key that only the page of `pnode watch` has.
//   - dom.js: makes elements. What nodes tell becomes text, never markup.
//   - words.js: numbers, times and names for people.
//   - curve.js, scale.js, chart.js: the curves of the run, axes, and the chart that people zoom.
//   - run.js, rounds.js, seats.js, map.js, schedule.js, happened.js: the other parts of the page.
//
// The page needs no other host, no inline script or style, no eval, and works with a policy
// that forbids them. api serves it.
package page
