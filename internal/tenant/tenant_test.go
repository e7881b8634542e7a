package tenant_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/internal/tenant"
	"github.com/rdmad/rdmad/server"
)

func TestMain(m *testing.M) { daemontest.Main(m) }

// patience is far beyond what anything here takes.
const patience = time.Minute

// errEnded is what register gets when the domain has new memory again before it has returned.
var errEnded = fmt.Errorf("register: %w: the domain gets new memory", server.ErrClosed)

// runTenant runs a tenant whose calls of register have these outcomes, one after the other, and are good afterwards. An
// attachment whose call is good and not the last one ends as soon as it has settled. The channels get the number of each
// call of register, that of the last call whenever the tenant settles, and what it returns, also after stop.
func runTenant(t *testing.T, outcomes ...error) (runs, settles <-chan int, left <-chan error, stop func()) {
	t.Helper()
	a, _ := daemontest.Pair(t, "")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	called, settled, over := make(chan int, len(outcomes)+1), make(chan int, len(outcomes)+1), make(chan error, 1)
	n := 0
	serves := tenant.Of(func(_ context.Context, s *server.Server) error {
		n++
		called <- n
		if n > len(outcomes) {
			return nil
		}
		if outcomes[n-1] == nil {
			return s.Close() // Serve returns as it does when the daemon has ended the attachment
		}
		return outcomes[n-1]
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		over <- serves(ctx, a.Socket, func() { settled <- n })
	}()
	t.Cleanup(func() { cancel(); <-done })
	return called, settled, over, cancel
}

// A domain that has new memory twice in quick succession ends an attachment before register has returned: the tenant attaches
// once more, and the node goes on. It has settled once.
func TestEndedWhileItRegistersAgain(t *testing.T) {
	runs, settles, left, stop := runTenant(t, nil, errEnded)
	for want := range 3 {
		select {
		case n := <-runs:
			if n != want+1 {
				t.Fatalf("call %d of register, want %d", n, want+1)
			}
		case err := <-left:
			t.Fatalf("the tenant has left after %d calls of register: %v", want, err)
		}
	}
	stop()
	if err := <-left; err != nil {
		t.Errorf("a tenant that is told to stop: %v", err)
	}
	if n := len(settles); n != 1 {
		t.Errorf("it has settled %d times", n)
	}
}

// What is wrong with the first attachment keeps the node from starting, and what else is wrong with a later one ends it.
func TestTenantLeaves(t *testing.T) {
	wrong := errors.New("there is no such table")
	for what, c := range map[string]struct {
		outcomes []error
		want     error
		settled  int
	}{
		"ended before it has settled":   {[]error{errEnded}, server.ErrClosed, 0},
		"wrong at the start":            {[]error{wrong}, wrong, 0},
		"wrong when it registers again": {[]error{nil, wrong}, wrong, 1},
	} {
		t.Run(what, func(t *testing.T) {
			_, settles, left, _ := runTenant(t, c.outcomes...)
			if err := <-left; !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
			if n := len(settles); n != c.settled {
				t.Errorf("it has settled %d times, want %d", n, c.settled)
			}
		})
	}
}

// A core that lacks what an attachment takes when its domain has got new memory refuses its own services, too. They try again, and the
// core goes on.
func TestRefusedWhenItAttachesAgain(t *testing.T) {
	a, _ := daemontest.Pair(t, "")
	dir := t.TempDir()
	socket, other := filepath.Join(dir, "s"), filepath.Join(dir, "o")
	if err := os.Symlink(a.Socket, socket); err != nil {
		t.Fatal(err)
	}
	// point makes socket lead somewhere else, in one step.
	point := func(to string) {
		t.Helper()
		if err := errors.Join(os.Symlink(to, socket+"~"), os.Rename(socket+"~", socket)); err != nil {
			t.Error(err)
		}
	}
	full, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: other, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	refused := make(chan error, 1)
	refuse := func(m *attach.Message) error {
		sock, err := full.AcceptUnix()
		if err != nil {
			return err
		}
		c := attach.NewConn(sock)
		defer c.Close()
		if _, _, err = c.Recv(); err != nil {
			return err
		}
		if m.Type == attach.TypeFail { // the last one
			point(a.Socket)
		}
		return c.Send(m)
	}
	go func() {
		// As when the domain gets new memory once more, and then as when the core lacks descriptors.
		refused <- errors.Join(
			refuse(&attach.Message{Type: attach.TypeGoodbye, Reason: "the domain has new memory"}),
			refuse(&attach.Message{Type: attach.TypeFail, Fail: attach.FailFor(attach.ErrLimit)}))
	}()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	registered, left := make(chan int, 2), make(chan error, 1)
	n := 0
	serves := tenant.Of(func(_ context.Context, s *server.Server) error {
		n++
		registered <- n
		if n == 1 {
			point(other)
			return s.Close() // Serve returns as it does when the daemon has ended the attachment
		}
		return nil
	})
	go func() { left <- serves(ctx, socket, func() {}) }()
	for range 2 {
		select {
		case <-registered:
		case err := <-left:
			t.Fatalf("the tenant has left: %v", err)
		}
	}
	if err := <-refused; err != nil {
		t.Errorf("it was not refused: %v", err)
	}
	cancel()
	if err := <-left; err != nil {
		t.Errorf("a tenant that is told to stop: %v", err)
	}
}
