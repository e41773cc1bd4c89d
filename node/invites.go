package node

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"pnode/node/api"
	"pnode/node/config"
	"pnode/planner/plan"
	"pnode/swarm"
	"pnode/swarm/admission"
	"pnode/swarm/consensus"
	"pnode/swarm/pairing"
)

// minNameChars is how much of a peer ID's end, or of a serial's beginning, names one.
const minNameChars = 4

// notInRun is the error of requests that come before the log here has this node as a member.
const notInRun = api.NotReady("this node is not in the run yet: try again in a moment")

// ownership makes and revokes invites on an owner's node, and lists them on any. It has methods of api.Node.
type ownership struct {
	self  plan.PeerID
	run   plan.RunID
	owner admission.Owner // what invites are signed with; zero where this node is no owner
	swarm *swarm.Swarm
	log   *consensus.Node
	now   func() time.Time
	// newcomers asks people about machines of the local network, which find this node while announced is open; both are nil without --lan.
	newcomers *pairing.Service
	announced io.Closer
}

// localInviteTTL is how long a newcomer of the local network has to use the invite that it gets.
const localInviteTTL = 10 * time.Minute

// openLAN lets machines of the local network find this node, and ask it for an invite. People hear of them by out.
func (o *ownership) openLAN(name string, owner bool, out Output) (err error) {
	if !owner {
		return fmt.Errorf("%w: --lan: this node is none of an owner's, and cannot let others in: leave it out", config.ErrInvalid)
	}
	o.newcomers, o.announced, err = o.swarm.Pair(pairing.Config{
		Name: name,
		Invite: func(ctx context.Context) (string, error) {
			return o.Invite(ctx, api.InviteRequest{TTL: localInviteTTL, Uses: 1})
		},
		Asked: func(n pairing.Newcomer) {
			asks := newcomer(n)
			if out.Newcomer == nil {
				out.Notice(asks.Text())
				return
			}
			out.Newcomer(asks, func(ctx context.Context, in bool) (string, error) {
				if in {
					return o.Admit(ctx, n.Code)
				}
				if o.newcomers == nil {
					return "", errNoLAN
				}
				if refused := o.newcomers.Refuse(func(other pairing.Newcomer) bool { return other == n }); len(refused) == 0 {
					return "", errors.New("it asks no more")
				}
				return asks.Refused(), nil
			})
		},
	})
	switch {
	case errors.Is(err, swarm.ErrLoopback):
		return fmt.Errorf("%w: --lan: this node listens on this machine alone: leave --listen out, or give --listen :4001", config.ErrInvalid)
	case err != nil:
		out.Notice(fmt.Sprintf("not announced in the local network: %v; machines there need an invite (`pnode invite`)", err))
	default:
		out.Notice(api.Announced)
	}
	return nil
}

// newcomer returns a machine that asks to be let in as people are told of it.
func newcomer(n pairing.Newcomer) api.Newcomer {
	return api.Newcomer{Name: n.Name, Address: n.Address.String(), Code: n.Code, Since: n.Since}
}

// closeLAN ends what openLAN began.
func (o *ownership) closeLAN() error {
	if o.announced == nil {
		return nil
	}
	return o.announced.Close()
}

// errNoLAN is why nobody waits.
var errNoLAN = errors.New("this node does not answer the local network: start it with --lan (`pnode train --resume --lan`)")

// Newcomers lists the machines of the local network that ask to be let in.
func (o *ownership) Newcomers() ([]api.Newcomer, error) {
	if o.newcomers == nil {
		return nil, errNoLAN
	}
	all := []api.Newcomer{}
	for _, n := range o.newcomers.Waiting() {
		all = append(all, newcomer(n))
	}
	return all, nil
}

// Admit gives an invite to the machine of the local network that shows a code, and says to whom.
func (o *ownership) Admit(ctx context.Context, code string) (string, error) {
	if o.newcomers == nil {
		return "", errNoLAN
	}
	code, err := pairing.ParseCode(code)
	if err != nil {
		return "", err
	}
	if err := awaitReady(ctx, o.log.Changed, o.MayInvite); err != nil {
		return "", err
	}
	n, err := o.newcomers.Admit(ctx, code)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s (%s) may join: it gets an invite for one node", n.Name, n.Address), nil
}

// readyTime bounds how long people who let a machine in wait until this node is in the run itself: those of the local network find it sooner.
const readyTime = 30 * time.Second

// awaitReady blocks while may says that this node is not ready yet, for readyTime at most; changed returns a channel that is closed at the next change.
func awaitReady(ctx context.Context, changed func() <-chan struct{}, may func() error) error {
	ctx, cancel := context.WithTimeout(ctx, readyTime)
	defer cancel()
	for {
		next := changed()
		err := may()
		if !errors.Is(err, api.ErrNotReady) {
			return err
		}
		select {
		case <-next:
		case <-ctx.Done():
			return err
		}
	}
}

// Refuse tells machines of the local network that they are not let in, and returns them.
func (o *ownership) Refuse(r api.Refusal) (refused []api.Newcomer, err error) {
	if o.newcomers == nil {
		return nil, errNoLAN
	}
	which := ""
	if r.Code != "" {
		if r.Code, err = pairing.ParseCode(r.Code); err != nil {
			return nil, err
		}
		which = " with that code"
	}
	for _, n := range o.newcomers.Refuse(func(n pairing.Newcomer) bool { return r.Names(newcomer(n)) }) {
		refused = append(refused, newcomer(n))
	}
	if len(refused) == 0 {
		return nil, fmt.Errorf("%w%s", pairing.ErrNobody, which)
	}
	return refused, nil
}

// MayInvite returns why this node cannot make invites, nil where it can.
func (o *ownership) MayInvite() error {
	state := o.log.State()
	switch _, member := state.Member(o.self); {
	case state.Run == nil || !member:
		return notInRun
	case !state.Owner(o.self):
		return onlyOwners(state, "make invites")
	}
	return nil
}

// Invite makes an invite to the run and returns it when the log knows it; only an owner's node can.
func (o *ownership) Invite(ctx context.Context, r api.InviteRequest) (string, error) {
	if err := o.MayInvite(); err != nil {
		return "", err
	}
	addrs := o.swarm.InviteAddrs()
	if len(addrs) == 0 {
		return "", notInRun
	}
	made := o.now()
	v, err := o.owner.Invite(admission.InviteOptions{Run: o.run, Addrs: addrs, Owner: r.Owner, TTL: r.TTL, Uses: r.Uses}, made)
	if err != nil {
		return "", err
	}
	serial := uint64(v.Grant.Serial)
	err = o.record(ctx, consensus.Invite{
		Serial: serial, Issuer: o.self, Made: made.Unix(), Owner: r.Owner, Uses: v.Grant.Uses,
		RedeemBefore: v.Grant.RedeemBefore.Unix(), Bearer: v.Bearer(), Signed: v.Grant.Encode(),
	}, func(s consensus.State) bool { _, known := s.Grant(serial); return known })
	if err != nil {
		return "", err
	}
	return v.String(), nil
}

// record has an entry committed, and returns when the log here says so.
func (o *ownership) record(ctx context.Context, e consensus.Entry, there func(consensus.State) bool) error {
	err := o.log.Propose(ctx, e)
	if errors.Is(err, consensus.ErrNoLeader) {
		return marked{fmt.Errorf("a majority of the run's voters must be up for that: %w", err), api.ErrNotReady}
	}
	if err == nil {
		err = consensus.Await(ctx, o.log, there)
	}
	return err
}

// onlyOwners says whose node can do something, where this one cannot.
func onlyOwners(s consensus.State, what string) error {
	var names []string
	for _, p := range s.Owners {
		if m, ok := s.Member(p); ok && m.State != consensus.Gone {
			names = append(names, s.NameOf(p))
		}
	}
	if len(names) == 0 {
		return fmt.Errorf("only an owner of the run can %s, and none of their nodes is here", what)
	}
	return fmt.Errorf("only %s can %s: a node of the run's owner", strings.Join(names, " or "), what)
}

// Invites lists the invites of the run.
func (o *ownership) Invites() ([]api.Invite, error) {
	state := o.log.State()
	if state.Run == nil {
		return nil, notInRun
	}
	invites := []api.Invite{}
	for _, g := range state.Grants {
		i := api.Invite{
			Serial: serialText(g.Serial), Role: "member", Uses: g.Uses, Left: max(0, g.Uses-len(g.Peers)), By: state.NameOf(g.Issuer),
			Made: time.Unix(g.Made, 0), RedeemBefore: time.Unix(g.RedeemBefore, 0), State: stateOf(g, time.Now()),
		}
		if g.Owner {
			i.Role = "owner"
		}
		for _, p := range g.Peers {
			name := state.NameOf(p)
			if _, revoked := state.Revocation(p); revoked {
				name += " (removed)"
			}
			i.Peers = append(i.Peers, name)
		}
		invites = append(invites, i)
	}
	slices.SortStableFunc(invites, func(a, b api.Invite) int { return a.Made.Compare(b.Made) })
	return invites, nil
}

func serialText(serial uint64) string { return fmt.Sprintf("%016x", serial) }

// stateOf says whether an invite is open.
func stateOf(g consensus.Grant, now time.Time) string {
	switch {
	case g.Revoked:
		return "revoked"
	case len(g.Peers) >= g.Uses:
		return "used up"
	case g.Expired(now):
		return "expired"
	}
	return "open"
}

// Revoke removes a node from the run, or ends an invite, and says what was done; only an owner's node can.
func (o *ownership) Revoke(ctx context.Context, r api.RevokeRequest) (string, error) {
	state := o.log.State()
	switch {
	case state.Run == nil:
		return "", notInRun
	case !state.Owner(o.self):
		return "", onlyOwners(state, "revoke")
	}
	e, err := revocation(state, r)
	if err != nil {
		return "", err
	}
	e.By = o.self
	if e.Peer == o.self {
		return "", fmt.Errorf("%q is this very node: let it go with `pnode leave`, or revoke it on another owner's node", r.Target)
	}
	if err := majorityWithout(o.log.Servers(), state, e); err != nil {
		return "", err
	}
	done := func(s consensus.State) bool {
		_, removed := s.Revocation(e.Peer)
		g, _ := s.Grant(e.Serial)
		return removed || g.Revoked
	}
	if err := o.record(ctx, e, done); err != nil {
		return "", err
	}
	return said(state, o.log.State(), e), nil
}

// majorityWithout returns why a revocation would leave the run without a majority of its voters, which could then decide
// nothing any more; nil if it does not.
func majorityWithout(servers []consensus.Server, s consensus.State, e consensus.Revoke) error {
	removed := []plan.PeerID{e.Peer}
	if g, _ := s.Grant(e.Serial); e.Members {
		removed = g.Peers
	}
	voters, gone := 0, []string(nil)
	for _, v := range servers {
		if v.Voter {
			voters++
		}
		if v.Voter && v.Peer != e.By && slices.Contains(removed, v.Peer) {
			gone = append(gone, s.NameOf(v.Peer))
		}
	}
	if 2*(voters-len(gone)) > voters || len(gone) == 0 {
		return nil
	}
	return fmt.Errorf("%s has %d of the %d votes on the run's log, which could decide nothing without it: have it leave first (`pnode leave` there), which hands its vote over, or let more nodes join until others vote (`pnode status`)",
		strings.Join(gone, " and "), len(gone), voters)
}

// said tells what a revocation has done to the state before.
func said(before, s consensus.State, e consensus.Revoke) string {
	if e.Peer != "" {
		text := fmt.Sprintf("%s is removed from the run and cannot come back (%s)", s.NameOf(e.Peer), e.Peer)
		for _, g := range before.Grants {
			if slices.Contains(g.Peers, e.Peer) && stateOf(g, time.Now()) == "open" {
				text += fmt.Sprintf("; invite %s that it came by is closed too: make a new one with `pnode invite`", serialText(g.Serial))
			}
		}
		return text
	}
	g, _ := s.Grant(e.Serial)
	text := fmt.Sprintf("nobody comes in by invite %s any more", serialText(e.Serial))
	switch came := plan.Count(len(g.Peers), "node"); {
	case len(g.Peers) == 0:
		return text
	case e.Members:
		return fmt.Sprintf("%s; removed %s that came by it", text, came)
	default:
		return fmt.Sprintf("%s; %s that came by it stay, unless --members removes them too", text, came)
	}
}

// revocation finds out whom or what a target names: an invite by its text or serial, a node by its name or peer ID, both
// of which may be shortened.
func revocation(s consensus.State, r api.RevokeRequest) (consensus.Revoke, error) {
	e := consensus.Revoke{Reason: r.Reason}
	peers, serials := named(s, r.Target)
	switch {
	case len(peers)+len(serials) == 0:
		return e, fmt.Errorf("%q is no node and no invite of this run: want a name or peer ID as `pnode status` shows them, or an invite or serial of `pnode invite --list`", r.Target)
	case len(peers)+len(serials) > 1:
		var all []string
		for _, p := range peers {
			all = append(all, string(p))
		}
		for _, v := range serials {
			all = append(all, serialText(v))
		}
		return e, fmt.Errorf("%q may mean %s: name one of them", r.Target, strings.Join(all, " or "))
	case len(peers) == 1 && r.Members:
		return e, fmt.Errorf("--members is for an invite, %q is a node", r.Target)
	case len(peers) == 1:
		if v, removed := s.Revocation(peers[0]); removed {
			return e, fmt.Errorf("%s was %s already", s.NameOf(peers[0]), s.Removal(v))
		}
		e.Peer = peers[0]
	default:
		e.Serial, e.Members = serials[0], r.Members
	}
	return e, nil
}

// named returns the nodes and the invites that a text may mean.
func named(s consensus.State, text string) (peers []plan.PeerID, serials []uint64) {
	if v, err := admission.ParseInvite(text); err == nil && !strings.HasPrefix(text, "/") {
		for _, g := range s.Grants {
			if string(g.Bearer) == string(v.Bearer()) {
				serials = append(serials, g.Serial)
			}
		}
		return nil, serials
	}
	all := slices.Clone(s.Owners)
	for _, m := range s.Members {
		all = append(all, m.Peer)
	}
	end := strings.TrimPrefix(text, "…")
	_, notHex := hex.DecodeString(text + strings.Repeat("0", len(text)%2))
	for _, g := range s.Grants {
		all = append(all, g.Peers...)
		if len(text) >= minNameChars && notHex == nil && strings.HasPrefix(serialText(g.Serial), strings.ToLower(text)) {
			serials = append(serials, g.Serial)
		}
	}
	slices.Sort(all)
	for _, p := range slices.Compact(all) {
		if s.NameOf(p) == text {
			return []plan.PeerID{p}, nil
		}
		m, _ := s.Member(p)
		if m.Label == text && text != "" || len(end) >= minNameChars && strings.HasSuffix(string(p), end) || string(p) == text {
			peers = append(peers, p)
		}
	}
	return peers, serials
}
