package main

import (
	"fmt"
	"os/exec"
	"time"
)

func needsProxy(r *run) string {
	if r.options.netns {
		return "nodes in namespaces have no proxies between them"
	}
	return ""
}

func needsDataProxy(r *run) string {
	if why := needsProxy(r); why != "" {
		return why
	}
	if r.options.fabric != "tcp" {
		return "no proxy can stand between data connections of the fabric " + r.options.fabric
	}
	return ""
}

// proxies are all there are.
func (r *run) proxies() []*proxy { return append(append([]*proxy(nil), r.bootstrap...), r.data...) }

// resetAll resets the connections of some proxies.
func resetAll(i *injection, ps []*proxy) error {
	t := now()
	for _, p := range ps {
		p.reset()
	}
	return i.answeredAgain(t, recLink)
}

func bootstrapReset(i *injection) error { return resetAll(i, i.bootstrap) }

func dataReset(i *injection) error { return resetAll(i, i.data) }

func linkReset(i *injection) error { return resetAll(i, i.proxies()) }

// halfClose ends one direction of every connection of some proxies.
func halfClose(i *injection) error {
	in, t := i.rng.IntN(2) == 0, now()
	ps := [][]*proxy{i.bootstrap, i.data, i.proxies()}[i.rng.IntN(3)]
	for _, p := range ps {
		p.halfClose(in)
	}
	return i.answeredAgain(t, unmeasured)
}

// silence lets nothing pass for some time; once in a while for so long that the nodes give
// each other up.
func silence(i *injection) error {
	d := i.between(100*time.Millisecond, 3*time.Second)
	if i.rng.IntN(20) == 0 {
		d = 15 * time.Second
	}
	ps := [][]*proxy{i.bootstrap, i.data, i.proxies()}[i.rng.IntN(3)]
	for _, p := range ps {
		p.swallow(true)
	}
	i.pause(d)
	for _, p := range ps {
		p.swallow(false)
	}
	return i.answeredAgain(now(), unmeasured)
}

// slow makes the connections slow for some time.
func slow(i *injection) error {
	delay, chunk := i.between(time.Millisecond, 20*time.Millisecond), 512<<i.rng.IntN(8)
	for _, p := range i.proxies() {
		p.slow(delay, chunk)
	}
	i.pause(i.between(200*time.Millisecond, 3*time.Second))
	for _, p := range i.proxies() {
		p.slow(0, 0)
	}
	return i.answeredAgain(now(), unmeasured)
}

// commandLimit bounds a command of the system.
const commandLimit = time.Minute

// cannotDestroy tries on a connection of its own whether the kernel aborts connections on
// demand.
func cannotDestroy(r *run) string {
	if _, err := exec.LookPath("ss"); err != nil {
		return "there is no ss (package iproute2)"
	}
	if why := destroyWorks(r.ctx); why != "" {
		return why
	}
	return ""
}

// sockDestroy aborts all connections to the nodes' ports.
func sockDestroy(i *injection) error {
	t := now()
	for _, n := range i.nodes {
		for _, address := range []string{n.listen, n.data} {
			port := portOf(address)
			if port == 0 {
				continue
			}
			if err := destroy(i.ctx, n.namespace, port); err != nil {
				return fmt.Errorf("node %s: %w", n.name, err)
			}
		}
	}
	return i.answeredAgain(t, recLink)
}
