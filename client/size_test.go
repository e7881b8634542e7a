package client

import (
	"reflect"
	"testing"
)

// A future takes whole lines of a cache, so that what each request uses of it is in as few as possible.
func TestSizeOfFuture(t *testing.T) {
	future := reflect.TypeFor[Future]()
	if size := future.Size(); size > 256 {
		t.Errorf("a future takes %d bytes, want at most 256: the allocator's next size is no multiple of 64", size)
	}
	if cold, ok := future.FieldByName("tries"); !ok || cold.Offset > 192 {
		t.Errorf("what each request uses takes %d bytes, want at most 192", cold.Offset)
	}
}
