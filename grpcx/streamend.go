package grpcx

import (
	"context"
	"sync"
	"time"
)

// endPatience is how long a call that has its status waits for the end of its stream.
const endPatience = 100 * time.Millisecond

// awaitEnd waits for the end of a stream whose status has come. The handler returns right after that. The end says
// no more, but a stream that has ended need not be given up with a message. One that does not end, because the
// handler's process was stopped or the link is lost, is given up.
func awaitEnd(ctx context.Context, out outgoing) {
	e := impatients.Get().(*impatient)
	e.out = out
	e.timer.Reset(endPatience)
	_, _ = out.Recv(ctx)
	if e.timer.Stop() { // else it has begun to close, and is not used again
		e.out = nil
		impatients.Put(e)
	}
}

// impatient closes a stream when its timer has run out.
type impatient struct {
	timer *time.Timer
	out   outgoing
}

// impatients are used again, so that calls allocate nothing for them.
var impatients = sync.Pool{New: func() any {
	e := new(impatient)
	e.timer = time.AfterFunc(time.Hour, func() { _ = e.out.Close() })
	e.timer.Stop()
	return e
}}
