package otelx

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/rdmad/rdmad/client"
)

// The attributes of spans, by the semantic conventions for RPC where there are any.
const (
	// SystemKey is always "rdmad".
	SystemKey = attribute.Key("rpc.system")
	// ServiceKey and MethodKey name what is called.
	ServiceKey = attribute.Key("rpc.service")
	MethodKey  = attribute.Key("rpc.method")
	// NodeKey is the node that the target names, if it does.
	NodeKey = attribute.Key("rdmad.node")
	// OutcomeKey, of a client span, says what is known about the execution of a request
	// that has failed: OutcomeNotExecuted, OutcomeMaybeExecuted or OutcomeExecuted. It is missing
	// where the error, which is not of package client, does not say.
	OutcomeKey = attribute.Key("rdmad.outcome")
	// ErrorKey is the kind of the error: "deadline", "no service" and so on.
	ErrorKey = attribute.Key("error.type")
	// OneWayKey is true for messages without an answer.
	OneWayKey = attribute.Key("rdmad.one_way")
)

// Values of OutcomeKey.
const (
	OutcomeNotExecuted   = "not executed"
	OutcomeMaybeExecuted = "may have been executed"
	OutcomeExecuted      = "executed"
)

// kinds are the words for errors. The first that matches counts.
var kinds = []struct {
	err  error
	word string
}{
	{client.ErrRemote, "remote"},
	{client.ErrTooLarge, "too large"},
	{context.Canceled, "canceled"}, // of which a DeadlineError is an ErrDeadline, too
	{client.ErrDeadline, "deadline"},
	{client.ErrBackpressure, "backpressure"},
	{client.ErrNoService, "no service"},
	{client.ErrInvalid, "invalid"},
	{client.ErrClosed, "closed"},
	{client.ErrLimit, "limit"},
}

// unsent are the errors besides ErrNotExecuted with which a request is refused before it is accepted.
var unsent = []error{client.ErrTooLarge, client.ErrBackpressure, client.ErrNoService, client.ErrInvalid, client.ErrClosed, client.ErrLimit}

// kindOf returns the word for an error.
func kindOf(err error) string {
	for _, k := range kinds {
		if errors.Is(err, k.err) {
			return k.word
		}
	}
	return "_OTHER"
}

// outcomeOf returns what an error of a call says about its execution, "" if it says nothing.
func outcomeOf(err error) string {
	var large *client.TooLargeError
	switch {
	case errors.Is(err, client.ErrMaybeExecuted):
		return OutcomeMaybeExecuted
	case errors.Is(err, client.ErrNotExecuted): // also if it says where the request was refused
		return OutcomeNotExecuted
	case errors.Is(err, client.ErrRemote), errors.As(err, &large) && large.What == "answer":
		return OutcomeExecuted
	case slices.ContainsFunc(unsent, func(e error) bool { return errors.Is(err, e) }):
		return OutcomeNotExecuted
	}
	return ""
}

// endSpan ends a client span with the outcome of its request, or of its stream.
func endSpan(span trace.Span, err error) {
	if err != nil && err != io.EOF { // itself: the context of a request may have ended with it
		fail(span, outcomeOf(err), err)
	}
	span.End()
}

// endExecuted is endSpan for a request that was answered, whatever came of the answer.
func endExecuted(span trace.Span, err error) {
	if err != nil {
		fail(span, OutcomeExecuted, err)
	}
	span.End()
}

func fail(span trace.Span, outcome string, err error) {
	if outcome != "" {
		span.SetAttributes(OutcomeKey.String(outcome))
	}
	span.SetAttributes(ErrorKey.String(kindOf(err)))
	setError(span, err.Error())
}

// setError says that a span has ended with an error. What an error says is any bytes, and may be cut in the middle of a letter;
// exporters can send only text.
func setError(span trace.Span, what string) {
	span.SetStatus(codes.Error, strings.ToValidUTF8(what, "\uFFFD"))
}
