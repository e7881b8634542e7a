package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

const (
	// calm is the most time between two faults.
	calm = 100 * time.Millisecond
	// spell is how many faults there are to each quiet stretch, and leastQuiet the least that one takes, well above after.
	spell      = 5
	leastQuiet = 500 * time.Millisecond
	// quietShare is the least share of the time until the end of such a stretch that no fault explains anything in: without it the fault
	// before would excuse nearly all that goes wrong.
	quietShare = 0.25
)

// rest returns for how long nothing is injected after a spell of faults: at a time of the ledger, since when the run began.
func rest(injections []*injection, began, t int64) time.Duration {
	all, quiet := float64(t-began), float64(undisturbed(injections, began, t))
	return max(leastQuiet, time.Duration((quietShare*all-quiet+float64(after))/(1-quietShare)))
}

// schedule injects faults, one after the other, until the limits are reached or the time is
// over, and says which.
func (r *run) schedule() (why string, err error) {
	rng := rand.New(rand.NewPCG(r.options.seed, 1))
	end, began := time.Now().Add(r.options.duration), now()
	defer func() { r.undisturbed, r.scheduled = undisturbed(r.injections, began, now()), now()-began }()
	for n := uint64(0); ; n++ {
		open := r.open()
		switch {
		case r.ctx.Err() != nil:
			return "it was interrupted", nil
		case !time.Now().Before(end):
			return fmt.Sprintf("its %v are over", r.options.duration), nil
		case len(r.options.limits) > 0 && len(r.unreached()) == 0:
			return "all limits were reached", nil
		case len(open) == 0:
			r.sleep(min(calm, time.Until(end))) // there is nothing to inject: only load
			if err := errors.Join(r.checkCores(r.ctx, "beside load alone"), r.fleet.failed()); err != nil {
				return "a process has ended by itself", err
			}
			continue
		}
		f := choose(rng, open)
		i := &injection{run: r, fault: f, rng: rand.New(rand.NewPCG(r.options.seed, 2+n)), recovered: map[recovery]time.Duration{}}
		if err := r.inject(i); err != nil {
			return "a fault was not survived", err
		}
		pause := time.Duration(i.rng.Int64N(int64(calm)))
		if n%spell == spell-1 {
			pause = rest(r.injections, began, now())
		}
		r.sleep(min(pause, time.Until(end)))
	}
}

// inject injects one fault and checks that it did no more than it was to.
func (r *run) inject(i *injection) error {
	if err := r.checkCores(r.ctx, "before "+i.fault.name); err != nil {
		return err
	}
	i.began = now()
	r.current.Store(i.fault)
	err := i.fault.inject(i)
	r.current.Store(nil)
	i.ended = now()
	r.note(i)
	if err != nil && r.ctx.Err() != nil {
		return nil // interrupted, not failed
	}
	if err != nil {
		return fmt.Errorf("%s: %w", i.fault.name, err)
	}
	return errors.Join(r.checkCores(r.ctx, i.fault.name), r.fleet.failed())
}

// choose chooses a fault by weight.
func choose(rng *rand.Rand, open []*fault) *fault {
	sum := 0
	for _, f := range open {
		sum += f.weight
	}
	at := rng.IntN(sum)
	for _, f := range open {
		if at -= f.weight; at < 0 {
			return f
		}
	}
	return open[0]
}

// open returns the faults that are to be injected: those that can be, and of which there
// have not been enough.
func (r *run) open() (open []*fault) {
	for _, f := range r.possible {
		enough := len(r.options.limits) > 0
		limited := false
		for _, g := range groups {
			limit, ok := r.options.limits[g.flag]
			if ok && slices.Contains(g.faults, f.name) {
				limited = true
				enough = enough && r.done(g) >= limit
			}
		}
		if !limited || !enough {
			open = append(open, f)
		}
	}
	return open
}

// unreached returns the limits that have not been reached.
func (r *run) unreached() (left []string) {
	for _, g := range groups {
		if limit, ok := r.options.limits[g.flag]; ok && r.done(g) < limit {
			left = append(left, fmt.Sprintf("%s %d of %d", g.flag, r.done(g), limit))
		}
	}
	return left
}

// done returns how many faults of a group there have been.
func (r *run) done(g group) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range g.faults {
		n += r.counts[name]
	}
	return n
}

// note enters an injection.
func (r *run) note(i *injection) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.injections = append(r.injections, i)
	r.counts[i.fault.name]++
}

// sleep waits, less if the run is interrupted.
func (r *run) sleep(d time.Duration) {
	select {
	case <-time.After(d):
	case <-r.ctx.Done():
	}
}
