package main

import (
	"errors"
	"time"

	"github.com/spf13/cobra"
)

// waitTime is a flag for how long to wait: more than nothing.
type waitTime time.Duration

// Set implements pflag.Value.
func (p *waitTime) Set(text string) error {
	d, err := time.ParseDuration(text)
	if err == nil && d <= 0 {
		err = errors.New("want more than 0")
	}
	if err == nil {
		*p = waitTime(d)
	}
	return err
}

// String implements pflag.Value.
func (p *waitTime) String() string { return time.Duration(*p).String() }

// Type implements pflag.Value.
func (*waitTime) Type() string { return "duration" }

// timeoutFlag adds the flag --timeout.
func timeoutFlag(c *cobra.Command, to *time.Duration, standard time.Duration, usage string) {
	*to = standard
	c.Flags().Var((*waitTime)(to), "timeout", usage)
}
