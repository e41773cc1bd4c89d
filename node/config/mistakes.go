package config

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// findMistake returns the first line of a file, counted from 1, that breaks one of the rules that people break, and what is wrong
// there; 0 where it finds none. It is for files that the YAML library refuses, which often names the line before, in words of YAML's
// grammar.
func findMistake(content string) (int, string) {
	var l layout
	for i, text := range strings.Split(content, "\n") {
		if what := l.line(i+1, strings.TrimRight(text, " \t\r")); what != "" {
			return i + 1, what
		}
	}
	if l.open != "" {
		return l.opened, fmt.Sprintf("what opens here is not closed by %s", l.open[len(l.open)-1:])
	}
	return 0, ""
}

// inWords says a mistake within a line in words for people, where the library has those of YAML's grammar.
func inWords(message string) string {
	switch message {
	case "',' or ']' must be specified":
		return "no comma between two elements of a list: want [a, b]"
	case "',' or '}' must be specified":
		return "no comma between two entries: want {key: value, key: value}"
	}
	return message
}

// layout follows a file line by line, one entry on each.
type layout struct {
	levels []level // from left to right
	// open has what closes the lists, mappings and quotes that are open, the innermost one last, and opened is the line of the first.
	open   string
	opened int
	// literal is the indent of the key whose text stands below it, after | or >, and 1 more; 0 is none.
	literal int
}

// level is a mapping or a list.
type level struct {
	indent int
	keys   map[string]int // with their lines
	begins bool           // its newest line has no value yet: that may follow further in
}

// keyed matches a line with a key, and its value if it has one.
var keyed = regexp.MustCompile(`^("[^"]*"|'[^']*'|[^"'\[{#].*?)[ \t]*:(?:[ \t]+(.*))?$`)

// line takes the next line in and returns what is wrong with it.
func (l *layout) line(number int, text string) string {
	body := strings.TrimLeft(text, " \t")
	indent := len(text) - len(body)
	switch {
	case l.open != "":
		return l.flow(body)
	case body == "", body[0] == '#', text == "---", text == "...", l.literal > 0 && indent >= l.literal:
		return ""
	case strings.Contains(text[:indent], "\t"):
		return "it begins with a tab: indent by blanks"
	}
	l.literal = 0
	item := body == "-" || strings.HasPrefix(body, "- ")
	if top := len(l.levels) - 1; top >= 0 && indent > l.levels[top].indent && !item && !keyed.MatchString(body) {
		return "" // more of the text above, or all of it
	}
	if what := l.enter(indent); what != "" {
		return what
	}
	for item {
		rest := strings.TrimLeft(body[1:], " ")
		if l.levels[len(l.levels)-1].begins = rest == ""; rest == "" {
			return ""
		}
		indent += len(body) - len(rest)
		if body = rest; !keyed.MatchString(body) && !strings.HasPrefix(body, "- ") {
			return l.value(number, indent, body)
		}
		l.levels = append(l.levels, level{indent: indent, keys: map[string]int{}})
		item = strings.HasPrefix(body, "- ")
	}
	return l.entry(number, indent, body)
}

// enter goes to the level of an indent, or begins one.
func (l *layout) enter(indent int) string {
	depth := len(l.levels)
	for depth > 0 && l.levels[depth-1].indent > indent {
		depth--
	}
	switch {
	case depth > 0 && l.levels[depth-1].indent == indent:
		l.levels = l.levels[:depth]
		return ""
	case depth < len(l.levels):
		var above []string
		for _, level := range l.levels {
			above = append(above, strconv.Itoa(level.indent))
		}
		return fmt.Sprintf("indented by %d: the lines that it follows are indented by %s", indent, strings.Join(above, " and "))
	case depth > 0 && !l.levels[depth-1].begins:
		return "indented too far: the line before it begins no list and no block"
	}
	l.levels = append(l.levels, level{indent: indent, keys: map[string]int{}})
	return ""
}

// entry takes a key with its value in.
func (l *layout) entry(number, indent int, body string) string {
	if strings.ContainsAny(body[:1], "[{") { // all in one
		return l.value(number, indent, body)
	}
	found := keyed.FindStringSubmatch(body)
	if found == nil {
		if key, value, ok := strings.Cut(body, ":"); ok {
			return fmt.Sprintf("no blank after the colon: want `%s: %s`", key, value)
		}
		return "no colon: want lines of the form `key: value`"
	}
	if found[2] == "-" || strings.HasPrefix(found[2], "- ") {
		return "a list begins on the line below its key, or is written [a, b]: put the value in quotes if it is no list"
	}
	level := &l.levels[len(l.levels)-1]
	key := strings.Trim(found[1], `"'`)
	if first := level.keys[key]; first > 0 {
		return fmt.Sprintf("the key %q is in line %d already: remove one of them", key, first)
	}
	level.keys[key] = number
	level.begins = found[2] == "" || found[2][0] == '#'
	return l.value(number, indent, found[2])
}

// value takes in what follows a key or a dash.
func (l *layout) value(number, indent int, text string) string {
	if text == "" || text[0] == '#' {
		return ""
	}
	switch text[0] {
	case '|', '>':
		l.literal = indent + 1
		return ""
	case '"', '\'', '[', '{':
		l.opened = number
		return l.flow(text)
	case '@', '`', '%':
		return fmt.Sprintf("no value begins with %c: put it in quotes", text[0])
	}
	text, _, _ = strings.Cut(text, " #")
	if strings.Contains(text, ": ") || strings.HasSuffix(text, ":") {
		return "a second colon: put the value in quotes, or begin a line for the second key"
	}
	return ""
}

// escapes matches what a backslash in double quotes may begin (YAML 1.2, section 5.7).
var escapes = regexp.MustCompile(`^(?:[0abtnvfre "/\\N_LP\t]|x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|$)`)

// flow follows quotes and brackets through a line.
func (l *layout) flow(text string) string {
	for i := 0; i < len(text); i++ {
		var inside byte
		if l.open != "" {
			inside = l.open[len(l.open)-1]
		}
		quoted := inside == '"' || inside == '\''
		starts := i == 0 || strings.IndexByte(" \t[{,:", text[i-1]) >= 0
		switch c := text[i]; {
		case inside == '"' && c == '\\':
			if !escapes.MatchString(text[i+1:]) {
				r, _ := utf8.DecodeRuneInString(text[i+1:])
				return fmt.Sprintf("\\%c is no escape in double quotes: use single ones, or \\\\ for each \\", r)
			}
			i++
		case inside == '\'' && strings.HasPrefix(text[i:], "''"): // a quote in the text
			i++
		case l.open != "" && c == inside:
			l.open = l.open[:len(l.open)-1]
			if rest := strings.TrimLeft(text[i+1:], " \t"); l.open == "" && rest != "" && rest[0] != '#' && rest[0] != ':' {
				return fmt.Sprintf("text follows the closing %c: put quotes around all of the value, or remove that text", c)
			}
		case quoted:
		case c == '#' && starts:
			return ""
		case c == '[':
			l.open += "]"
		case c == '{':
			l.open += "}"
		case (c == '"' || c == '\'') && starts:
			l.open += string(c)
		}
	}
	return ""
}
