package stages

import (
	"github.com/rdmad/rdmad/internal/peerproto"
	"github.com/rdmad/rdmad/internal/status"
)

// Times are the stages of a request, which add up to Total.
type Times struct {
	claim, queue, post, wire, inbox, handler, back int64
	// Total is how long the request took, or has taken so far.
	Total int64
	// Stage is where it is, if it is under way.
	Stage string
	// stamped: the worker has said when it claimed and published. heard: the handler's
	// node has said what it knows. handled: so has the handler's process.
	stamped, heard, handled bool
	// Detail are times within the stages, Notes what people should know of the stages.
	Detail status.TraceDetail
	Notes  []string
}

// Split makes stages of what the requester's node knows, and of what the handler's does;
// p is nil if that says nothing. now is when a request ends that is under way. What workers and peers say is cut
// to what can be.
func (e *Request) Split(p *peerproto.Stage, now int64) (t Times) {
	end := e.End(now)
	start := e.Posted
	switch {
	case e.Published == 0:
		t.note("the caller has left no stamps (it was not asked in time, or has an older library): without claim and queue")
	case e.Published > e.Posted+Slack || e.Began > e.Published || e.Began <= 0:
		t.note("the caller's stamps make no sense: without claim and queue")
	default:
		t.stamped = true
		published := min(e.Published, e.Posted)
		start = min(e.Began, published)
		t.claim, t.queue = published-start, e.Posted-published
	}
	t.Total = end - start
	away := end - e.Posted // at the provider, on the wire, and at the peer
	if e.Arrived != 0 {
		away = e.Arrived - e.Posted
		t.back = end - e.Arrived
		t.Detail.TakenNS = t.back
	}
	if e.Completed != 0 {
		t.Detail.CompletedNS = e.Completed - e.Posted
	}
	there := int64(0)
	switch began, ended, ok := e.Answer.Handled(); {
	case p != nil:
		there = t.peer(p, away)
	case e.Arrived != 0 && ok && ended-began <= away:
		there, t.handler, t.handled = ended-began, ended-began, true
		fallthrough
	default:
		t.note("the other end tells no stages: wire holds its inbox and its part of back")
	}
	switch left := away - there; {
	case e.Group.Writes == 0: // within the node
		t.post = left
	case e.Completed != 0:
		t.post = min(e.Completed-e.Posted, left)
		t.wire = left - t.post
	case e.Arrived == 0 && p == nil:
		t.post = left
	default:
		t.wire = left
	}
	if e.Arrived == 0 && e.Settled == 0 {
		t.Stage = e.stage(p)
	}
	return t
}

// peer splits what the handler's node says, which cannot be more than away, and returns how
// much that is.
func (t *Times) peer(p *peerproto.Stage, away int64) (there int64) {
	t.heard = true
	there = p.Now
	if p.Posted > 0 {
		there = p.Posted
	}
	if there > away || there < 0 {
		t.note("the peer says that it had the request for longer than it was away: cut")
		there = max(0, away)
	}
	cut := func(at int64) int64 { return min(max(at, 0), there) }
	inside := func(from, to int64) int64 { return max(0, cut(to)-cut(from)) }
	began, ended := p.Began, p.Ended
	switch {
	case p.Began > 0:
		t.handled = true
	case p.Picked > 0:
		began, ended = p.Picked, p.Collected
	case p.Collected > 0:
		began, ended = p.Given, p.Collected
		if p.Worker > 0 {
			t.note("the handler's process has left no stamps: handler holds what is inbox or back by its clock")
		}
	default: // nobody has begun
		began = there
	}
	if ended == 0 {
		ended = there
	}
	t.inbox, t.handler = cut(began), inside(began, ended)
	t.back += there - t.inbox - t.handler
	t.Detail.GivenNS = p.Given
	if p.Collected > 0 && p.Ended > 0 {
		t.Detail.CollectedNS = max(0, p.Collected-p.Ended)
	}
	if p.Posted > 0 && p.Collected > 0 {
		t.Detail.PostedNS = max(0, p.Posted-p.Collected)
	}
	return there
}

// stage returns where a request is that is under way.
func (e *Request) stage(p *peerproto.Stage) string {
	switch {
	case p == nil && e.Completed == 0 && e.Group.Writes > 0:
		return "post"
	case p == nil:
		return "wire"
	case p.Posted > 0:
		return "wire"
	case p.Collected > 0:
		return "back"
	case p.Began > 0 || p.Picked > 0:
		return "handler"
	}
	return "inbox"
}

func (t *Times) note(s string) { t.Notes = append(t.Notes, s) }

// Stages returns the stages with the clocks that they come from.
func (t *Times) Stages(from, to string) []status.TraceStage {
	both, wire := from+" and "+to, from+" less "+to
	if from == to || !t.heard {
		both, wire = from, from
	}
	return []status.TraceStage{
		{Stage: "claim", NS: t.claim, Known: t.stamped, Clock: from},
		{Stage: "queue", NS: t.queue, Known: t.stamped, Clock: from},
		{Stage: "post", NS: t.post, Known: true, Clock: from},
		{Stage: "wire", NS: t.wire, Known: true, Clock: wire},
		{Stage: "inbox", NS: t.inbox, Known: t.heard, Clock: to},
		{Stage: "handler", NS: t.handler, Known: t.heard || t.handled, Clock: to},
		{Stage: "back", NS: t.back, Known: true, Clock: both},
	}
}
