package ledger

import (
	"slices"

	"github.com/rdmad/rdmad/internal/fabric"
)

// Delivery hands completions to the caller of Poll. What happens in a Poll may be more than there is
// room for, as when an endpoint ends: the rest waits for the next one. The zero value is ready.
type Delivery struct {
	out   []fabric.Completion // Poll's argument while it runs
	n     int                 // used of out
	spill []fabric.Completion // what did not fit, in order
}

// Begin starts a Poll with room for len(out) completions, of which those that did not fit before take
// the first.
func (d *Delivery) Begin(out []fabric.Completion) {
	d.out, d.n = out, copy(out, d.spill)
	if d.n > 0 {
		d.spill = slices.Delete(d.spill, 0, d.n)
	}
}

// Emit hands over a completion, in this Poll or the next.
func (d *Delivery) Emit(c fabric.Completion) {
	if d.n < len(d.out) {
		d.out[d.n] = c
		d.n++
		return
	}
	d.spill = append(d.spill, c)
}

// Room returns how many more fit.
func (d *Delivery) Room() int { return len(d.out) - d.n }

// End ends a Poll and returns how many completions out has. What is emitted until the next Begin
// waits for it.
func (d *Delivery) End() int {
	n := d.n
	d.out, d.n = nil, 0
	return n
}

// Waiting reports whether something waits for the next Poll.
func (d *Delivery) Waiting() bool { return len(d.spill) > 0 }
