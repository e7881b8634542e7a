package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

const (
	// finishLimit is how long calls may take to end when the faults have, and
	// hopelessLimit how long when not all was well before.
	finishLimit   = 2 * time.Minute
	hopelessLimit = 3 * time.Second
)

// judgeAll ends the load and collects what it has come to.
func (r *run) judgeAll(why string, faultErr error, start *injection) *result {
	// An interrupted run is judged like any other.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), 4*finishLimit)
	defer cancel()
	res := newResult(r, why)
	res.problem(faultErr)
	r.saveStatus(ctx)
	limit := finishLimit
	if faultErr != nil {
		limit = hopelessLimit
	}
	stuck := r.fleet.finish(limit)
	if len(stuck) > 0 {
		res.problem(fmt.Errorf("%d workers have calls without an outcome %v after the last fault", len(stuck), limit))
		r.saveStatus(ctx)
	}
	for i, n := range r.nodes {
		res.problem(await(ctx, limit, "nothing is under way", func() error { return quiet(ctx, n) }))
		res.problem(await(ctx, limit, "all slots of node "+n.name+" are free", func() error { return r.inspectors[i].free(ctx, 0) }))
		r.inspectors[i].close()
	}
	final, err := measure(ctx, r.nodes)
	res.problem(err)
	res.usage(r.baseline, final)
	res.problem(r.fleet.failed())
	res.problem(r.checkCores(ctx, "after the last fault"))
	killed := r.fleet.killedInstances() // those that are traced are not killed
	if len(stuck) > 0 {
		r.trace(ctx, stuck)
	}
	res.problem(r.fleet.stop())
	res.problem(r.stopNodes())
	res.Crashes = r.crashes
	j, err := judge(r.dir, killed)
	res.problem(err)
	if j != nil {
		r.mu.Lock()
		// The start is no fault; calls may fail then all the same.
		all := append([]*injection{start}, r.injections...)
		r.mu.Unlock()
		res.judged(j, j.excuse(all))
	}
	return res
}

// saveStatus writes down what the daemons say of themselves, for whoever looks into a
// failure.
func (r *run) saveStatus(ctx context.Context) {
	for _, n := range r.nodes {
		text, err := n.rawStatus(ctx)
		if err != nil {
			text = []byte(err.Error())
		}
		if err := os.WriteFile(filepath.Join(r.dir, n.name+".status"), text, 0o600); err != nil {
			fmt.Fprintln(r.out, err)
		}
	}
	// What lies in the queues of the connections says which end does not go on.
	if text, err := os.ReadFile("/proc/net/tcp"); err == nil {
		_ = os.WriteFile(filepath.Join(r.dir, "sockets"), text, 0o600)
	}
}

// trace has processes that do not end, and the cores, write what their goroutines do into
// their logs, and thereby ends them.
func (r *run) trace(ctx context.Context, stuck []*member) {
	for _, m := range stuck {
		m.killed.Store(true)
		m.signal(syscall.SIGQUIT)
	}
	for i, n := range r.nodes {
		if pid, err := n.core(ctx); err == nil && pid == r.cores[i].pid {
			r.killing(n)
			_ = syscall.Kill(pid, syscall.SIGQUIT)
		}
	}
	for _, m := range stuck {
		<-m.gone
	}
}

// stopGrace is how long a daemon gets to end.
const stopGrace = time.Minute

// close ends everything that runs and removes everything, but not the directory if keep, or if any of this fails.
func (r *run) close(keep bool) error {
	var errs []error
	if r.fleet != nil {
		r.fleet.kill()
	}
	for _, x := range r.inspectors {
		x.close()
	}
	for _, n := range slices.Backward(r.nodes) {
		errs = append(errs, n.stop(stopGrace))
	}
	for _, p := range r.proxies() {
		p.close()
	}
	if r.spawner != nil {
		r.spawner.close()
	}
	errs = append(errs, endChildren())
	if r.wire != nil {
		errs = append(errs, r.wire.remove())
	}
	if r.board != nil {
		errs = append(errs, r.board.close())
	}
	err := errors.Join(errs...)
	switch {
	case r.dir == "":
	case keep || r.options.keep || err != nil:
		fmt.Fprintf(r.out, "logs and books are in %s\n", r.dir)
	default:
		err = os.RemoveAll(r.dir)
	}
	return err
}

// endChildren kills what is left of the daemons: cores whose supervisor is gone, which may
// be stopped.
func endChildren() error {
	list, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		return err
	}
	for _, f := range list {
		text, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		for _, pid := range numbers(string(text)) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			_, _ = syscall.Wait4(pid, nil, 0, nil)
		}
	}
	return nil
}
