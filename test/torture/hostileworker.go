package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"time"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// hostileUID is the user that hostile workers are.
const hostileUID = 65534

// hostileUser returns the user of the second domain, -1 if there can be none: it needs
// processes of another user.
func hostileUser() int {
	if os.Geteuid() != 0 {
		return -1
	}
	return hostileUID
}

// vandal is one attachment of a hostile worker.
type vandal struct {
	rng   *rand.Rand
	conn  *attach.Conn
	id    int
	maps  []*shm.Segment
	lanes []*shm.Segment
	bell  *shm.Bell
	// own is memory to write to instead; nil for none.
	own []byte
}

// hostileRole attaches, writes at random to everything that it gets, rings, sends garbage,
// closes its socket and goes on writing; and again, until SIGTERM.
func hostileRole(ctx context.Context, args *roleArgs) error {
	rng := rand.New(rand.NewPCG(args.Seed, 0))
	for ctx.Err() == nil {
		v, err := newVandal(ctx, args, rng)
		if err != nil {
			time.Sleep(again)
			continue
		}
		v.live(ctx)
		v.close()
	}
	return nil
}

// newVandal attaches as an honest worker would, so as to have something to damage.
func newVandal(ctx context.Context, args *roleArgs, rng *rand.Rand) (_ *vandal, err error) {
	var d net.Dialer
	raw, err := d.DialContext(ctx, "unixpacket", args.Socket)
	if err != nil {
		return nil, err
	}
	v := &vandal{rng: rng, conn: attach.NewConn(raw.(*net.UnixConn))}
	defer func() {
		if err != nil {
			v.close()
		}
	}()
	if err := v.conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return nil, err
	}
	hello := &attach.Hello{Protocol: attach.Protocol, ABI: shm.ABIVersion, Role: attach.RoleClient, Name: "hostile"}
	ask := &attach.Message{Type: attach.TypeResolve, Seq: 1, Target: &attach.Target{Node: args.Peer, Service: "bad", Method: "bad"}}
	last := attach.TypeResolved
	if args.Serve {
		hello.Role = attach.RoleService
		ask = &attach.Message{Type: attach.TypeRegister, Seq: 1, Methods: []attach.Method{{Service: "bad", Method: "bad", Answer: 100}}}
		last = attach.TypeRegistered
	}
	if err := v.conn.Send(&attach.Message{Type: attach.TypeHello, Hello: hello}); err != nil {
		return nil, err
	}
	if err := v.until(attach.TypeWelcome); err != nil {
		return nil, err
	}
	if err := v.conn.Send(ask); err != nil {
		return nil, err
	}
	if err := v.until(last); err != nil {
		return nil, err
	}
	return v, nil
}

// until takes messages, and all descriptors that come with them, until one is of the type,
// or says that it will not come.
func (v *vandal) until(t attach.Type) error {
	for {
		m, fds, err := v.conn.Recv()
		if err != nil {
			return err
		}
		for i, fd := range fds {
			v.take(m, i, fd)
		}
		switch m.Type {
		case t, attach.TypeFail: // nobody serves it: there is enough to damage all the same
			return nil
		case attach.TypeGoodbye:
			return fmt.Errorf("the daemon says %s", m.Reason)
		}
	}
}

// take maps what a descriptor is.
func (v *vandal) take(m *attach.Message, i, fd int) {
	switch {
	case m.Type == attach.TypeWelcome && i == 2:
		v.bell = shm.OpenBell(fd)
	case m.Type == attach.TypeWelcome && i == 3:
		// Pages: it says that it waits for some, by chance, and reads none.
	case m.Type == attach.TypeWelcome && m.Welcome != nil:
		v.id = m.Welcome.ID
		kind, size := shm.KindDomain, slots.DomainSegmentSize
		if i == 1 {
			kind, size = shm.KindWorker, slots.WorkerSegmentSize
		}
		if s, err := shm.Open(fd, kind, size); err == nil {
			v.maps = append(v.maps, s)
		}
	case m.Type == attach.TypeLane && m.Lane != nil:
		if s, err := shm.Open(fd, shm.KindLane, m.Lane.Geometry.SegmentSize()); err == nil {
			v.maps, v.lanes = append(v.maps, s), append(v.lanes, s)
			_ = v.conn.Send(&attach.Message{Type: attach.TypeMapped, Lane: m.Lane})
		}
	default:
		shm.CloseFDs([]int{fd})
	}
}

// live is the life of an attachment: damage, then garbage on the socket or its end, then
// damage without it.
func (v *vandal) live(ctx context.Context) {
	v.damage(ctx, time.Duration(20+v.rng.IntN(100))*time.Millisecond)
	if v.rng.IntN(3) > 0 {
		v.garbage()
		v.damage(ctx, 10*time.Millisecond)
	}
	_ = v.conn.Close()
	v.damage(ctx, time.Duration(20+v.rng.IntN(50))*time.Millisecond)
}

// damage writes for some time. It leaves the processor to others half of the time: to take
// it is not what it is to be hostile with.
func (v *vandal) damage(ctx context.Context, d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end) && ctx.Err() == nil; {
		begin := time.Now()
		for range 200 {
			v.scribble()
		}
		if v.bell != nil {
			v.bell.Ring()
		}
		time.Sleep(time.Since(begin) + 100*time.Microsecond)
	}
}

// scribble writes one thing: a random word, one that looks like a slot's, or a piece of
// random bytes.
func (v *vandal) scribble() {
	if len(v.maps) == 0 && v.own == nil {
		return
	}
	mem := v.own
	if mem == nil {
		s := v.maps[v.rng.IntN(len(v.maps))]
		if len(v.lanes) > 0 && v.rng.IntN(2) == 0 {
			s = v.lanes[v.rng.IntN(len(v.lanes))]
		}
		mem = s.Bytes()
	}
	// The beginning, where the words are, is more interesting than the rest.
	reach := len(mem)
	if v.rng.IntN(2) == 0 {
		reach = min(reach, 80<<10)
	}
	at := v.rng.IntN(reach/8-8) * 8
	switch v.rng.IntN(4) {
	case 0:
		shm.Uint64At(mem, at).Store(v.rng.Uint64())
	case 1:
		shm.Uint64At(mem, at).Store(uint64(v.rng.IntN(4)))
	case 2:
		// A slot's word: of this worker, or forged as another's.
		owner := v.id
		if v.rng.IntN(2) == 0 {
			owner = v.rng.IntN(slots.MaxOwner + 1)
		}
		state, run := slots.State(v.rng.IntN(8)), 1+v.rng.IntN(8)
		shm.Uint64At(mem, at).Store(uint64(slots.MakeWord(state, run, owner, v.rng.Uint64N(1<<40))))
	case 3:
		for i := range 4 {
			binary.LittleEndian.PutUint64(mem[at+8*i:], v.rng.Uint64())
		}
	}
}

// garbage sends what is no message, or one that makes no sense.
func (v *vandal) garbage() {
	b := make([]byte, 1+v.rng.IntN(2000))
	for i := range b {
		b[i] = byte(v.rng.Uint32())
	}
	messages := [][]byte{
		b, []byte("{}"), []byte(`{"type":"hello"}`), []byte(`{"type":"mapped","lane":{"id":65535}}`), []byte(`{"type":"free","region":{"index":4294967295}}`),
		[]byte(`{"type":"resolve","seq":9,"target":{"node":"` + string(make([]byte, 1000)) + `"}}`), []byte(`{"type":"register","methods":[{}]}`),
		[]byte(`{"type":"alloc","region":{"size":-1}}`), []byte(`{"type":"export","node":"b"}`), []byte(`{"type":"status"}`),
	}
	_ = v.conn.Socket().SetWriteDeadline(time.Now().Add(time.Second))
	for range 1 + v.rng.IntN(5) {
		_, _ = v.conn.Socket().Write(messages[v.rng.IntN(len(messages))])
	}
}

// close gives everything back.
func (v *vandal) close() {
	_ = v.conn.Close()
	for _, s := range v.maps {
		_ = s.Close()
	}
	if v.bell != nil {
		_ = v.bell.Close()
	}
}
