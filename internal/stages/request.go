package stages

import (
	"fmt"

	"github.com/rdmad/rdmad/slots"
)

// Request is a request as its requester's node knows it. Times are by CLOCK_MONOTONIC, 0
// for not yet or unknown.
type Request struct {
	// Header is the request's, as it was sent.
	Header slots.Header
	// Began and Published are the worker's: when it began to claim, and when it had published.
	Began, Published int64
	// Posted is when its group was handed to the provider, Completed when that had done
	// with it.
	Posted, Completed int64
	// Group is the group that it was sent in last, and Resent how often it was sent again.
	Group  Group
	Resent int
	// Arrived is when the answer came, in a group of so many, and Answer its header.
	Arrived int64
	Answers int
	Answer  slots.Header
	// Settled is when the request had its outcome, Taken when the worker took it.
	Settled, Taken int64
}

// Group is what a group of requests is made of.
type Group struct {
	// Messages and Slots are how many it has, Writes how many work requests it took; 0 within a node.
	Messages, Slots, Writes int
	// Inline: the provider was given the bytes, not where they are.
	Inline bool
}

// Slack is how much two processes of a node may disagree about the time, and more.
const Slack = int64(10e3)

// End returns when the request was over, which is when the caller has taken the answer, as far as that is known;
// now if it is under way.
func (e *Request) End(now int64) int64 {
	switch {
	case e.Taken != 0:
		return e.Taken
	case e.Settled != 0:
		return e.Settled
	}
	return now
}

// outcomes are the words for how a request has ended.
var outcomes = map[slots.Status]string{
	slots.StatusOK: "answered", slots.StatusRemote: "remote error", slots.StatusNoService: "no such service",
	slots.StatusTooLarge: "answer too large", slots.StatusDeadline: "deadline passed", slots.StatusNotExecuted: "not executed",
	slots.StatusMaybeExecuted: "may have been executed", slots.StatusInvalid: "invalid request", slots.StatusNotExported: "region not exported",
}

// Outcome returns the word for how the request has ended.
func (e *Request) Outcome() string {
	switch {
	case e.Arrived == 0 && e.Settled == 0:
		return "under way"
	case e.Arrived == 0:
		return "ended by this daemon"
	}
	if s, ok := outcomes[e.Answer.Status]; ok {
		return s
	}
	return fmt.Sprintf("status %d", e.Answer.Status)
}

// Kind returns the word for what it is.
func (e *Request) Kind() string {
	switch {
	case e.Header.Flags&slots.FlagPart != 0:
		return "part"
	case e.Header.Kind == slots.KindOneWay:
		return "one-way"
	}
	return "request"
}
