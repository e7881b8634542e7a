package otelx

import (
	"context"
	"errors"

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
	// that has failed: OutcomeNotExecuted, OutcomeMaybeExecuted or OutcomeExecuted.
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
	{client.ErrDeadline, "deadline"},
	{client.ErrBackpressure, "backpressure"},
	{client.ErrNoService, "no service"},
	{client.ErrInvalid, "invalid"},
	{client.ErrClosed, "closed"},
	{client.ErrLimit, "limit"},
	{context.Canceled, "canceled"},
}

// kindOf returns the word for an error.
func kindOf(err error) string {
	for _, k := range kinds {
		if errors.Is(err, k.err) {
			return k.word
		}
	}
	return "_OTHER"
}

// outcomeOf returns what an error of a call says about its execution.
func outcomeOf(err error) string {
	var late *client.DeadlineError
	switch {
	case errors.Is(err, client.ErrMaybeExecuted), errors.As(err, &late) && late.Sent:
		return OutcomeMaybeExecuted
	case errors.Is(err, client.ErrRemote):
		return OutcomeExecuted
	case errors.Is(err, client.ErrTooLarge):
		var large *client.TooLargeError
		if errors.As(err, &large) && large.What == "answer" {
			return OutcomeExecuted
		}
	}
	return OutcomeNotExecuted
}

// endSpan ends a client span with the outcome of its request.
func endSpan(span trace.Span, err error) {
	if err != nil {
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
	span.SetAttributes(OutcomeKey.String(outcome), ErrorKey.String(kindOf(err)))
	span.SetStatus(codes.Error, err.Error())
}
