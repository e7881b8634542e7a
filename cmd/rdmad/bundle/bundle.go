// Package bundle is "rdmad support-bundle": everything about a node that somebody needs
// who is to find out what is wrong with it, in one file, without secrets.
package bundle

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// Part is one file of a bundle.
type Part struct {
	// Name is the file's.
	Name string
	// What says what is in it.
	What string
	// Limit is how long it may take. What is not there by then is left out.
	Limit time.Duration
	// Collect returns the content. It should end with ctx; if it does not, it is
	// abandoned.
	Collect func(ctx context.Context) ([]byte, error)
	// Binary: the content is no text, and nothing is taken out of it.
	Binary bool
}

// Had is a part as it was had.
type Had struct {
	*Part
	// Content is nil if Err says why it could not be had. Both may be there if only a
	// part of it could.
	Content []byte
	Err     error
	Took    time.Duration
}

// most bounds the content of a part. Of a larger one the end is kept: it is what happened
// last.
const most = 16 << 20

// errAbandoned is the reason of a part that has not come in time.
var errAbandoned = errors.New("it took too long")

// Collect collects all parts at the same time, each within its limit, and returns them in
// the order of the parts. It ends when the last one has, or ctx has.
func Collect(ctx context.Context, parts []Part) []Had {
	had := make([]Had, len(parts))
	var wg sync.WaitGroup
	for i := range parts {
		wg.Go(func() { had[i] = collect(ctx, &parts[i]) })
	}
	wg.Wait()
	return had
}

// collect collects a part.
func collect(ctx context.Context, p *Part) Had {
	limited, cancel := context.WithTimeoutCause(ctx, p.Limit, fmt.Errorf("%w: not within %v", errAbandoned, p.Limit))
	defer cancel()
	begin := time.Now()
	done := make(chan Had, 1)
	go func() {
		h := Had{Part: p}
		h.Content, h.Err = p.Collect(limited)
		done <- h
	}()
	h := Had{Part: p}
	select {
	case h = <-done:
	case <-limited.Done():
		// It may be in a system call that does not return; a part that has noticed is
		// about to be there.
		select {
		case h = <-done:
		case <-time.After(grace):
			h.Err = context.Cause(limited)
		}
	}
	h.Took = time.Since(begin)
	if len(h.Content) > most {
		h.Err = errors.Join(h.Err, fmt.Errorf("only the last %d of %d bytes", most, len(h.Content)))
		h.Content = h.Content[len(h.Content)-most:]
	}
	if !p.Binary {
		h.Content = Scrub(h.Content)
	}
	return h
}

// grace is how much longer than its limit a part may take to notice.
const grace = 200 * time.Millisecond

// manifest lists what is in a bundle and what is not.
func manifest(title string, at time.Time, had []Had) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, collected at %s\n\n", title, at.UTC().Format(time.RFC3339))
	for i := range had {
		if h := &had[i]; h.Content != nil {
			fmt.Fprintf(&b, "%s: %d bytes: %s%s\n", h.Name, len(h.Content), h.What, remark(h.Err))
		}
	}
	first := true
	for i := range had {
		h := &had[i]
		if h.Content != nil {
			continue
		}
		if first {
			b.WriteString("\nNot had:\n\n")
			first = false
		}
		fmt.Fprintf(&b, "%s: %s\n", h.Name, reason(h.Err))
	}
	b.WriteString("\nWhat looks like a secret was replaced by " + removed + ". Of keys only paths are kept.\n")
	return Scrub([]byte(b.String()))
}

// reason is an error in one line.
func reason(err error) string {
	if err == nil {
		return "there is none"
	}
	return strings.Join(strings.Fields(err.Error()), " ")
}

func remark(err error) string {
	if err == nil {
		return ""
	}
	return " (" + reason(err) + ")"
}

// Missing returns the names of what could not be had.
func Missing(had []Had) (names []string) {
	for i := range had {
		if had[i].Content == nil {
			names = append(names, had[i].Name)
		}
	}
	return names
}
