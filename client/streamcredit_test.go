package client_test

import (
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/server"
)

// A handler that sends something, and so answers the wait of its caller, and then takes a message makes room while nobody
// waits for it. Who sends hears of it with the next wait, not when the handler receives or sends again.
func TestStreamCreditBetweenWaits(t *testing.T) {
	_, b := daemontest.Pair(t, "")
	filled := make(chan chan struct{}) // with what is closed when the handler may return
	serveStreams(t, b, streams{"slow": func(s *server.Stream) error {
		went := <-filled
		if err := s.Send([]byte("go on")); err != nil {
			return err
		}
		if _, err := s.Recv(); err != nil {
			return err
		}
		<-went
		return nil
	}})
	c := attach(t, b)
	hears := func() (inTime bool) {
		s := open(t, c, "b/t/slow")
		sent := make(chan error, 1)
		go func() {
			for range 3 { // two windows and more
				if err := s.Send(t.Context(), make([]byte, 200<<10)); err != nil {
					sent <- err
					return
				}
			}
			sent <- nil
		}()
		select {
		case err := <-sent:
			t.Fatalf("there was room for everything: %v", err)
		case <-time.After(200 * time.Millisecond): // enough to fill the window; with less this shows nothing
		}
		went := make(chan struct{})
		defer close(went)
		filled <- went
		select {
		case err := <-sent:
			if err != nil {
				t.Error(err)
			}
			inTime = true
		case <-time.After(4 * time.Second): // the caller waits anew after 5 s
		}
		return inTime
	}
	for range 5 { // in case this stands still for as long
		if hears() {
			return
		}
	}
	t.Error("room was made, and who waits for it did not hear of it")
}
