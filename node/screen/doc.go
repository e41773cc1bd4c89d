// Package screen shows a run on a whole terminal, drawn anew each second: what `pnode status --watch` and `--screen` show.
//
// # Nouns
//
//   - View: what is shown: a status, the history, the size of the terminal. All of it comes from the API of the node, as on its page.
//   - Render: View -> text, a pure function. No line is wider than the terminal, there are no more lines than it has, and nothing that another
//     member has named or said reaches the terminal but printable characters.
//   - Run: asks a node once a second and draws, until a key or the node ends it.
//
// The goroutines are bubbletea's, which end before Run returns. No other package imports that library. This one decides nothing
// about a run: keys end the view, and Run tells its caller which one did. cmd/pnode calls it.
package screen
