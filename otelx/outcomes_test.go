package otelx_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"unicode/utf8"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/otelx"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
)

// A future that is cancelled too late, and waited for no more, has a span with its outcome.
func TestSpanOfCancelled(t *testing.T) {
	r := newRig(t, propagation.TraceContext{})
	f, err := r.method("gate").Go(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	<-r.entered
	for range 2 {
		if f.Cancel() {
			t.Fatal("a request was taken back whose handler runs")
		}
	}
	if got := len(r.spans.GetSpans()); got != 0 {
		t.Errorf("%d spans have ended before the outcome", got)
	}
	close(r.release)
	r.failed("gate", otelx.OutcomeExecuted, "remote", "no luck")
}

// A stream that has failed is an error of its span, also if nobody has come to it but Close.
func TestSpanOfBrokenStream(t *testing.T) {
	r := newRig(t, propagation.TraceContext{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s, err := r.method("stream").Stream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	daemontest.Eventually(t, "the end of the stream", func() error {
		if s.Err() == nil {
			return errors.New("it lives")
		}
		return nil
	})
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	c := r.take(2)["client t/stream"]
	if c.Status.Code != codes.Error || value(c, otelx.ErrorKey) != "canceled" || value(c, otelx.OutcomeKey) != otelx.OutcomeMaybeExecuted {
		t.Errorf("%+v %+v", c.Status, c.Attributes)
	}
}

// What Start's end is given may be no error of rdmad's, which says nothing of the execution, or the end of a stream.
func TestOutcomesOfOthers(t *testing.T) {
	r := newRig(t, propagation.TraceContext{})
	for _, c := range []struct {
		err           error
		outcome, kind string
	}{
		{errors.New("own"), "", "_OTHER"},
		{context.Canceled, "", "canceled"},
		{io.EOF, "", ""},
		{fmt.Errorf("%w: %w", client.ErrNotExecuted, &client.RemoteError{Text: "no room"}), otelx.OutcomeNotExecuted, "remote"},
		{fmt.Errorf("%w: %w", client.ErrMaybeExecuted, client.ErrClosed), otelx.OutcomeMaybeExecuted, "closed"},
		{&client.TooLargeError{What: "request"}, otelx.OutcomeNotExecuted, "too large"},
		{&client.TooLargeError{What: "answer"}, otelx.OutcomeExecuted, "too large"},
		{client.ErrBackpressure, otelx.OutcomeNotExecuted, "backpressure"},
		{&client.DeadlineError{Sent: true, Cause: io.EOF}, otelx.OutcomeMaybeExecuted, "deadline"}, // of a context that ended with it
	} {
		_, _, end := r.method("echo").Start(t.Context())
		end(c.err)
		m := r.take(1)["client t/echo"]
		if value(m, otelx.OutcomeKey) != c.outcome || value(m, otelx.ErrorKey) != c.kind || (m.Status.Code == codes.Error) != (c.kind != "") {
			t.Errorf("%v: %+v %+v", c.err, m.Status, m.Attributes)
		}
	}
}

// An error is any bytes, but the text of a status is one: exporters drop spans with another, and all that they would have sent
// with them.
func TestSpanOfErrorThatIsNoText(t *testing.T) {
	r := newRig(t, propagation.TraceContext{})
	for _, name := range []string{"long", "binary", "curse"} {
		if _, err := r.method(name).Call(t.Context(), nil); !errors.Is(err, client.ErrRemote) {
			t.Errorf("%s: %v", name, err)
		}
		for side, s := range r.take(2) {
			if text := s.Status.Description; s.Status.Code != codes.Error || text == "" || !utf8.ValidString(text) {
				t.Errorf("%s: the status is no text: %v, %d bytes, ending in %q", side, s.Status.Code, len(text), text[max(0, len(text)-8):])
			}
		}
	}
}
