package daemon_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/shm"
)

// However many processes of a domain ask for what does not come soon, and whatever they do with the answers, the core has no more
// than some thousand questions of theirs to remember. Those who ask beyond that hear it, and each process may have one question beside.
func TestQuestionsOfADomainAreBounded(t *testing.T) {
	const (
		most       = 4096 // and one of each
		processes  = 80
		each       = attach.MaxAsks - 1
		goroutines = 300 // of all else
	)
	a, b := daemontest.Pair(t, "[limits]\nconnect_wait = \"60s\"\n")
	check(t, b.Halt())
	hello, err := helloMessage(attach.RoleClient)
	check(t, err)
	receive := func(conn *net.UnixConn) (string, error) {
		buf := make([]byte, 4096)
		n, fds, err := shm.RecvFDs(conn, buf)
		shm.CloseFDs(fds)
		return string(buf[:n]), err
	}
	answers := make(chan string)
	var all sync.WaitGroup
	defer all.Wait()
	var conns []*net.UnixConn
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range processes {
		conn, err := dialRaw(a.Socket)
		check(t, err)
		defer func() { _ = conn.Close() }() // ends what reads from it
		conns = append(conns, conn)
		check(t, shm.SendFDs(conn, hello))
		said, err := receive(conn)
		check(t, err)
		if !strings.Contains(said, "welcome") {
			t.Fatal(said)
		}
		for seq := range uint64(each) {
			text, err := json.Marshal(&attach.Message{Type: attach.TypeResolve, Seq: seq + 1, Target: &attach.Target{Node: "b", Service: "echo", Method: "echo"}})
			check(t, err)
			check(t, shm.SendFDs(conn, text))
		}
		all.Go(func() {
			for {
				said, err := receive(conn)
				if err != nil {
					return
				}
				select {
				case answers <- said:
				case <-ctx.Done():
					return
				}
			}
		})
	}
	// What is beyond the domain's room is refused at once; nothing else is answered before connect_wait is over.
	for range processes*(each-1) - most {
		if said := <-answers; !strings.Contains(said, `"later"`) || !strings.Contains(said, "wait for their answers") {
			t.Fatal(said)
		}
	}
	st, err := a.Status(t.Context()) // one question more, of another process
	check(t, err)
	if st.Goroutines < most || st.Goroutines > most+processes*2+goroutines {
		t.Errorf("the core has %d goroutines", st.Goroutines)
	}

	conn, err := client.Attach(t.Context(), a.Socket)
	check(t, err)
	defer func() { _ = conn.Close() }()
	waits, stop := context.WithCancel(t.Context())
	defer stop()
	all.Go(func() { _, _ = conn.Call(waits, "b/echo/echo", nil) })
	daemontest.Eventually(t, "a question waits, and another one is put off", func() error {
		short, end := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer end()
		if _, err := conn.Ping(short, "a"); !errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("ping: %w", err)
		}
		return nil
	})
	for _, c := range conns {
		_ = c.Close()
	}
	// What nobody waits for any more takes no room, however long connect_wait is.
	soon, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if _, err := conn.Ping(soon, "a"); err != nil {
		t.Errorf("once there is room: %v", err)
	}
}
