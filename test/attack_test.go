package test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/server"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// attacker is a process with everything that a worker is given, and what it does with it.
type attacker struct {
	*raw
	args *roleArgs
	rng  *rand.Rand
}

// attacks are what hostile workers do, a step at a time. False: the attachment is used up.
var attacks = map[string]func(*attacker) bool{
	"scribble": (*attacker).scribble,
	"forge":    (*attacker).forge,
	"bells":    (*attacker).ring,
	"hints":    (*attacker).lie,
	"squat":    (*attacker).squat,
	"garbage":  (*attacker).garbage,
	"churn":    func(*attacker) bool { return false },
	"hold":     (*attacker).hold,
	"holes":    (*attacker).holes,
	"pretend":  (*attacker).pretend,
	"gifts":    (*attacker).gifts,
}

// attackRole attaches and attacks until it is told to end, and attaches again when it
// has used its attachment up, if it may. It says when it begins.
func attackRole(ctx context.Context, args *roleArgs, say *json.Encoder) error {
	a := &attacker{args: args, rng: rand.New(rand.NewPCG(args.Seed, 1))}
	step := attacks[args.Method]
	told := false
	for ctx.Err() == nil {
		target := *args
		target.Method = "who"
		w, err := rawAttach(&target)
		if err != nil {
			if a.raw == nil || args.Method == "churn" {
				time.Sleep(time.Millisecond)
				continue
			}
			// It may not attach again: what it has is what it goes on with.
		} else {
			if a.raw != nil {
				a.close()
			}
			a.raw = w
		}
		if !told {
			told = true
			if err := say.Encode(0); err != nil {
				return err
			}
		}
		for ctx.Err() == nil {
			// It leaves the processors to others half of the time.
			begin := time.Now()
			more := step(a)
			time.Sleep(time.Since(begin) + 50*time.Microsecond)
			if !more {
				break
			}
		}
	}
	return nil
}

// segment returns one of its segments, with what to write to.
func (a *attacker) segment() []byte { return a.segs[a.rng.IntN(len(a.segs))].Bytes() }

// wake makes the agent look at everything.
func (a *attacker) wake() {
	bells := slots.NewBells(a.segs[0].Bytes())
	for lane := range uint16(len(a.rings) + 2) {
		bells.MarkLane(lane)
	}
	bells.MarkWorker(a.id)
	a.bell.Ring()
}

// scribble writes at random to all its memory, more often where the words are.
func (a *attacker) scribble() bool {
	for range 1000 {
		mem := a.segment()
		reach := len(mem)
		if a.rng.IntN(2) == 0 {
			reach = min(reach, 80<<10)
		}
		shm.Uint64At(mem, a.rng.IntN(reach/8)*8).Store(a.rng.Uint64())
	}
	a.wake()
	return true
}

// laneWords is where the slot words are in a lane's segment; see docs/layout.md.
const laneWords = shm.HeaderSize + 0x1000

// forge publishes requests as whoever it likes, with headers that make no sense.
func (a *attacker) forge() bool {
	lane := a.rng.IntN(len(a.rings))
	r, mem := a.rings[lane], a.segs[2+lane].Bytes()
	for range 1000 {
		i := a.rng.IntN(r.Geometry().Slots)
		state := []slots.State{slots.Pub, slots.Claim, slots.Ans, slots.Taken}[a.rng.IntN(4)]
		h := slots.Header{Ticket: a.rng.Uint64N(1 << 40), Run: uint16(a.rng.IntN(80)), Kind: slots.Kind(a.rng.IntN(5)), Length: a.rng.Uint32(), Method: a.rng.Uint32()}
		h.Encode(r.HeaderAt(i))
		shm.Uint64At(mem, laneWords+8*i).Store(uint64(slots.MakeWord(state, 1+a.rng.IntN(4), a.rng.IntN(64), h.Ticket)))
	}
	a.wake()
	return true
}

// ring rings all bells as fast as it can.
func (a *attacker) ring() bool {
	bells := slots.NewBells(a.segs[0].Bytes())
	for range 200 {
		for i := range slots.MaxLanes {
			bells.MarkLane(uint16(i))
		}
		for i := range slots.MaxOwner + 1 {
			bells.MarkWorker(i)
		}
		a.bell.Ring()
	}
	return true
}

// lie says that it has finished what it never had.
func (a *attacker) lie() bool {
	rings := slots.NewWorkerRings(a.segs[1].Bytes())
	for i := range slots.HintEntries {
		rings.Up.Push(slots.MakeHint(uint16(a.rng.IntN(slots.MaxLanes)), i, uint64(i)))
	}
	a.wake()
	return true
}

// squat closes its socket and goes on.
func (a *attacker) squat() bool {
	_ = a.sock.Close()
	return a.scribble()
}

// garbage sends what is no message.
func (a *attacker) garbage() bool {
	b := make([]byte, 1+a.rng.IntN(2000))
	for i := range b {
		b[i] = byte(a.rng.Uint32())
	}
	_ = a.sock.SetWriteDeadline(time.Now().Add(time.Second))
	for _, m := range [][]byte{[]byte(`{"type":"mapped","lane":{"id":1}}`), []byte(`{"type":"free","region":{"index":4000000000}}`), b} {
		if _, err := a.sock.Write(m); err != nil {
			return false
		}
	}
	return a.rng.IntN(8) > 0
}

// hold claims all it gets, publishes half of it, reads nothing, and takes regions.
func (a *attacker) hold() bool {
	for _, r := range a.rings {
		for range 64 {
			u, err := r.Claim(a.id, 1)
			if err != nil {
				break
			}
			h := slots.Header{Ticket: u.Ticket, Run: 1, Kind: slots.KindRequest, Length: 8, Answer: 8, Method: a.rng.Uint32(), From: uint16(a.id)}
			h.Encode(r.Header(u))
			if a.rng.IntN(2) == 0 {
				r.Publish(u, a.id)
			}
		}
	}
	_ = a.sock.SetWriteDeadline(time.Now().Add(time.Millisecond))
	_, _ = a.sock.Write([]byte(`{"type":"alloc","seq":9,"region":{"size":1000000}}`))
	a.wake()
	return true
}

// holes does to its memfds what the kernel lets it do.
func (a *attacker) holes() bool {
	for _, s := range a.segs {
		fd, size := s.FD(), int64(len(s.Bytes()))
		if err := unix.Ftruncate(fd, 0); err == nil {
			fmt.Fprintln(os.Stderr, "a segment can be truncated")
			os.Exit(1)
		}
		if err := unix.Ftruncate(fd, 2*size); err == nil {
			fmt.Fprintln(os.Stderr, "a segment can be made larger")
			os.Exit(1)
		}
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE); err == nil {
			fmt.Fprintln(os.Stderr, "a segment can be sealed")
			os.Exit(1)
		}
		_ = unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, size)
	}
	a.wake()
	return true
}

// pretend says that it has mapped lanes that it has not, again and again.
func (a *attacker) pretend() bool {
	_ = a.sock.SetWriteDeadline(time.Now().Add(time.Second))
	for i := range 100 {
		if _, err := fmt.Fprintf(a.sock, `{"type":"taken","seq":%d}`, i); err != nil {
			return false
		}
	}
	_, err := a.sock.Write([]byte(`{"type":"mapped","lane":{"id":3}}`))
	return err == nil && a.rng.IntN(20) > 0
}

// gifts sends descriptors where none belong.
func (a *attacker) gifts() bool {
	for range 10 {
		err := shm.SendFDs(a.sock, []byte(`{"type":"taken","seq":1}`), a.segs[0].FD(), a.segs[1].FD(), 0)
		if err != nil && !errors.Is(err, unix.EPERM) { // that is the kernel's answer, since Linux 6.16
			return false
		}
	}
	return true
}

// victimRole serves and calls in the domain that is attacked, and attaches again as often
// as it must. It ends well if each of its calls has ended.
func victimRole(ctx context.Context, args *roleArgs, say *json.Encoder) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if s, err := server.Attach(ctx, args.Socket, server.Name("victim")); err == nil {
				if s.Handle(args.Service, "who", func(c *server.Call) error { return c.Reply(c.Request()) }) == nil {
					_ = s.Serve(ctx)
				}
				_ = s.Close()
			}
			time.Sleep(pollPause)
		}
	}()
	if err := say.Encode(os.Getpid()); err != nil {
		return err
	}
	for ctx.Err() == nil {
		conn, err := client.Attach(ctx, args.Socket, client.Name("victim"))
		if err != nil {
			time.Sleep(pollPause)
			continue
		}
		for over := false; !over && ctx.Err() == nil; {
			soon, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
			_, _ = conn.Call(soon, args.Node+"/"+args.Service+"/who", make([]byte, 100))
			cancel()
			select {
			case <-conn.Done():
				over = true
			case <-time.After(time.Millisecond):
			}
		}
		if err := conn.Close(); err != nil {
			return err
		}
	}
	<-done
	return nil
}
