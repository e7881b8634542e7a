// Package leaktest checks that the tests of a package leave no goroutine behind, and counts descriptors for those that look
// for such as are left.
package leaktest

import (
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience is how long a goroutine may take that ends: it may get no processor for a while.
const patience = 2 * time.Minute

// Main is the TestMain of a package: it runs the tests, and then makes the process fail if
// goroutines are left that do not end. It does not return.
func Main(m *testing.M) { goleak.VerifyTestMain(tests{m}) }

// tests are run and have an end: goleak looks only for half a second, which those who end
// can take on a busy machine.
type tests struct{ m *testing.M }

// Run implements goleak.TestingM.
func (t tests) Run() int {
	code := t.m.Run()
	for end := time.Now().Add(patience); code == 0 && goleak.Find() != nil && time.Now().Before(end); {
	}
	return code
}

// Descriptors counts the process's open descriptors, always with one for the count itself.
func Descriptors(t testing.TB) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}
