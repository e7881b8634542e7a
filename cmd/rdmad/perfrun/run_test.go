package perfrun

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/rdmad/rdmad/internal/perf/pingpong"
)

// A client whose server's name nobody resolves ends when it is told to.
func TestInterruptedWhileResolving(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	given := make(chan error, 1) // the end of the first question
	before := net.DefaultResolver
	defer func() { net.DefaultResolver = before }()
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(asked context.Context, _, _ string) (net.Conn, error) {
		cancel()
		<-asked.Done() // it does not answer
		select {
		case given <- asked.Err():
		default:
		}
		return nil, asked.Err()
	}}
	_, err := Run(ctx, Options{Fabric: Fabric{Name: "tcp", GIDIndex: -1}, Host: "server.invalid", Port: 1, Out: io.Discard, Remarks: io.Discard}, &pingpong.Tool{})
	if why := <-given; !errors.Is(err, context.Canceled) || !errors.Is(why, context.Canceled) {
		t.Errorf("%v; the question has ended with: %v", err, why) // a deadline: the resolver's, of 5 s
	}
}

// Where devices are to be seen is said once.
func TestDevicesAreNamedOnce(t *testing.T) {
	for _, text := range []string{"no such device", "no such device (see: rdmad devices): no reason"} {
		if got := withDevices(errors.New(text)).Error(); strings.Count(got, "rdmad devices") != 1 {
			t.Error(got)
		}
	}
}
