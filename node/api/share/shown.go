package share

import (
	"net"
	"net/netip"
	"reflect"
	"regexp"
	"slices"
	"strconv"
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
	dir string // the node's folder
}

// words matches what may be a path or an address, in a text for people.
var words = regexp.MustCompile(`[^\s"'` + "`" + `()<>,;=]+`)

// rooted matches a path from the root on, not a comment of a program.
var rooted = regexp.MustCompile(`^/[^/*]`)

// text returns a text without the node's folder, and without paths of files and addresses of machines, which texts of errors hold.
func (s shown) text(text string) string {
	if s.dir != "" {
		text = strings.ReplaceAll(text, s.dir, "FOLDER")
	}
	if !strings.ContainsAny(text, `/\.:`) {
		return text
	}
	return words.ReplaceAllStringFunc(text, func(word string) string {
		bare := strings.TrimRight(word, ".:-")
		end := word[len(bare):]
		switch {
		case isAddress(bare):
			return "ADDRESS" + end
		case isPath(bare):
			return "FILE" + end
		}
		return word
	})
}

// isAddress reports whether a word is an IP address, with a port or not, a host with a port, a URL, or an address of libp2p.
func isAddress(word string) bool {
	if _, err := netip.ParseAddr(strings.Trim(word, "[]")); err == nil {
		return true
	}
	if host, port, err := net.SplitHostPort(word); err == nil && strings.ContainsAny(host, ".:") {
		_, err := strconv.ParseUint(port, 10, 16)
		return err == nil
	}
	return strings.Contains(word, "://") || strings.HasPrefix(word, "/ip") || strings.HasPrefix(word, "/dns")
}

// isPath reports whether a word begins as absolute paths do.
func isPath(word string) bool {
	drive := len(word) > 2 && word[1] == ':' && strings.ContainsRune(`\/`, rune(word[2]))
	return drive || rooted.MatchString(word) || strings.HasPrefix(word, "~/") || strings.HasPrefix(word, `\\`)
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
