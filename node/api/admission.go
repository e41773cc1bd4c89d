package api

import (
	"context"
	"net/http"
	"time"

	"pnode/node/qrcode"
)

// admissionPath begins the paths of what the page does about who is let in.
const admissionPath = "/v1/admission"

// Admission says whether a node lets machines in, and who asks.
type Admission struct {
	// Refused says why the node cannot make invites; empty where it can.
	Refused string `json:"refused,omitempty"`
	// LAN reports whether machines of the local network may ask.
	LAN bool `json:"lan"`
	// Newcomers are those that ask, without their codes: people read them off the newcomers' screens.
	Newcomers []Newcomer `json:"newcomers"`
}

// PageInvite is an invite as the page shows it.
type PageInvite struct {
	Invite string    `json:"invite"`
	Uses   int       `json:"uses"`
	Until  time.Time `json:"until"`
	// Code has the rows of its QR code: 1 is a dark module, 0 a light one.
	Code []string `json:"code"`
}

func (s *Server) admission(w http.ResponseWriter, _ *http.Request) {
	a := Admission{Newcomers: []Newcomer{}}
	if err := s.options.Node.MayInvite(); err != nil {
		a.Refused = err.Error()
	}
	if waiting, err := s.options.Node.Newcomers(); err == nil {
		a.LAN = true
		for _, n := range waiting {
			n.Code = ""
			a.Newcomers = append(a.Newcomers, n)
		}
	}
	s.answer(w, a, nil)
}

// pageInvite makes an invite for members: owners are made on the command line alone.
func (s *Server) pageInvite(w http.ResponseWriter, r *http.Request) {
	want, err := readInvite(r)
	if err != nil {
		s.reply(w, http.StatusBadRequest, errorReply{err.Error()})
		return
	}
	if want.Owner {
		s.reply(w, http.StatusForbidden, errorReply{"the page makes no owners: `pnode invite --owner` does"})
		return
	}
	reply := PageInvite{Uses: want.Uses, Until: time.Now().Add(want.TTL)}
	err = patiently(w, r, func(ctx context.Context) (err error) {
		reply.Invite, err = s.options.Node.Invite(ctx, want)
		return err
	})
	if err == nil {
		reply.Code, err = codeRows(reply.Invite)
	}
	s.answer(w, reply, err)
}

// codeRows returns the rows of a text's QR code.
func codeRows(text string) ([]string, error) {
	modules, err := qrcode.Modules(text)
	if err != nil {
		return nil, err
	}
	rows := make([]string, len(modules))
	for y, row := range modules {
		line := make([]byte, len(row))
		for x, dark := range row {
			line[x] = '0'
			if dark {
				line[x] = '1'
			}
		}
		rows[y] = string(line)
	}
	return rows, nil
}
