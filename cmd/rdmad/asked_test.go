package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/shm"
)

// replaced is a daemon whose core is replaced again and again: the first attachments end before their question is answered.
// It returns its socket, and what counts the attachments.
func replaced(t *testing.T, ends int64, state func() string) (socket string, attached *atomic.Int64) {
	t.Helper()
	socket, attached = filepath.Join(t.TempDir(), "s"), new(atomic.Int64)
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: socket, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	serve := func(c *attach.Conn) {
		defer c.Close()
		n := attached.Add(1)
		for {
			m, _, err := c.Recv()
			switch {
			case err != nil:
				return
			case m.Type == attach.TypeHello:
				_ = c.Send(&attach.Message{Type: attach.TypeWelcome, Welcome: &attach.Welcome{ABI: shm.ABIVersion, Node: "n", Domain: "d"}})
			case m.Type == attach.TypeBye || n <= ends:
				return
			default:
				_ = c.Send(&attach.Message{Type: attach.TypeStatusIs, Seq: m.Seq, StatusJSON: json.RawMessage(state())})
			}
		}
	}
	go func() {
		defer close(done)
		for {
			sock, err := l.AcceptUnix()
			if err != nil {
				return
			}
			serve(attach.NewConn(sock))
		}
	}()
	return socket, attached
}

// Commands that find the core just being replaced ask the next one, and signal the supervisor once.
func TestAsksTheNextCore(t *testing.T) {
	const ends = 3
	for what, sig := range map[string]syscall.Signal{"reload": syscall.SIGHUP, "upgrade": syscall.SIGUSR2} {
		signals := make(chan os.Signal, 10)
		signal.Notify(signals, sig)
		var heard atomic.Int64
		state := func() string {
			select {
			case <-signals:
				heard.Add(1)
			default:
			}
			if heard.Load() > 0 {
				outcome := fmt.Sprintf(`"number":1,"at":%q,"result":"done"`, time.Now().UTC().Format(time.RFC3339Nano))
				return fmt.Sprintf(`{"node":"n","pids":{"supervisor":%d},"config":{"reload":{%s}},"upgrade":{%s}}`, os.Getpid(), outcome, outcome)
			}
			return fmt.Sprintf(`{"node":"n","pids":{"supervisor":%d},"config":{}}`, os.Getpid())
		}
		socket, attached := replaced(t, ends, state)
		if out, err := command(what, "--socket", socket, "--timeout", "1m").CombinedOutput(); err != nil {
			t.Errorf("%s: %v, %s", what, err, out)
		}
		signal.Stop(signals)
		if n := heard.Load() + int64(len(signals)); n != 1 || attached.Load() <= ends {
			t.Errorf("%s: %d signals, %d attachments", what, n, attached.Load())
		}
	}
	for _, how := range []string{"--timeout=1m", "--undo"} {
		socket, attached := replaced(t, ends, func() string { return `{"node":"n","drain":{"complete":true}}` })
		if out, err := command("drain", "--socket", socket, how).CombinedOutput(); err != nil || attached.Load() != ends+1 {
			t.Errorf("drain %s: %v, %s, %d attachments", how, err, out, attached.Load())
		}
	}
}
