//go:build faultpoints

package fault

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/faultpoint"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// victimArgs are what a victim is told.
type victimArgs struct {
	Socket string
	// Life is what it does, K and At the slots of its requests and where in the
	// ring the first one begins.
	Life  string
	K, At int
	// Run makes the ids of its requests its own.
	Run uint64
	// Outcomes is a file to which it appends how its requests ended.
	Outcomes string
	// Kill is what happens to it where, as faultpoint.Arm takes it: from when the
	// life says so, not from its start.
	Kill string
}

// victim is a process that makes requests and may die at any step.
type victim struct {
	victimArgs
	ctx  context.Context
	conn *client.Conn
	out  *os.File
	seq  uint64
	// other is a second attachment of the same process, for what other processes
	// would do to the ring.
	other *raw
	ring  *slots.Ring
}

// lives are what victims do. Those that arm themselves have done something before.
var lives = map[string]func(*victim) error{
	"attach":   (*victim).attachLife,
	"bells":    (*victim).bellsLife,
	"calls":    (*victim).callsLife,
	"takeback": (*victim).takebackLife,
	"refused":  (*victim).refusedLife,
	"late":     (*victim).lateLife,
	"full":     (*victim).fullLife,
	"regions":  (*victim).regionsLife,
	"leaves":   (*victim).leavesLife,
}

// runVictim is the main function of a victim.
func runVictim(args []string) (err error) {
	v := &victim{}
	if err := json.Unmarshal([]byte(args[0]), &v.victimArgs); err != nil {
		return err
	}
	var cancel context.CancelFunc
	v.ctx, cancel = context.WithTimeout(context.Background(), limit)
	defer cancel()
	if v.out, err = os.OpenFile(v.Outcomes, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644); err != nil {
		return err
	}
	defer v.out.Close()
	if v.Life == "attach" {
		v.arm()
	}
	own := v.Life != "attach" && v.Life != "leaves"
	if v.conn, err = client.Attach(v.ctx, v.Socket); err != nil {
		return err
	}
	if own {
		if v.other, err = openRaw(v.ctx, v.Socket); err != nil {
			return err
		}
		if v.ring, err = v.other.resolve(v.ctx, "t", "do"); err != nil {
			return err
		}
	}
	if err := lives[v.Life](v); err != nil {
		return fmt.Errorf("life %s: %w", v.Life, err)
	}
	if v.other != nil {
		if err := v.other.close(); err != nil {
			return err
		}
	}
	return v.conn.Close()
}

func (v *victim) arm() {
	if err := faultpoint.Arm(v.Kill); err != nil {
		panic(err)
	}
}

// request makes a request of K slots with an id of its own.
func (v *victim) request() (id uint64, req []byte) {
	v.seq++
	id = v.Run<<16 | v.seq
	req = make([]byte, v.K*slotSize-slots.HeaderSize)
	binary.LittleEndian.PutUint64(req, id)
	return id, req
}

// note writes down how a request ended.
func (v *victim) note(id uint64, answer []byte, err error) error {
	_, werr := fmt.Fprintf(v.out, "%d %s\n", id, outcome(id, answer, err))
	return werr
}

// outcome names how a request ended.
func outcome(id uint64, answer []byte, err error) string {
	switch {
	case err == nil && len(answer) == 8 && binary.LittleEndian.Uint64(answer) == id:
		return "answered"
	case errors.Is(err, client.ErrNotExecuted):
		return "not-executed"
	case errors.Is(err, client.ErrMaybeExecuted):
		return "maybe-executed"
	}
	return fmt.Sprintf("wrong:%x:%v", answer, err)
}

func (v *victim) call(m *client.Method) error {
	id, req := v.request()
	answer, err := m.Call(v.ctx, req)
	return v.note(id, answer, err)
}

func (v *victim) attachLife() error {
	m, err := v.conn.Method(v.ctx, "b/t/do")
	if err != nil {
		return err
	}
	return v.call(m)
}

// idle is after how long without work an agent sleeps until it is woken: before, it looks
// again by itself after shm.RawLimit.
const idle = 3 * shm.RawLimit

// bellsLife makes calls until it has had to wake the agent twice, out of a sleep that
// only a bell ends.
func (v *victim) bellsLife() error {
	m, err := v.conn.Method(v.ctx, "b/t/do")
	if err != nil {
		return err
	}
	v.arm()
	rung := make(chan struct{})
	faultpoint.Do("bell.rung", 2, func() { close(rung) })
	for {
		time.Sleep(idle) // nobody says when the agent sleeps: it is tried again
		if err := v.call(m); err != nil {
			return err
		}
		select {
		case <-rung:
			return nil
		case <-v.ctx.Done():
			return errors.New("the agent never sleeps")
		default:
		}
	}
}

// callsLife makes calls one by one and at once, and sends a one-way message.
func (v *victim) callsLife() error {
	m, err := v.conn.Method(v.ctx, "b/t/do")
	if err != nil {
		return err
	}
	if err := v.other.lead(v.ctx, v.ring, v.At); err != nil {
		return err
	}
	v.arm()
	for range 2 {
		if err := v.call(m); err != nil {
			return err
		}
	}
	var flying [2]*client.Future
	var ids [2]uint64
	for i := range flying {
		var req []byte
		ids[i], req = v.request()
		if flying[i], err = m.Go(v.ctx, req); err != nil {
			return err
		}
	}
	_, msg := v.request() // nobody learns how it ends
	if err := m.Post(v.ctx, msg); err != nil {
		return err
	}
	for i, f := range flying {
		answer, err := f.Wait(v.ctx)
		if err := v.note(ids[i], answer, err); err != nil {
			return err
		}
	}
	return nil
}

// takebackLife reserves and aborts, and cancels requests until some of them had not
// been taken yet.
func (v *victim) takebackLife() error {
	m, err := v.conn.Method(v.ctx, "b/t/do")
	if err != nil {
		return err
	}
	v.arm()
	for range 2 {
		r, err := m.Reserve(v.ctx, v.K*slotSize-slots.HeaderSize)
		if err != nil {
			return err
		}
		r.Abort()
	}
	back := 0
	for range 20_000 { // as often as it takes, on whatever machine
		id, req := v.request()
		f, err := m.Go(v.ctx, req)
		if err != nil {
			return err
		}
		if f.Cancel() {
			back++
		}
		answer, err := f.Wait(v.ctx)
		if err := v.note(id, answer, err); err != nil {
			return err
		}
		if back == 3 {
			return nil
		}
	}
	return errors.New("no request was taken back")
}

// refusedLife claims a run in whose way a slot is.
func (v *victim) refusedLife() error {
	m, err := v.conn.Method(v.ctx, "b/t/do")
	if err != nil {
		return err
	}
	// Not one of the first slots: a run does not wrap, so none would begin before it.
	if err := v.other.lead(v.ctx, v.ring, ringSlots/2); err != nil {
		return err
	}
	held, err := v.ring.Claim(v.other.Welcome.ID, 1)
	if err != nil {
		return err
	}
	for range 2 {
		// The run begins before the slot that is held.
		if err := v.other.lead(v.ctx, v.ring, held.Index+ringSlots-v.K+1); err != nil {
			return err
		}
		if v.seq == 0 {
			v.arm()
		}
		if err := v.call(m); err != nil {
			return err
		}
	}
	v.ring.Abort(held)
	v.ring.Freed(1)
	return nil
}

// lateLife claims slots while others move the cursor.
func (v *victim) lateLife() error {
	m, err := v.conn.Method(v.ctx, "b/t/do")
	if err != nil {
		return err
	}
	v.arm()
	for range 2 {
		faultpoint.Do("claim.complete", 1, func() {
			u, err := v.ring.Claim(v.other.Welcome.ID, 1)
			if err == nil {
				v.ring.Free(u.Index, 1)
			}
		})
		if err := v.call(m); err != nil {
			return err
		}
	}
	return nil
}

// fullLife waits for slots of a full ring, and frees slots for which others wait.
func (v *victim) fullLife() error {
	m, err := v.conn.Method(v.ctx, "b/t/do")
	if err != nil {
		return err
	}
	var held []slots.Run
	for {
		u, err := v.ring.Claim(v.other.Welcome.ID, 1)
		if errors.Is(err, slots.ErrFull) {
			break
		}
		if err != nil {
			return err
		}
		held = append(held, u)
	}
	v.arm()
	announced := make(chan struct{})
	faultpoint.Do("wait.announced", 2, func() { close(announced) })
	done := make(chan error, 1)
	go func() { done <- v.call(m) }()
	select {
	case <-announced:
	case <-time.After(limit):
		return errors.New("the caller does not wait for slots")
	}
	for _, u := range held {
		v.ring.Abort(u)
	}
	v.ring.Freed(len(held))
	if err := <-done; err != nil {
		return err
	}
	// Who wants many is told of one at a time.
	v.ring.WaitFree(4)
	for range 4 {
		v.ring.Freed(1)
	}
	return nil
}

// regionsLife lets handlers use its memory.
func (v *victim) regionsLife() error {
	m, err := v.conn.Method(v.ctx, "b/t/do")
	if err != nil {
		return err
	}
	v.arm()
	for range 2 {
		g, err := v.conn.AllocRegion(v.ctx, 4096)
		if err != nil {
			return err
		}
		ref, err := g.Ref(0, 64, client.MayWrite)
		if err != nil {
			return err
		}
		id, req := v.request()
		answer, err := m.CallRegions(v.ctx, req[:8], ref)
		if err := v.note(id, answer, err); err != nil {
			return err
		}
		if err := g.Free(); err != nil {
			return err
		}
	}
	return nil
}

// leavesLife has requests at both nodes, of which some wait for handlers that end only with
// their callers, says so, and lives on.
func (v *victim) leavesLife() error {
	for _, node := range []string{"a", "b"} {
		m, err := v.conn.Method(v.ctx, node+"/t/wait")
		if err != nil {
			return err
		}
		for range 3 {
			if _, err := m.Go(v.ctx, nil); err != nil {
				return err
			}
		}
	}
	fmt.Println("waiting")
	<-v.ctx.Done()
	return v.ctx.Err()
}
