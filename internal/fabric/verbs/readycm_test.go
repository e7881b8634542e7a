//go:build verbs && cgo && linux

package verbs

import (
	"runtime"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/fabric"
)

// While the kernel makes a queue pair ready, which may take it a second, the end's lock is free: the device's goroutine takes it for
// what it hears of the connection, and has others to serve. What must not happen meanwhile is that the queue pair is destroyed.
func TestReadyCMHoldsUpNobody(t *testing.T) {
	d := &Device{found: &found{}}
	e := &Endpoint{dev: d, lost: make(chan struct{})}
	e.turned.L = &e.mu
	e.state.Store(uint32(phaseConnecting))
	// The kernel is whoever has the identifier's lock; that it is destroyed keeps what is no identifier from the library.
	end := &cmEnd{conn: &conn{dead: true}, e: e, events: make(chan cmEvent, cmEvents)}
	end.mu.Lock()
	ready := make(chan error, 1)
	go func() { ready <- e.readyCM(end, address{}) }()
	for start := time.Now(); ; runtime.Gosched() {
		if time.Since(start) > patience {
			t.Fatal("the end's lock is held while the kernel makes the queue pair ready")
		}
		if !e.mu.TryLock() {
			continue
		}
		turning := e.turning
		e.mu.Unlock()
		if turning {
			break
		}
	}
	end.handle(cmEvent{kind: cmDisconnected})
	destroyed := make(chan error, 1)
	go func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		destroyed <- e.destroy()
	}()
	for range 100 {
		runtime.Gosched()
	}
	select {
	case err := <-destroyed:
		t.Errorf("destroyed while the kernel makes it ready: %v", err)
	default:
	}
	end.mu.Unlock()
	if err := <-ready; err == nil {
		t.Error("an identifier that is destroyed has made it ready")
	}
	if err := <-destroyed; err != nil {
		t.Error(err)
	}
	if e.ready || e.turning {
		t.Errorf("ready %v, turning %v", e.ready, e.turning)
	}
}

// An end that is closed while librdmacm connects it leaves nothing behind, however far it was.
func TestCloseBesideConnectCM(t *testing.T) {
	needDevice(t)
	cfg := Default()
	cfg.Connect = ConnectCM
	r := newRig(t, cfg, 512, false)
	before := live.Load()
	for i := range 100 {
		a, b := r.newEnd(0, 16, 16), r.newEnd(1, 16, 16)
		connected := make(chan error, 2)
		go func() { connected <- a.ep.Connect(t.Context(), b.ep.Address(), fabric.Passive) }()
		go func() { connected <- b.ep.Connect(t.Context(), a.ep.Address(), fabric.Active) }()
		first, second := a, b
		if i%2 == 0 {
			first, second = b, a
		}
		for range i * 20 {
			runtime.Gosched() // it gets further and further
		}
		r.must(first.close())
		<-connected
		r.must(second.close())
		<-connected
	}
	// A request that comes after its end has gone is refused by the device's goroutine.
	for start := time.Now(); live.Load() != before; runtime.Gosched() {
		if time.Since(start) > patience {
			t.Fatalf("%d objects are left", live.Load()-before)
		}
	}
}
