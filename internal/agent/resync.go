package agent

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/rdmad/rdmad/groupsend"
	"github.com/rdmad/rdmad/internal/faultpoint"
	"github.com/rdmad/rdmad/slots"
)

// When a lane's connection is lost, nobody knows which of the requests on the wire have
// arrived. Nothing is sent again before the other end has said so for each of them: a
// request written over its answer would destroy it. The question goes with the message
// that opens the next connection, the verdicts with its answer, so both ends have closed
// the old connection by then and nothing of it lands any more. See docs/protocol.md,
// "Resynchronisation".

// knowledge is the verdict of the answering end on a request.
type knowledge byte

const (
	// notSeen: it has not arrived, and is to be sent again.
	notSeen knowledge = iota
	// executing: it has, and its answer will come.
	executing
	// answered: its answer is there, and will be sent again.
	answered
)

// SentRequest names a request of a lane.
type SentRequest struct {
	index  int
	ticket uint64
}

// Outstanding returns the requests that the other end is to be asked about, by slot. The lane
// is suspended, so that they stay the same until Resync.
func (l *OutLane) Outstanding() []SentRequest {
	var list []SentRequest
	for i := range l.journal {
		if e := &l.journal[i]; e.taken {
			list = append(list, SentRequest{i, e.word.Ticket()})
		}
	}
	return list
}

// Resync takes the verdicts on the requests in list, after the lane is up.
func (l *OutLane) Resync(list []SentRequest, verdicts []byte) {
	for k, s := range list {
		e := &l.journal[s.index]
		if !e.taken || e.word.Ticket() != s.ticket {
			continue
		}
		l.domain.agent.Count.Resynced++
		if knowledge(verdicts[k]) == notSeen {
			l.resend = append(l.resend, s.index)
		}
	}
	l.sortSent(l.resend)
	l.domain.work += l.Send()
}

// sortSent puts journalled requests in the order they were first sent in.
func (l *OutLane) sortSent(list []int) {
	slices.SortFunc(list, func(a, b int) int {
		// Signed: the numbers wrap.
		return cmp.Compare(int32(l.journal[a].seq-l.journal[b].seq), 0)
	})
}

// Lost gives every request that was sent its outcome, after the other end has lost what
// it knew of them. What is only published is still to be sent.
func (l *OutLane) Lost(why string) {
	for i := range l.journal {
		if l.journal[i].taken {
			l.outcome(i, slots.StatusMaybeExecuted, why)
		}
	}
}

// sendAgain posts requests that the other end has not seen, one by one, at most limit.
// It returns how many more may be posted.
func (l *OutLane) sendAgain(limit int) int {
	n := 0
	for _, i := range l.resend {
		if limit == 0 {
			break
		}
		n++
		e := &l.journal[i]
		if !e.taken {
			continue
		}
		var h slots.Header
		run := e.word.Run()
		if !h.Decode(l.Ring.HeaderAt(i)) || h.Ticket != e.word.Ticket() || h.CheckRequest(l.geo, run) != nil {
			// A worker of the domain has written over it since it was admitted.
			l.domain.agent.Count.ProtocolErrors++
			l.domain.damage(false)
			l.outcome(i, slots.StatusNotExecuted, "the request was damaged in shared memory")
			continue
		}
		if h.Flags&slots.FlagCarry != 0 && l.Plain {
			l.outcome(i, slots.StatusInvalid, "the peer does not know what may go with a request")
			continue
		}
		e.wr = l.End.next
		l.Post(groupsend.Group{Index: i, Count: 1, From: i * l.geo.SlotSize, Bytes: slots.HeaderSize + int(h.Length)})
		l.domain.agent.Count.Resent++
		faultpoint.Here("resend.queued")
		limit--
	}
	l.resend = l.resend[:copy(l.resend, l.resend[n:])]
	if n > 0 {
		if err := l.End.flush(); err != nil {
			l.Fail("post failed", err)
			return 0
		}
	}
	return limit
}

// Query says what this end knows of the requests in list, which are all that the other
// end waits for. False: this end knows of another one that has no answer, so that it is
// not what the other end takes it for. The lane is suspended; the answers that are asked
// for go out when it is up.
func (l *InLane) Query(list []SentRequest) (verdicts []byte, ok bool) {
	verdicts = make([]byte, len(list))
	active := 0
	for k, s := range list {
		rec := &l.records[s.index]
		if !rec.seen || rec.ticket != s.ticket {
			continue
		}
		switch {
		case rec.active:
			active++
			verdicts[k] = byte(executing)
		case rec.done:
			verdicts[k] = byte(answered)
		default:
			continue
		}
		rec.owed = true
	}
	return verdicts, active == l.Busy
}

// pay sends the answers that the other end has asked for and that are there. Those of
// requests that are being executed follow by themselves.
func (l *InLane) pay() {
	for i := range l.records {
		if rec := &l.records[i]; rec.owed {
			rec.owed = false
			if rec.done {
				l.answers.Add(i, int(rec.run), rec.length)
			}
		}
	}
	if l.answers.Pending() > 0 {
		l.later()
	}
}

// EncodeSent returns the names of requests as bytes for the wire, slots.NameSize for each.
func EncodeSent(list []SentRequest) []byte {
	b := make([]byte, 0, len(list)*slots.NameSize)
	for _, s := range list {
		b = slots.AppendName(b, s.index, s.ticket)
	}
	return b
}

var errResync = errors.New("malformed resynchronisation")

// DecodeSent returns the names of requests of a lane with slots as g says. Errors wrap errResync.
func DecodeSent(b []byte, g slots.Geometry) ([]SentRequest, error) {
	if len(b)%slots.NameSize != 0 || len(b)/slots.NameSize > g.Slots {
		return nil, fmt.Errorf("%w: %d bytes of requests for %d slots", errResync, len(b), g.Slots)
	}
	list := make([]SentRequest, 0, len(b)/slots.NameSize)
	last := -1
	for ; len(b) > 0; b = b[slots.NameSize:] {
		var s SentRequest
		s.index, s.ticket = slots.ReadName(b)
		if s.index <= last || s.index >= g.Slots {
			return nil, fmt.Errorf("%w: slot %d after %d, of %d", errResync, s.index, last, g.Slots)
		}
		last = s.index
		list = append(list, s)
	}
	return list, nil
}

// CheckVerdicts judges what the other end says of n requests.
func CheckVerdicts(verdicts []byte, n int) error {
	if len(verdicts) != n {
		return fmt.Errorf("%w: %d verdicts on %d requests", errResync, len(verdicts), n)
	}
	for _, v := range verdicts {
		if v > byte(answered) {
			return fmt.Errorf("%w: verdict %d", errResync, v)
		}
	}
	return nil
}
