package daemon

import (
	"errors"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/server"
)

// Nobody is told of what a worker registers that it serves already: neither who waits for a service, nor peers.
func TestRegisteringTheSameIsNoNews(t *testing.T) {
	cfg := parsed(t, "[observe]\ncounters = \"off\"\n[limits]\nservices = 2\n")
	c, end := served(t, cfg, successors(t, cfg))
	defer end()
	s, err := server.Attach(t.Context(), cfg.Node.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	w := workerOf(t, c)
	news := func() <-chan struct{} {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.changed
	}
	one, two, three := attach.Method{Service: "s", Method: "one"}, attach.Method{Service: "s", Method: "two"}, attach.Method{Service: "s", Method: "three"}
	larger := one
	larger.Answer = 100
	var first []uint32
	for _, step := range []struct {
		name    string
		methods []attach.Method
		refused error
		told    bool
	}{
		{"a method", []attach.Method{one}, nil, true},
		{"the same", []attach.Method{one}, nil, false},
		{"none", nil, nil, false},
		{"another size of answers", []attach.Method{larger}, nil, true},
		{"the same again", []attach.Method{larger, larger}, nil, false},
		{"another one, and one too many", []attach.Method{two, three}, attach.ErrLimit, true},
		{"the other one", []attach.Method{larger, two}, nil, false},
	} {
		before := news()
		a, err := c.register(w, &attach.Message{Methods: step.methods})
		if !errors.Is(err, step.refused) {
			t.Fatalf("%s: %v", step.name, err)
		}
		if told := news() != before; told != step.told {
			t.Errorf("%s: told is %v", step.name, told)
		}
		if err != nil {
			continue
		}
		if first == nil {
			first = a.MethodIDs
		}
		if len(a.MethodIDs) != len(step.methods) || len(a.MethodIDs) > 0 && !slices.Equal(a.MethodIDs[:1], first) {
			t.Errorf("%s: ids %v, first %v", step.name, a.MethodIDs, first)
		}
	}
}

// A method is found when the agent knows who serves it, and not before: what came meanwhile would be refused. That holds for the first
// process that serves it, and for the ones after, beside each other. One that withdraws meanwhile serves nothing.
func TestMethodIsFoundWhenTheAgentKnowsIt(t *testing.T) {
	cfg := parsed(t, "[observe]\ncounters = \"off\"\n")
	c, end := served(t, cfg, successors(t, cfg))
	defer end()
	one := attach.Method{Service: "s", Method: "one"}
	key := methodKey{one.Service, one.Method}
	d := c.domainNamed("default")
	var workers []*worker
	for range 2 {
		s, err := server.Attach(t.Context(), cfg.Node.Socket)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		c.mu.Lock()
		for _, w := range d.workers {
			if !slices.Contains(workers, w) {
				workers = append(workers, w)
			}
		}
		c.mu.Unlock()
	}
	// look returns how many serve the method, and whether it is found; entered, that the domain has it.
	look := func() (serve int, found, entered bool) {
		c.mu.Lock()
		defer c.mu.Unlock()
		m := d.methods[key]
		if _, _, err := c.lookupHere(d, key); err == nil {
			found = true
		}
		if m == nil {
			return 0, found, false
		}
		return len(m.workers), found, true
	}
	// holdAgent keeps the agent from running commands until the function that it returns is called.
	holdAgent := func() (letGo func()) {
		held, hold := make(chan struct{}), make(chan struct{})
		d.agent.Commands.Do(func() { close(held); <-hold })
		<-held
		return sync.OnceFunc(func() { close(hold) })
	}
	over := make(chan error, len(workers))
	letGo := holdAgent()
	defer letGo()
	for _, w := range workers {
		go func() {
			_, err := c.register(w, &attach.Message{Methods: []attach.Method{one}})
			over <- err
		}()
	}
	limit := time.Now().Add(time.Minute)
	for entered := false; !entered; {
		var found bool
		if _, found, entered = look(); found {
			t.Error("it is found, and the agent does not know it")
		}
		if time.Now().After(limit) {
			t.Fatal("nobody has registered anything")
		}
		runtime.Gosched()
	}
	letGo()
	for range workers {
		if err := <-over; err != nil {
			t.Error(err)
		}
	}
	if serve, found, _ := look(); serve != len(workers) || !found {
		t.Errorf("%d processes serve it, found: %v", serve, found)
	}

	key.method = "two"
	letGo = holdAgent()
	defer letGo()
	go func() {
		_, err := c.register(workers[0], &attach.Message{Methods: []attach.Method{{Service: key.service, Method: key.method}}})
		over <- err
	}()
	for entered := false; !entered; {
		if _, _, entered = look(); time.Now().After(limit) {
			t.Fatal("nobody has registered the other one")
		}
		runtime.Gosched()
	}
	withdrawn := make(chan error, 1)
	go func() {
		_, err := c.withdraw(workers[0])
		withdrawn <- err
	}()
	for has := false; !has; {
		c.mu.Lock()
		has = workers[0].withdrawn
		c.mu.Unlock()
		if time.Now().After(limit) {
			t.Fatal("it does not withdraw")
		}
		runtime.Gosched()
	}
	letGo()
	if err := <-over; !errors.Is(err, attach.ErrInvalid) {
		t.Errorf("it has withdrawn, and registers: %v", err)
	}
	if err := <-withdrawn; err != nil {
		t.Error(err)
	}
	if serve, found, _ := look(); serve != 0 || found {
		t.Errorf("%d processes serve what nobody does, found: %v", serve, found)
	}
}
