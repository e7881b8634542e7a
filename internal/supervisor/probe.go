package supervisor

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/rdmad/rdmad/internal/handoff"
	"github.com/rdmad/rdmad/internal/version"
)

// probeTimeout is how long a program may take to say its versions, and maxAnswer how many bytes it may say: it may be
// any program.
const (
	probeTimeout = 5 * time.Second
	maxAnswer    = 64 << 10
)

// probe asks a program for its versions.
func probe(ctx context.Context, e *executable, v *version.Set) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	cmd := e.command(ctx, handoff.CoreCommand, "--"+handoff.ProbeFlag)
	cmd.WaitDelay = time.Second // also when a child of it holds on to its output
	out := &answer{end: cancel}
	cmd.Stdout = out
	err := cmd.Run()
	switch {
	case out.tooLong:
		err = fmt.Errorf("it says more than %d bytes", maxAnswer)
	case err == nil:
		*v, err = version.Read(out.text.Bytes())
	}
	if err != nil {
		return fmt.Errorf("%s does not say its versions: %w", e.path, err)
	}
	return nil
}

// answer takes what a program says, and ends the program when that is too much.
type answer struct {
	text    bytes.Buffer
	tooLong bool
	end     context.CancelFunc
}

// Write implements io.Writer.
func (a *answer) Write(part []byte) (int, error) {
	if a.tooLong = a.tooLong || a.text.Len()+len(part) > maxAnswer; a.tooLong {
		a.end()
		return 0, bytes.ErrTooLarge
	}
	return a.text.Write(part)
}
