package rc

import (
	"context"
	"errors"
	"fmt"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/perf"
	"github.com/rdmad/rdmad/internal/perf/link"
	"github.com/rdmad/rdmad/shm"
)

// Kinds of messages over the link.
const (
	kindAttributes = "attributes"
	kindVerdict    = "verdict"
)

// ErrPollTimeout is wrapped by the error of a completion that took longer than
// Tool.PollTimeout.
var ErrPollTimeout = errors.New("no completion was found in the queue")

// verdict is what a side says of a step.
type verdict struct {
	Step int `json:"step"`
	// Digest is of the bytes that were moved, as this side sees them.
	Digest string `json:"digest"`
	// Ns is how long the operation took the side that posted it, 0 for the other one.
	Ns int64 `json:"ns"`
}

// run is a side of a run.
type run struct {
	*Tool
	place
	s *perf.Session
	e fabric.Endpoint
}

// newRun checks what the other side has offered, before anything is posted.
func newRun(t *Tool, s *perf.Session) (*run, error) {
	r := &run{Tool: t, place: place{t.Size}, s: s, e: s.Endpoints[0]}
	if s.Peer.Len != uint64(r.total()) {
		return nil, perf.Inputf("the other side has %d bytes of memory instead of %d", s.Peer.Len, r.total())
	}
	return r, nil
}

// all exchanges attributes and does the steps.
func (r *run) all(ctx context.Context) (*Result, error) {
	result := &Result{Size: r.Size, Seed: r.Seed, Client: Side{Used: r.s.Used}, Server: Side{Used: r.s.Theirs}}
	var err error
	if result.Client.Attributes, result.Server.Attributes, err = r.attributes(ctx); err != nil {
		return nil, err
	}
	for i, st := range steps {
		done, err := r.step(ctx, i, st)
		if err != nil {
			return nil, fmt.Errorf("step %d of %d, %s by the %s: %w", i+1, len(steps), st.op, sideName(st.from), err)
		}
		result.Steps = append(result.Steps, done)
	}
	return result, nil
}

// attributes asks this side's endpoint and the other side what they are made of.
func (r *run) attributes(ctx context.Context) (own, theirs []fabric.Attribute, err error) {
	if a, ok := r.e.(fabric.Attributer); ok {
		if own, err = a.Attributes(); err != nil {
			return nil, nil, fmt.Errorf("attributes: %w", err)
		}
	}
	if err := r.s.Link.Send(kindAttributes, own); err != nil {
		return nil, nil, err
	}
	return own, theirs, r.s.Hear(ctx, kindAttributes, &theirs)
}

// step does one step and verifies it.
func (r *run) step(ctx context.Context, number int, st step) (Step, error) {
	memory := r.s.Region.Bytes()
	before, theirs := r.content(number, r.s.Role), r.content(number, otherRole(r.s.Role))
	copy(memory, before)
	posts := st.from == r.s.Role
	if !posts && st.op != opRead {
		if err := r.expect(st.op); err != nil {
			return Step{}, err
		}
	}
	// The other side's memory is what the step says, and its receive is posted.
	if err := r.s.Barrier(ctx); err != nil {
		return Step{}, err
	}
	own := verdict{Step: number}
	var err error
	switch {
	case posts:
		own.Ns, err = r.post(ctx, number, st.op)
	case st.op != opRead:
		err = r.arrival(ctx, number, st.op)
	}
	if err != nil {
		return Step{}, err
	}
	// Bytes travel from the side that posts, unless it reads.
	gets := posts == (st.op == opRead)
	given, moved := []byte(nil), memory[r.out():r.out()+r.Size]
	if gets {
		given, moved = theirs, memory[r.in():r.in()+r.Size]
	}
	own.Digest = digest(moved)
	if !gets && st.op == opRead {
		// Its memory may still be read: verified when the other side is done.
		return r.agree(ctx, number, st, own, func() error { return r.inspect(memory, before, nil) })
	}
	if err := r.inspect(memory, before, given); err != nil {
		return Step{}, err
	}
	return r.agree(ctx, number, st, own, func() error { return nil })
}

// agree exchanges verdicts: both sides must have seen the same bytes. After is asked when the
// other side's has come.
func (r *run) agree(ctx context.Context, number int, st step, own verdict, after func() error) (Step, error) {
	if err := r.s.Link.Send(kindVerdict, own); err != nil {
		return Step{}, err
	}
	var theirs verdict
	if err := r.s.Hear(ctx, kindVerdict, &theirs); err != nil {
		return Step{}, err
	}
	if err := after(); err != nil {
		return Step{}, err
	}
	switch {
	case theirs.Step != number:
		return Step{}, &link.ProtocolError{Detail: fmt.Sprintf("step %d instead of %d", theirs.Step+1, number+1)}
	case theirs.Digest != own.Digest:
		return Step{}, fmt.Errorf("the %s has seen bytes with the digest %.16s, this side %.16s", sideName(otherRole(r.s.Role)), theirs.Digest, own.Digest)
	}
	return Step{Op: st.op, From: sideName(st.from), Bytes: r.Size, Microseconds: float64(own.Ns+theirs.Ns) / 1e3, Digest: own.Digest}, nil
}

// expect posts the receive of a step: for the bytes of a send, or, without memory, for the
// immediate behind a write.
func (r *run) expect(op string) error {
	var wr fabric.RecvWR
	if op == opSend {
		wr.Local = fabric.Local{Region: r.s.Region, Offset: uint64(r.in()), Len: uint32(r.Size)}
	}
	_, err := r.e.PostRecv([]fabric.RecvWR{wr})
	return err
}

// post does a step's operation and returns how long it took.
func (r *run) post(ctx context.Context, number int, op string) (int64, error) {
	wr := fabric.SendWR{
		ID: uint64(number), Flags: fabric.FlagSignaled, RemoteKey: r.s.Peer.Key,
		Local: fabric.Local{Region: r.s.Region, Offset: uint64(r.out()), Len: uint32(r.Size)},
	}
	switch op {
	case opSend:
		wr.Op = fabric.OpSend
	case opRead:
		wr.Op, wr.RemoteAddr, wr.Local.Offset = fabric.OpRead, r.s.Peer.Addr+uint64(r.out()), uint64(r.in())
	case opWrite:
		wr.Op, wr.RemoteAddr = fabric.OpWrite, r.s.Peer.Addr+uint64(r.in())
	}
	begun := shm.Nanotime()
	if err := r.postOne(ctx, wr, op); err != nil {
		return 0, err
	}
	took := shm.Nanotime() - begun
	if op != opWrite {
		return took, nil
	}
	// The other side learns of a write by an immediate only. One that is posted once the write
	// has completed overtakes it on no device: one without an order of writes completes them
	// when their bytes are in place.
	return took, r.postOne(ctx, fabric.SendWR{
		ID: uint64(number), Op: fabric.OpWriteImm, Flags: fabric.FlagSignaled, Imm: uint32(number),
		RemoteAddr: r.s.Peer.Addr + uint64(r.in()), RemoteKey: r.s.Peer.Key,
	}, "immediate behind the write")
}

// postOne posts a work request and waits for its completion.
func (r *run) postOne(ctx context.Context, wr fabric.SendWR, what string) error {
	n, err := r.e.PostSend([]fabric.SendWR{wr})
	if err != nil || n != 1 {
		return fmt.Errorf("the %s was not taken: %w", what, err)
	}
	_, err = r.completion(ctx, wr.Op, "completion of the "+what)
	return err
}

// arrival waits for what the other side sends, or for the immediate behind its write.
func (r *run) arrival(ctx context.Context, number int, op string) error {
	if op == opSend {
		c, err := r.completion(ctx, fabric.OpRecv, "arrival of the send")
		if err == nil && c.Len != uint32(r.Size) {
			err = fmt.Errorf("%d bytes have come instead of %d", c.Len, r.Size)
		}
		return err
	}
	c, err := r.completion(ctx, fabric.OpRecvImm, "immediate behind the write")
	if err == nil && c.Imm != uint32(number) {
		err = fmt.Errorf("immediate %d has come instead of %d", c.Imm, number)
	}
	return err
}

// completion waits for one completion, for PollTimeout at most.
func (r *run) completion(ctx context.Context, op fabric.Op, what string) (fabric.Completion, error) {
	limited, cancel := context.WithTimeout(ctx, r.PollTimeout)
	defer cancel()
	var c [1]fabric.Completion
	_, err := r.s.Completions(limited, c[:])
	switch {
	case err != nil && limited.Err() != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded):
		return c[0], fmt.Errorf("%w within %v: waited for the %s (--poll-timeout)", ErrPollTimeout, r.PollTimeout, what)
	case err != nil:
		return c[0], fmt.Errorf("waiting for the %s: %w", what, err)
	case c[0].Op != op:
		return c[0], &link.ProtocolError{Detail: fmt.Sprintf("operation %d has completed instead of the %s", c[0].Op, what)}
	}
	return c[0], nil
}
