package bench

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A daemon that does not answer ends the run, and not only when somebody interrupts it.
func TestLookIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &run{status: func(ctx context.Context) (json.RawMessage, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour) // as long as a run may take
		defer cancel()
		began := time.Now()
		_, err := r.look(ctx)
		if took := time.Since(began); err == nil || took != stallLimit || !strings.Contains(err.Error(), "asking the daemon for its status took more than 20s") {
			t.Errorf("after %v: %v", took, err)
		}
		interrupted := errors.New("interrupted")
		stopped, stop := context.WithCancelCause(ctx)
		stop(interrupted)
		if _, err := r.look(stopped); !errors.Is(err, interrupted) {
			t.Errorf("a run that was interrupted: %v", err)
		}
	})
}

func TestParsePIDs(t *testing.T) {
	got, err := parsePIDs("a.core=12,b.echo=7")
	want := []processTime{{role: "a.core", pid: 12}, {role: "b.echo", pid: 7}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := parsePIDs(""); err != nil || got != nil {
		t.Errorf("empty list: %v, %v", got, err)
	}
	for _, bad := range []string{"a", "a=", "=1", "a=x", "a=0", "a=-1", "a=1,", ","} {
		if got, err := parsePIDs(bad); err == nil {
			t.Errorf("%q: accepted as %v", bad, got)
		}
	}
}
