package libfabric

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// LocksMemory reports whether a provider locks registered memory, as those of adapters do.
func LocksMemory(provider string) bool {
	return provider == "efa" || strings.HasPrefix(provider, "verbs")
}

// explainMemory adds to a call that has failed for memory what the system allows to a provider that locks it. libfabric's error numbers
// are the system's where both have one.
func explainMemory(err error, provider string) error {
	var ce *CallError
	if !LocksMemory(provider) || !errors.As(err, &ce) || ce.Code != int(unix.ENOMEM) && ce.Code != int(unix.EAGAIN) {
		return err
	}
	limit := "unlimited"
	var r unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &r) == nil && r.Cur != unix.RLIM_INFINITY {
		limit = fmt.Sprintf("%d bytes", r.Cur)
	}
	return fmt.Errorf("%w: raise RLIMIT_MEMLOCK, here %s (LimitMEMLOCK=infinity, ulimit -l), or the device has no more of something",
		err, limit)
}
