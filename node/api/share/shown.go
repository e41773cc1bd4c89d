package share

import (
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
	dir string // the node's folder
}

// text returns a text without the node's folder.
func (s shown) text(text string) string {
	if s.dir == "" {
		return text
	}
	return strings.ReplaceAll(text, s.dir, "FOLDER")
}

// status leaves out at which addresses nodes are reached.
func (s shown) status(st api.Status) api.Status {
	st.Addrs = []string{}
	st.Roster = slices.Clone(st.Roster)
	for i := range st.Roster {
		st.Roster[i].Addrs = []string{}
	}
	st.Waiting = s.text(st.Waiting)
	if st.Whole != nil {
		whole := *st.Whole
		whole.Text = s.text(whole.Text)
		st.Whole = &whole
	}
	return st
}

// event reports whether others see an event, and returns it as they do.
func (s shown) event(e api.Event) (api.Event, bool) {
	e.Message = s.text(e.Message)
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
