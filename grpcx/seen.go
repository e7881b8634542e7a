package grpcx

import "sync"

// seen is a set of methods. It grows with what a program calls, and is asked rarely.
type seen struct {
	// methods has whether a methodName is in the set, or was: then its service is still one that was seen.
	methods sync.Map
}

func (s *seen) add(service, method string) {
	key := methodName{service, method}
	if in, ok := s.methods.Load(key); !ok || in != true {
		s.methods.Store(key, true)
	}
}

// forget takes a method out.
func (s *seen) forget(service, method string) { s.methods.Store(methodName{service, method}, false) }

func (s *seen) method(service, method string) bool {
	in, _ := s.methods.Load(methodName{service, method})
	return in == true
}

// service reports whether a method of the service is in the set, or was.
func (s *seen) service(name string) (found bool) {
	s.methods.Range(func(key, _ any) bool {
		found = key.(methodName).service == name
		return !found
	})
	return found
}
