package screen

import (
	"regexp"
	"runtime"
	"strings"

	"pnode/node/plain"
)

// command is one that people paste into a shell of this machine.
type command struct {
	words string // without the folder
	dir   string
}

// harmless matches the words of a command that a shell takes as they are, the last one asking for a folder.
var harmless = regexp.MustCompile(`^pnode( [a-zA-Z0-9=.,:_-]+)* --dir $`)

// apart takes the commands for this node's folder out of a text: they are too long to be read in it. The text may be another member's, which
// does not know that folder: what else looks like a command stays a part of what it says.
func (v View) apart(text string) (rest string, commands []command) {
	pieces := strings.Split(text, "`")
	dir := plain.Quote(v.Dir)
	if len(pieces)%2 == 0 || v.Dir == "" || printable(dir) != dir { // a quote without its end, or a folder that cannot be shown
		return text, nil
	}
	for i := 1; i < len(pieces); i += 2 {
		words, found := strings.CutSuffix(pieces[i], dir)
		c := command{strings.TrimSuffix(words, " "), v.Dir}
		if found && harmless.MatchString(words) && (runtime.GOOS != "windows" || len(c.pasted(v.Columns)) == 1) { // no shell there goes on after a backslash
			commands = append(commands, c)
			pieces[i] = "the command below"
			continue
		}
		pieces[i] = "`" + pieces[i] + "`"
	}
	return strings.Join(pieces, ""), commands
}

// leastPasted are the cells that a line of a command has on any terminal: no word but the folder is longer.
const leastPasted = 24

// pasted returns the lines of a command, which a shell takes for one. A folder that is too long goes on at the start of the next line: a
// shell puts both together.
func (c command) pasted(columns int) (lines []string) {
	const indent, goesOn = "  ", `\`
	if whole := indent + c.words + " " + plain.Quote(c.dir); width(whole) <= columns {
		return []string{whole}
	}
	room := max(leastPasted, columns-len(indent+indent+" "+goesOn))
	before := indent
	for _, words := range wrap(c.words, room) {
		lines = append(lines, before+words+" "+goesOn)
		before = indent + indent
	}
	for _, piece := range quoted(c.dir, room) {
		lines = append(lines, before+piece+goesOn)
		before = ""
	}
	lines[len(lines)-1] = strings.TrimSuffix(lines[len(lines)-1], goesOn)
	return lines
}

// quoted quotes a path in pieces of at most room cells.
func quoted(path string, room int) (pieces []string) {
	piece := ""
	for _, r := range path {
		longer := piece + string(r)
		if piece != "" && width(plain.Quote(longer)) > room {
			pieces = append(pieces, plain.Quote(piece))
			longer = string(r)
		}
		piece = longer
	}
	return append(pieces, plain.Quote(piece))
}
