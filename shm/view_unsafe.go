package shm

import (
	"fmt"
	"reflect"
	"sync/atomic"
	"unsafe"
)

// Uint32At returns an atomic view of the aligned 32-bit word at offset off of
// mem. It panics if the word is misaligned or not inside mem: offsets come from
// the program's own layout, never from shared memory.
func Uint32At(mem []byte, off int) *atomic.Uint32 {
	return (*atomic.Uint32)(at(mem, off, 1, 4))
}

// Uint64At is Uint32At for a 64-bit word.
func Uint64At(mem []byte, off int) *atomic.Uint64 {
	return (*atomic.Uint64)(at(mem, off, 1, 8))
}

// Uint64s returns an atomic view of the n aligned 64-bit words that start at
// offset off of mem. It panics like Uint32At.
func Uint64s(mem []byte, off, n int) []atomic.Uint64 {
	return unsafe.Slice((*atomic.Uint64)(at(mem, off, n, 8)), n)
}

// AlignedBytes returns n zeroed bytes of ordinary, garbage-collected memory
// that start on a 64 byte boundary, for tests that want the race detector to
// watch what a mapping would hide from it.
func AlignedBytes(n int) []byte {
	words := make([]uint64, n/8+8)
	mem := unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), len(words)*8)
	skip := int(-uintptr(unsafe.Pointer(&mem[0])) & 63)
	return mem[skip : skip+n : skip+n]
}

func at(mem []byte, off, n, size int) unsafe.Pointer {
	if off < 0 || n < 1 || off > len(mem) || n > (len(mem)-off)/size {
		panic(fmt.Sprintf("shm: %d words of %d bytes at offset %d do not fit %d bytes", n, size, off, len(mem)))
	}
	p := unsafe.Pointer(&mem[off])
	if uintptr(p)%uintptr(size) != 0 {
		panic(fmt.Sprintf("shm: word of %d bytes at offset %d is misaligned", size, off))
	}
	return p
}

// View returns the T at the aligned offset off of mem. T consists of 64-bit words alone,
// of arrays of bytes that fill such words, and of structs and arrays of these: it panics
// for others, and, like Uint32At, for what is misaligned or not inside mem. The T is as
// long-lived as mem.
func View[T any](mem []byte, off int) *T {
	t := reflect.TypeFor[T]()
	if !onlyWords(t) {
		panic(fmt.Sprintf("shm: %v is more than 64-bit words", t))
	}
	return (*T)(at(mem, off, int(t.Size())/8, 8))
}

// SizeOf returns the size of a T in bytes.
func SizeOf[T any]() int { return int(reflect.TypeFor[T]().Size()) }

func onlyWords(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Uint64:
		return true
	case reflect.Array:
		return t.Elem().Kind() == reflect.Uint8 && t.Len()%8 == 0 || onlyWords(t.Elem())
	case reflect.Struct:
		if t == reflect.TypeFor[atomic.Uint64]() {
			return true
		}
		for f := range t.Fields() {
			if !onlyWords(f.Type) {
				return false
			}
		}
		return true
	}
	return false
}

// Within reports whether the bytes of part are bytes of mem, at least one, and where in it
// they begin.
func Within(mem, part []byte) (off int, ok bool) {
	if len(mem) == 0 || len(part) == 0 {
		return 0, false
	}
	from, to := uintptr(unsafe.Pointer(unsafe.SliceData(mem))), uintptr(unsafe.Pointer(unsafe.SliceData(part)))
	if to < from || to-from > uintptr(len(mem)) || uintptr(len(mem))-(to-from) < uintptr(len(part)) {
		return 0, false
	}
	return int(to - from), true
}
