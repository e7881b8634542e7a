package grpcx

import "sync"

// seen is a set of names of services. It grows with what a program calls, and is
// asked rarely.
type seen struct{ names sync.Map }

func (s *seen) add(name string) {
	if _, ok := s.names.Load(name); !ok {
		s.names.Store(name, nil)
	}
}

func (s *seen) has(name string) bool {
	_, ok := s.names.Load(name)
	return ok
}
