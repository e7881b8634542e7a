package main

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/rdmad/rdmad/cmd/rdmad/look"
	"github.com/rdmad/rdmad/internal/attach"
)

const (
	// coreGap is more than a core takes to follow another.
	coreGap = 10 * time.Second
	// outcomeLook is how often something is looked for that comes soon.
	outcomeLook = 20 * time.Millisecond
)

// asked attaches to the daemon on socket and asks it something, which must do no harm twice: again if the attachment ends
// before there is an answer, because the core is just being replaced. The caller must Close the daemon.
func asked(ctx context.Context, socket, name string, ask func(*look.Daemon) error) (*look.Daemon, error) {
	for end := time.Now().Add(coreGap); ; {
		d, err := look.Attach(ctx, socket, name, look.Limit)
		if err != nil {
			return nil, err
		}
		if err = ask(d); err == nil {
			return d, nil
		}
		_ = d.Close()
		if !errors.Is(err, attach.ErrClosed) && !errors.Is(err, net.ErrClosed) || time.Now().After(end) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(outcomeLook):
		}
	}
}
