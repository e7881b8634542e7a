package shm_test

import (
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/shm"
)

// A daemon makes a segment; a worker maps the descriptor it was sent.
func Example() {
	s, err := shm.Create(shm.CreateOptions{Name: "example", Kind: shm.KindTest, Size: 2 * shm.HeaderSize})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close()

	fd, err := unix.FcntlInt(uintptr(s.FD()), unix.F_DUPFD_CLOEXEC, 0) // stands for SendFDs and RecvFDs
	if err != nil {
		fmt.Println(err)
		return
	}
	o, err := shm.Open(fd, shm.KindTest, 2*shm.HeaderSize)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer o.Close()

	shm.Uint64At(s.Bytes(), shm.HeaderSize).Store(42)
	fmt.Println(shm.Uint64At(o.Bytes(), shm.HeaderSize).Load())
	// Output: 42
}

func ExampleMajorOf() {
	const version = 4<<16 | 2
	fmt.Printf("ABI %d.%d", shm.MajorOf(version), shm.MinorOf(version))
	// Output: ABI 4.2
}

func ExampleFutexWait() {
	mem := shm.AlignedBytes(64)
	word := shm.Uint32At(mem, 0)
	go func() {
		word.Store(1)
		shm.FutexWake(word, shm.WakeMany)
	}()
	for word.Load() == 0 { // a wait may end for no reason
		shm.FutexWait(word, 0, 50*time.Millisecond)
	}
	fmt.Println("woken")
	// Output: woken
}

// Three sleepers of other processes, here goroutines, are woken with as few system calls as the kernel allows.
func ExampleWakes() {
	mem := shm.AlignedBytes(3 * 64)
	var awake sync.WaitGroup
	for i := range 3 {
		word := shm.Uint32At(mem, 64*i)
		awake.Go(func() {
			for word.Load() == 0 { // a wait may end for no reason
				shm.FutexWait(word, 0, 50*time.Millisecond)
			}
		})
	}
	w := shm.NewWakes()
	defer w.Close()
	for i := range 3 {
		word := shm.Uint32At(mem, 64*i)
		word.Store(1)
		w.Add(word)
	}
	w.Flush()
	awake.Wait()
	fmt.Println("awake")
	// Output: awake
}

// A process that is parked is woken with the others.
func ExampleWakes_AddPage() {
	p, reader, err := shm.NewPager()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer p.Close()
	pages, err := shm.OpenPages(reader) // by the other process
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pages.Close()

	w := new(shm.Wakes) // or NewWakes, where Rings may be true
	w.AddPage(p)
	w.Flush()
	fmt.Println(pages.Wait(), w.Rings())
	// Output: <nil> false
}

func ExampleBell() {
	b, err := shm.NewBell()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer b.Close()
	var count [8]byte
	_, err = shm.ReadFD(b.FD(), count[:])
	fmt.Println(err)
	b.Ring()
	n, err := shm.ReadFD(b.FD(), count[:])
	fmt.Println(n, err)
	// Output:
	// resource temporarily unavailable
	// 8 <nil>
}

func ExampleVec() {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_NONBLOCK|unix.O_CLOEXEC); err != nil {
		fmt.Println(err)
		return
	}
	defer shm.CloseFDs(p[:])
	var v shm.Vec
	v.Append([]byte("head "))
	v.Append([]byte("and body"))
	n, err := v.Writev(p[1])
	fmt.Println(n, err, v.Len())
	buf := make([]byte, 64)
	n, _ = shm.ReadFD(p[0], buf)
	fmt.Println(string(buf[:n]))
	// Output:
	// 13 <nil> 0
	// head and body
}

func ExampleCheckABI() {
	fmt.Println(shm.CheckABI(4<<16 | 3))
	fmt.Println(shm.CheckABI(5 << 16))
	// Output:
	// <nil>
	// shm: ABI version 5.0, this program speaks 4.4
}

func ExampleNanotime() {
	deadline := shm.Nanotime() + int64(time.Hour)
	fmt.Println(shm.Nanotime() < deadline)
	// Output: true
}
