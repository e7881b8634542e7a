package main

import (
	"context"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmad/rdmad/client"
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
			payload, err := payloadOf(c.InOrStdin(), args[1:])
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
	c.Flags().DurationVar(&f.timeout, "timeout", 5*time.Second, "how long to wait for the answer")
	c.Flags().Var(&f.answer, "answer-size", "room for the answer, if it may be larger than the method declares")
	jsonFlag(c, &f.json)
	return c
}

// payloadOf returns the payload that the arguments ask for.
func payloadOf(in io.Reader, args []string) ([]byte, error) {
	switch {
	case len(args) == 0:
		return nil, nil
	case args[0] == "-":
		return io.ReadAll(in)
	}
	return []byte(args[0]), nil
}

func (f *callFlags) call(ctx context.Context, target string, payload []byte) (*callResult, error) {
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	conn, err := client.Attach(ctx, f.socket, client.Name("rdmad-call"))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	begin := time.Now()
	m, err := conn.Method(ctx, target)
	if err != nil {
		return nil, err
	}
	if f.answer >= 0 {
		m = m.With(client.AnswerSize(int(f.answer)))
	}
	found := time.Now()
	answer, err := m.Call(ctx, payload)
	if err != nil {
		return nil, err
	}
	return &callResult{
		Target: target, Node: conn.Node(), Domain: conn.Domain(),
		Request: len(payload), Size: len(answer), Answer: answer,
		Lookup: microseconds(found.Sub(begin)), RoundTrip: microseconds(time.Since(found)),
	}, nil
}

func microseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
