package perf

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/rdmad/rdmad/internal/perf/link"
)

const (
	kindPart = "part"
	kindMore = "more"
	// partSize is what of a long message goes at once, maxLong is the longest one.
	partSize = link.MaxMessage / 2
	maxLong  = 128 << 20
)

// part is a piece of a long message.
type part struct {
	Data []byte `json:"data"`
	More bool   `json:"more"`
}

// SendLong sends a message that may be longer than link.MaxMessage to a ReceiveLong.
func SendLong(ctx context.Context, l *link.Link, body any) error {
	rest, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("perf: %w", err)
	}
	for more := true; more; {
		n := min(len(rest), partSize)
		more = n < len(rest)
		if err := l.Send(kindPart, part{Data: rest[:n], More: more}); err != nil {
			return err
		}
		rest = rest[n:]
		// One at a time, so that none waits to be taken.
		if err := l.Receive(ctx, kindMore, &nothing{}); err != nil {
			return err
		}
	}
	return nil
}

// ReceiveLong receives what SendLong has sent.
func ReceiveLong(ctx context.Context, l *link.Link, body any) error {
	var all []byte
	for more := true; more; {
		var p part
		if err := l.Receive(ctx, kindPart, &p); err != nil {
			return err
		}
		all, more = append(all, p.Data...), p.More
		if len(all) > maxLong {
			return &link.ProtocolError{Detail: fmt.Sprintf("a message of more than %d bytes", maxLong)}
		}
		if err := l.Send(kindMore, nothing{}); err != nil {
			return err
		}
	}
	if err := link.Strict(all, body); err != nil {
		return &link.ProtocolError{Detail: err.Error()}
	}
	return nil
}
