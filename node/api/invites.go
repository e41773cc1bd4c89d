package api

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"pnode/pipeline/wire/strict"
)

// Bounds on invites and revocations; no invite is for more uses than admission signs.
const (
	MaxInviteTTL    = 30 * 24 * time.Hour
	MaxInviteUses   = 1024
	MaxReasonBytes  = 200
	maxTargetBytes  = 1024
	maxInviteSecond = int64(MaxInviteTTL / time.Second)
)

// InviteRequest says what an invite is to be good for.
type InviteRequest struct {
	TTL  time.Duration // from one second to MaxInviteTTL
	Uses int
	// Owner makes owners of the nodes that come by it.
	Owner bool
}

// RevokeRequest names a node, by its name or peer ID, or an invite, by its text or serial.
type RevokeRequest struct {
	Target string `json:"target"`
	// Members removes also the nodes that came by the invite.
	Members bool   `json:"members,omitempty"`
	Reason  string `json:"reason,omitempty"`
}

// Invite is an invite of the run and who came by it.
type Invite struct {
	Serial string `json:"serial"`
	// Role is what the nodes that come by it are: member or owner.
	Role string `json:"role"`
	Uses int    `json:"uses"`
	Left int    `json:"left"`
	// By names the owner's node that made it.
	By           string    `json:"by"`
	Made         time.Time `json:"made"`
	RedeemBefore time.Time `json:"redeem_before"`
	// State is open, used up, expired or revoked.
	State string   `json:"state"`
	Peers []string `json:"peers,omitempty"`
}

// inviteRequest and inviteReply are the bodies of POST /v1/invite, RevokeRequest and revokeReply those of POST /v1/revoke.
type inviteRequest struct {
	TTLS  int64 `json:"ttl_s"`
	Uses  int   `json:"uses"`
	Owner bool  `json:"owner,omitempty"`
}

// Newcomer is a machine of the local network that asks to be let in.
type Newcomer struct {
	// Name is what it calls itself.
	Name    string `json:"name"`
	Address string `json:"address"`
	// Code is what it shows, if nobody is in between.
	Code  string    `json:"code"`
	Since time.Time `json:"since"`
}

// Announced says to people that machines of the local network find this node.
const Announced = "announced in the local network: `pnode join` on a machine there asks to be let in, and shows a code to enter here"

// Question says who asks to be let in, and when to do so.
func (n Newcomer) Question() string {
	return fmt.Sprintf("%s (%s) asks to join. Only if it is yours, and its screen shows %s:", strings.Join(strings.Fields(n.Name), " "), n.Address, n.spoken())
}

// Text says so with what to do.
func (n Newcomer) Text() string {
	return fmt.Sprintf("%s pnode admit %s; if not: pnode admit --refuse %s", n.Question(), n.Code, n.Code)
}

// Refusal says which of those who ask are not let in: who shows Code, or all where it is empty, who began to ask up to Until where that is not zero.
type Refusal struct {
	Code  string
	Until time.Time
}

// Names reports whether a newcomer is one of those. Code is digits alone.
func (r Refusal) Names(n Newcomer) bool {
	if r.Code != "" {
		return n.Code == r.Code
	}
	return r.Until.IsZero() || !n.Since.After(r.Until)
}

// Refused says that it was told that it is not let in.
func (n Newcomer) Refused() string {
	return fmt.Sprintf("%s is not let in, and was told so; it may ask again", strings.Join(strings.Fields(n.Name), " "))
}

// Decision lets a newcomer in and says so, or refuses it.
type Decision func(ctx context.Context, in bool) (done string, err error)

// spoken returns the code as people read it, in two groups of digits.
func (n Newcomer) spoken() string {
	half := len(n.Code) / 2
	return n.Code[:half] + " " + n.Code[half:]
}

// admitRequest and revokeReply are the bodies of POST /v1/admit.
type admitRequest struct {
	Code string `json:"code"`
	// Refuse tells those of a Refusal that they are not let in.
	Refuse bool      `json:"refuse,omitempty"`
	Until  time.Time `json:"until,omitzero"`
}

type inviteReply struct {
	Invite string `json:"invite"`
}

type revokeReply struct {
	Done string `json:"done"`
}

// readInvite reads which invite a request wants.
func readInvite(r *http.Request) (InviteRequest, error) {
	var req inviteRequest
	body, err := io.ReadAll(r.Body) // bounded by authorize
	if err == nil {
		err = strict.Decode(body, &req)
	}
	switch {
	case err != nil:
		err = fmt.Errorf("invite request: %w", err)
	case req.TTLS < 1 || req.TTLS > maxInviteSecond:
		err = fmt.Errorf("ttl_s is %d: take 1 to %d", req.TTLS, maxInviteSecond)
	case req.Uses < 1 || req.Uses > MaxInviteUses:
		err = fmt.Errorf("uses is %d: take 1 to %d", req.Uses, MaxInviteUses)
	}
	return InviteRequest{time.Duration(req.TTLS) * time.Second, req.Uses, req.Owner}, err
}

func (s *Server) invite(w http.ResponseWriter, r *http.Request) {
	want, err := readInvite(r)
	if err != nil {
		s.reply(w, http.StatusBadRequest, errorReply{err.Error()})
		return
	}
	var reply inviteReply
	err = patiently(w, r, func(ctx context.Context) (err error) {
		reply.Invite, err = s.options.Node.Invite(ctx, want)
		return err
	})
	s.answer(w, reply, err)
}

func (s *Server) revoke(w http.ResponseWriter, r *http.Request) {
	var req RevokeRequest
	body, err := io.ReadAll(r.Body) // bounded by authorize
	if err == nil {
		err = strict.Decode(body, &req)
	}
	switch {
	case err != nil:
		err = fmt.Errorf("revoke request: %w", err)
	case req.Target == "" || len(req.Target) > maxTargetBytes:
		err = fmt.Errorf("target of %d bytes: take 1 to %d", len(req.Target), maxTargetBytes)
	case len(req.Reason) > MaxReasonBytes:
		err = fmt.Errorf("reason of %d bytes: take at most %d", len(req.Reason), MaxReasonBytes)
	}
	if err != nil {
		s.reply(w, http.StatusBadRequest, errorReply{err.Error()})
		return
	}
	var reply revokeReply
	err = patiently(w, r, func(ctx context.Context) (err error) {
		reply.Done, err = s.options.Node.Revoke(ctx, req)
		return err
	})
	s.answer(w, reply, err)
}

func (s *Server) admit(w http.ResponseWriter, r *http.Request) {
	var req admitRequest
	body, err := io.ReadAll(r.Body) // bounded by authorize
	if err == nil {
		err = strict.Decode(body, &req)
	}
	if err != nil {
		s.reply(w, http.StatusBadRequest, errorReply{fmt.Sprintf("admit request: %v", err)})
		return
	}
	var reply revokeReply
	if req.Refuse {
		refused, err := s.options.Node.Refuse(Refusal{req.Code, req.Until})
		var done []string
		for _, n := range refused {
			done = append(done, n.Refused())
		}
		s.answer(w, revokeReply{strings.Join(done, "\n")}, err)
		return
	}
	err = patiently(w, r, func(ctx context.Context) (err error) {
		reply.Done, err = s.options.Node.Admit(ctx, req.Code)
		return err
	})
	s.answer(w, reply, err)
}

// Newcomers lists the machines of the local network that ask to be let in.
func (c *Client) Newcomers(ctx context.Context) ([]Newcomer, error) {
	var list []Newcomer
	err := c.call(ctx, http.MethodGet, "/v1/newcomers", nil, &list)
	return list, err
}

// Admit asks to let the machine in that shows a code. It returns what was done.
func (c *Client) Admit(ctx context.Context, code string) (string, error) {
	var reply revokeReply
	err := c.call(ctx, http.MethodPost, "/v1/admit", admitRequest{Code: code}, &reply)
	return reply.Done, err
}

// Refuse has the machine that shows a code told that it is not let in, or all that ask where the code is empty. It returns what was done.
func (c *Client) Refuse(ctx context.Context, code string) (string, error) {
	var reply revokeReply
	err := c.call(ctx, http.MethodPost, "/v1/admit", admitRequest{Code: code, Refuse: true}, &reply)
	return reply.Done, err
}

// Invite asks for an invite.
func (c *Client) Invite(ctx context.Context, r InviteRequest) (string, error) {
	var reply inviteReply
	err := c.call(ctx, http.MethodPost, "/v1/invite", inviteRequest{int64(r.TTL / time.Second), r.Uses, r.Owner}, &reply)
	return reply.Invite, err
}

// Invites lists the invites of the run.
func (c *Client) Invites(ctx context.Context) ([]Invite, error) {
	var list []Invite
	err := c.call(ctx, http.MethodGet, "/v1/invites", nil, &list)
	return list, err
}

// Revoke asks to remove a node from the run, or to end an invite. It returns what was done.
func (c *Client) Revoke(ctx context.Context, r RevokeRequest) (string, error) {
	var reply revokeReply
	err := c.call(ctx, http.MethodPost, "/v1/revoke", r, &reply)
	return reply.Done, err
}
