package libfabric

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Who has locked too much is told which limit it is; others are not sent astray.
func TestExplainMemory(t *testing.T) {
	noMemory := fmt.Errorf("wrapped: %w", &CallError{Call: "fi_mr_reg", Code: int(unix.ENOMEM), Text: "Cannot allocate memory"})
	other := &CallError{Call: "fi_mr_reg", Code: int(unix.EINVAL), Text: "Invalid argument"}
	for _, c := range []struct {
		provider string
		err      error
		told     bool
	}{{"efa", noMemory, true}, {"verbs;ofi_rxm", noMemory, true}, {"tcp;ofi_rxm", noMemory, false}, {"shm", noMemory, false}, {"efa", other, false}} {
		err := explainMemory(c.err, c.provider)
		if told := strings.Contains(err.Error(), "RLIMIT_MEMLOCK"); told != c.told || !errors.Is(err, c.err) {
			t.Errorf("%s: %v", c.provider, err)
		}
	}
	if err := explainMemory(nil, "efa"); err != nil {
		t.Error(err)
	}
}
