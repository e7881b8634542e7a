package main

import (
	"errors"

	"github.com/rdmad/rdmad/client"
)

// outcome is what a worker was told about a call.
type outcome uint64

const (
	// outNone: nothing yet.
	outNone outcome = iota
	// outOK: the right answer.
	outOK
	// outFailed: the error that the handler was asked to return.
	outFailed
	// outPosted: a one-way message was accepted, of which no more is said.
	outPosted
	outNotExecuted
	// outCancelled is not executed either, because the worker has taken it back.
	outCancelled
	outMaybeExecuted
	outDeadlineUnsent
	outDeadlineSent
	// outRefused: not accepted, because nobody serves it, the ring is full or the
	// daemon is gone.
	outRefused
	// outStreamLost: the stream that the message went by ended before the answer.
	outStreamLost
	// outRegionLost: the handler ran, and the way between it and the region was lost.
	outRegionLost
	// outWrong: an answer that is not the right one.
	outWrong
	// outUnexpected: an error that no call may end with.
	outUnexpected
	outcomes
)

// outcomeNames are what tables call them.
var outcomeNames = [outcomes]string{
	"none", "answered", "handler's error", "posted", "not executed", "cancelled", "maybe executed", "deadline, unsent", "deadline, sent",
	"refused", "stream lost", "region lost", "wrong bytes", "unexpected error",
}

func (o outcome) String() string {
	if o < outcomes {
		return outcomeNames[o]
	}
	return "damaged"
}

// allows returns how often a handler may have run: from least to most.
func (o outcome) allows() (least, most uint64) {
	switch o {
	case outOK, outFailed, outRegionLost:
		return 1, 1
	case outNotExecuted, outCancelled, outDeadlineUnsent, outRefused:
		return 0, 0
	}
	return 0, 1
}

// visible reports whether the outcome is an error that programs see, though they
// asked for no deadline.
func (o outcome) visible() bool {
	switch o {
	case outNotExecuted, outMaybeExecuted, outRefused, outStreamLost, outRegionLost:
		return true
	}
	return false
}

// outcomeOf sorts the errors of calls.
func outcomeOf(err error) outcome {
	var late *client.DeadlineError
	switch {
	case err == nil:
		return outOK
	case errors.As(err, &late):
		if late.Sent {
			return outDeadlineSent
		}
		return outDeadlineUnsent
	case errors.Is(err, client.ErrMaybeExecuted):
		return outMaybeExecuted
	case errors.Is(err, client.ErrNotExecuted):
		return outNotExecuted
	case errors.Is(err, client.ErrRemote):
		return outFailed
	case errors.Is(err, client.ErrNoService), errors.Is(err, client.ErrClosed), errors.Is(err, client.ErrBackpressure), errors.Is(err, client.ErrLimit):
		return outRefused
	}
	return outUnexpected
}
