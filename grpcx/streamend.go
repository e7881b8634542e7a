package grpcx

import (
	"context"
	"time"
)

// endPatience is how long a call that has its status waits for the end of its stream.
const endPatience = 100 * time.Millisecond

// awaitEnd waits for the end of a stream whose status has come. The handler returns right after that. The end says
// no more, but a stream that has ended need not be given up with a message. One that does not end, because the
// handler's process was stopped or the link is lost, is given up.
//
// Its timer is not kept for the next call: one that was made in a bubble of testing/synctest may be used in no other.
func awaitEnd(ctx context.Context, out outgoing) {
	impatience := time.AfterFunc(endPatience, func() { _ = out.Close() })
	defer impatience.Stop()
	_, _ = out.Recv(ctx)
}
