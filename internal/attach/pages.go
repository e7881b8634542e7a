package attach

import "github.com/rdmad/rdmad/shm"

// Pages returns where the daemon wakes a client that is parked, or nil if this core of it
// does not do so. They are closed, which ends a wait for them, when the core or the session
// ends.
func (s *Session) Pages() *shm.Pages { return s.pages.Load() }

// setPages takes over the descriptor of this core's pages. Without them a client sleeps in
// another way, so that they cannot be had is no error.
func (s *Session) setPages(fd int) {
	p, err := shm.OpenPages(fd)
	if err != nil {
		s.NoPages(s.pages.Load()) // those of the last core: nobody else need notice that they have ended
		return
	}
	if old := s.pages.Swap(p); old != nil {
		_ = old.Close()
	}
}

// NoPages is for whoever has learnt from p that there will be no more of them: those of
// another core may come later.
func (s *Session) NoPages(p *shm.Pages) {
	if p != nil && s.pages.CompareAndSwap(p, nil) {
		_ = p.Close()
	}
}

// Wake wakes the leader of a client, however it sleeps. It is for the client's own process.
func (s *Session) Wake() {
	s.Rings.Down.Ring()
	if p := s.pages.Load(); p != nil {
		p.Interrupt()
	}
}
