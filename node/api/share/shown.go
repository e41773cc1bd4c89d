package share

import (
	"net/netip"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"pnode/node/api"
)

// told are the kinds of events that others see. Errors name files of this machine, and so does where the model is.
var told = []api.Kind{
	api.KindStep, api.KindState, api.KindPlan, api.KindOuter, api.KindSchedule, api.KindCheckpoint, api.KindSample, api.KindDone,
	api.KindWaiting, api.KindMember, api.KindSpare, api.KindSubstitute, api.KindInterruption, api.KindRecovery,
}

// shown takes out of what a node says what others have no use for.
type shown struct {
	folder *regexp.Regexp // matches the node's folder, and what follows its name; nil for none
}

// shownOf returns what shows a node that has a folder.
func shownOf(dir string) shown {
	if dir == "" {
		return shown{}
	}
	return shown{regexp.MustCompile(regexp.QuoteMeta(dir) + `(\.?$|\.?[^\w.-])`)} // not /data/run2 for /data/run
}

// Patterns of what is taken out. It is better to take out too much than too little.
var (
	// before is what no word goes on with: a slash after it begins a path, in "tokens/s" it does not.
	before = `(^|[^\pL\pN_/\\~.])`
	// links are URLs and addresses of libp2p, but for marks behind them.
	links = regexp.MustCompile(`()\pL[\w+-]*://[^\s"'` + "`" + `<>]*[^\s"'` + "`" + `<>.,:;()\[\]{}]` + `|` + before + `/(?:ip|dns)[^\s"'` + "`" + `<>(),;\[\]{}|]*[^\s"'` + "`" + `<>(),:;\[\]{}|.]`)
	// paths go from a root on to the end of the clause, since names of files have blanks and commas.
	paths = regexp.MustCompile(before + `(?:\.*/+[^\s/*]|~\w*/|[A-Za-z]:[\\/]|\\\\)` + `(?:[^:;\n"` + "`" + `)\]}>]|[:;][^\s:;"` + "`" + `)\]}>])*`)
	// words may have addresses: of IPv6 in brackets, and whatever stands between blanks and marks.
	words = regexp.MustCompile(`\[[\w:.%-]+\](?::\d+)?|[^\s"'` + "`" + `()<>,;=\[\]{}|]+`)
	// numbers may be addresses of IPv4.
	numbers = regexp.MustCompile(`[\d.]+`)
	// hosts are addresses of IPv6, and ports of hosts: "1.5:3" is none.
	hosts = regexp.MustCompile(`(?i)\b[\da-f]{1,4}(?::[\da-f]{1,4})*::|::[\da-f]{1,4}\b|\b(?:[\da-f]{1,4}:){7}[\da-f]{1,4}\b|[\pL\pN-]+\.\pL[\pL\pN-]+\.?:\d+\b`)
)

// text returns a text without the node's folder, and without paths of files and addresses of machines, which texts of errors hold.
func (s shown) text(text string) string {
	if !strings.ContainsAny(text, `/\.:`) {
		return text
	}
	if s.folder != nil {
		text = s.folder.ReplaceAllString(text, "FOLDER$1")
	}
	text = links.ReplaceAllString(text, "${1}${2}ADDRESS")
	text = paths.ReplaceAllString(text, "${1}FILE")
	return words.ReplaceAllStringFunc(text, func(word string) string {
		if isAddress(word) {
			return "ADDRESS" + word[len(strings.TrimRight(word, ".:-")):]
		}
		return word
	})
}

// isAddress reports whether a word has an IP address in it, or a host with a port.
func isAddress(word string) bool {
	return hosts.MatchString(word) || slices.ContainsFunc(numbers.FindAllString(word, -1), func(number string) bool {
		_, err := netip.ParseAddr(strings.Trim(number, "."))
		return err == nil
	})
}

// cleaned returns a copy of a value, each of whose texts is as others see it: those of fields to come, too.
func cleaned[T any](s shown, value T) T {
	return s.clean(reflect.ValueOf(&value).Elem()).Interface().(T)
}

func (s shown) clean(v reflect.Value) reflect.Value {
	out := reflect.New(v.Type()).Elem()
	out.Set(v)
	switch v.Kind() {
	case reflect.String:
		out.SetString(s.text(v.String()))
	case reflect.Pointer:
		if !v.IsNil() {
			out.Set(reflect.New(v.Type().Elem()))
			out.Elem().Set(s.clean(v.Elem()))
		}
	case reflect.Interface:
		if !v.IsNil() {
			out.Set(s.clean(v.Elem()))
		}
	case reflect.Array:
		for i := range v.Len() {
			out.Index(i).Set(s.clean(v.Index(i)))
		}
	case reflect.Slice:
		if !v.IsNil() {
			out.Set(reflect.MakeSlice(v.Type(), v.Len(), v.Len()))
		}
		for i := range v.Len() {
			out.Index(i).Set(s.clean(v.Index(i)))
		}
	case reflect.Map:
		if !v.IsNil() {
			out.Set(reflect.MakeMapWithSize(v.Type(), v.Len()))
		}
		for key, value := range v.Seq2() {
			out.SetMapIndex(s.clean(key), s.clean(value))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				out.Field(i).Set(s.clean(v.Field(i)))
			}
		}
	}
	return out
}

// status leaves out at which addresses nodes are reached.
func (s shown) status(st api.Status) api.Status {
	st = cleaned(s, st)
	st.Addrs = []string{}
	for i := range st.Roster {
		st.Roster[i].Addrs = []string{}
	}
	return st
}

// event reports whether others see an event, and returns it as they do. What a model has written tells nothing of this machine.
func (s shown) event(e api.Event) (api.Event, bool) {
	if e.Kind != api.KindSample {
		e = cleaned(s, e)
	}
	return e, slices.Contains(told, e.Kind)
}

// history has the events that others see.
func (s shown) history(h api.History) api.History {
	happened := []api.Happened{}
	for _, at := range h.Happened {
		if e, ok := s.event(at.Event); ok {
			happened = append(happened, api.Happened{Time: at.Time, Event: e})
		}
	}
	h.Happened = happened
	return h
}
