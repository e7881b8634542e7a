package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/cmd/rdmad/look"
	"github.com/rdmad/rdmad/internal/attach"
)

// callFlags are the flags of one call.
type callFlags struct {
	socket  string
	timeout time.Duration
	answer  byteSize
	json    bool
}

// callResult is a call as JSON. The answer is in base64, as encoding/json does.
type callResult struct {
	Target  string `json:"target"`
	Node    string `json:"node"`
	Domain  string `json:"domain"`
	Request int    `json:"request_bytes"`
	Size    int    `json:"answer_bytes"`
	Answer  []byte `json:"answer_base64"`
	// Lookup is how long it took to find the method, and RoundTrip the call.
	Lookup    float64 `json:"lookup_us"`
	RoundTrip float64 `json:"round_trip_us"`
}

func newCall() *cobra.Command {
	f := callFlags{answer: -1}
	c := &cobra.Command{
		Use:   "call [NODE/]SERVICE/METHOD [PAYLOAD]",
		Short: "Call a method and print its answer",
		Long: "Call a method of a service and print its answer as it is. The payload is the argument, or\n" +
			"standard input if that is \"-\", or empty.",
		Example: "  rdmad call b/echo/echo hello\n  rdmad call echo/echo - < file > copy",
		Args:    wantArgs(1, 2, "a target and optionally a payload"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := checkTarget(args[0]); err != nil {
				return err
			}
			if f.answer > client.MaxMessage {
				return usagef("--answer-size %d: no answer has more than %d bytes", f.answer, client.MaxMessage)
			}
			payload, err := payloadOf(c.Context(), c.InOrStdin(), args[1:], client.MaxMessage)
			if err != nil {
				return err
			}
			r, err := f.call(c.Context(), args[0], payload)
			if err != nil {
				return err
			}
			if f.json {
				return writeJSON(c.OutOrStdout(), r)
			}
			answer := r.Answer
			if isTerminal(os.Stdout) && len(answer) > 0 && answer[len(answer)-1] != '\n' {
				answer = append(answer, '\n')
			}
			_, err = c.OutOrStdout().Write(answer)
			return err
		},
	}
	socketFlag(c, &f.socket)
	timeoutFlag(c, &f.timeout, 5*time.Second, "how long to wait for the answer")
	c.Flags().Var(&f.answer, "answer-size", "room for the answer, if it may be larger than the method declares")
	jsonFlag(c, &f.json)
	return c
}

// checkTarget refuses what cannot be the name of a method, before anything is read or asked.
func checkTarget(target string) error {
	parts := strings.Split(target, "/")
	if n := len(parts); n < 2 || n > 3 || parts[0] == "" {
		return usagef("target %q: want node/service/method or service/method", target)
	}
	for _, name := range parts[len(parts)-2:] {
		if err := attach.CheckName(name); err != nil {
			return usagef("target %q: %w", target, err)
		}
	}
	return nil
}

// payloadOf returns the payload that the arguments ask for, of no more bytes than most: standard input may have no end.
func payloadOf(ctx context.Context, in io.Reader, args []string, most int64) ([]byte, error) {
	if len(args) == 0 {
		return nil, nil
	}
	if args[0] != "-" {
		return []byte(args[0]), nil
	}
	return inTime(ctx, "reading the payload", func() ([]byte, error) {
		payload, err := io.ReadAll(io.LimitReader(in, most+1))
		if err == nil && int64(len(payload)) > most {
			payload, err = nil, fmt.Errorf("the payload: %w: more than %d bytes", client.ErrTooLarge, most)
		}
		return payload, err
	})
}

func (f *callFlags) call(outer context.Context, target string, payload []byte) (*callResult, error) {
	ctx, cancel := context.WithTimeout(outer, f.timeout)
	defer cancel()
	conn, err := client.Attach(ctx, f.socket, client.Name("rdmad-call"))
	if err != nil {
		return nil, unattached(outer, err, f.socket, f.timeout)
	}
	defer conn.Close()
	begin := time.Now()
	m, err := conn.Method(ctx, target)
	if err != nil {
		return nil, whoHangs(outer, conn, err, f.socket)
	}
	if f.answer >= 0 {
		m = m.With(client.AnswerSize(int(f.answer)))
	}
	found := time.Now()
	answer, err := m.Call(ctx, payload)
	if err != nil {
		return nil, whoHangs(outer, conn, err, f.socket)
	}
	return &callResult{
		Target: target, Node: conn.Node(), Domain: conn.Domain(),
		Request: len(payload), Size: len(answer), Answer: answer,
		Lookup: microseconds(found.Sub(begin)), RoundTrip: microseconds(time.Since(found)),
	}, nil
}

// timedOut reports that an error is about time that has passed, and not about a user who
// has lost patience; ctx is the one without the command's own limit.
func timedOut(ctx context.Context, err error) bool {
	return ctx.Err() == nil && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, client.ErrDeadline))
}

// unattached explains why attaching has failed: a daemon whose socket takes connections and
// says nothing hangs.
func unattached(ctx context.Context, err error, socket string, limit time.Duration) error {
	if !timedOut(ctx, err) {
		return err
	}
	return fmt.Errorf("%w on %s within %v: nobody could attach", look.ErrNoAnswer, attach.SocketPath(socket), limit)
}

// unwelcome is unattached for a command that gives attaching no limit of its own, and has others.
func unwelcome(ctx context.Context, err error, socket string) error {
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	return unattached(ctx, err, socket, attach.HandshakeLimit)
}

// aliveLimit is how long the daemon may take to say that it is alive, after a call had no
// outcome in time.
const aliveLimit = 2 * time.Second

// whoHangs explains why a call has failed: when its time has passed, it tells a daemon of
// this node that hangs from everything else that may take long.
func whoHangs(ctx context.Context, conn *client.Conn, err error, socket string) error {
	if !timedOut(ctx, err) {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, aliveLimit)
	defer cancel()
	if _, silent := conn.Status(limited); silent == nil || !timedOut(ctx, silent) {
		return err
	}
	return fmt.Errorf("%w on %s within %v: %w", look.ErrNoAnswer, attach.SocketPath(socket), aliveLimit, err)
}

func microseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
