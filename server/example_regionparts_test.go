package server_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/rdmad/rdmad/server"
)

func ExampleCall_NumRegions() {
	tryRegion("....", func(_ *server.Server, c *server.Call) error {
		return c.Reply(fmt.Append(nil, c.NumRegions()))
	})
	// Output:
	// answer: "1"
	// region: ....
}

func ExampleRemoteRegion_Len() {
	tryRegion("....", func(_ *server.Server, c *server.Call) error {
		return c.Reply(fmt.Append(nil, c.Region(0).Len()))
	})
	// Output:
	// answer: "4"
	// region: ....
}

func ExampleRemoteRegion_Rights() {
	tryRegion("....", func(_ *server.Server, c *server.Call) error {
		rights := c.Region(0).Rights()
		return c.Reply(fmt.Append(nil, rights&server.MayWrite != 0, " ", c.Region(7).Rights()))
	})
	// Output:
	// answer: "true ---"
	// region: ....
}

func ExampleRegionError_Error() {
	fmt.Println(&server.RegionError{Op: "read", Off: 4090, Len: 8, Size: 4096, Err: server.ErrOutOfBounds})
	fmt.Println(&server.RegionError{Op: "write", Size: 4096, Err: server.ErrExpired})
	// Output:
	// read of 8 bytes at 4090 of a region of 4096 bytes: out of bounds
	// write on a region of 4096 bytes: the call is over
}

func ExampleRegionError_Is() {
	var err error = &server.RegionError{Op: "write", Err: server.ErrExpired}
	fmt.Println(errors.Is(err, server.ErrRegion))
	// Output:
	// true
}

func ExampleRegionError_Unwrap() {
	var err error = &server.RegionError{Op: "write", Err: server.ErrExpired}
	fmt.Println(errors.Is(err, server.ErrExpired))
	// Output:
	// true
}

// withRegion attaches a server and gives f a region of it.
func withRegion(f func(r *server.Region) error) {
	socket, stop := node()
	defer stop()
	ctx := context.Background()
	srv, err := server.Attach(ctx, socket)
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()
	r, err := srv.AllocRegion(ctx, 4096)
	if err == nil {
		err = errors.Join(f(r), r.Free())
	}
	if err != nil {
		log.Fatal(err)
	}
}

func ExampleRegion_Bytes() {
	withRegion(func(r *server.Region) error {
		fmt.Println(copy(r.Bytes(), "what handlers send without a copy"))
		return nil
	})
	// Output:
	// 33
}

func ExampleRegion_Len() {
	withRegion(func(r *server.Region) error {
		fmt.Println(r.Len())
		return nil
	})
	// Output:
	// 4096
}

func ExampleRegion_Ref() {
	withRegion(func(r *server.Region) error {
		_, err := r.Ref(4000, 100) // beyond the end
		fmt.Println(errors.Is(err, server.ErrInvalid))
		return nil
	})
	// Output:
	// true
}

func ExampleRegionRef_Len() {
	withRegion(func(r *server.Region) error {
		ref, err := r.Ref(0, 100)
		fmt.Println(ref.Len())
		return err
	})
	// Output:
	// 100
}

func ExampleRegion_Free() {
	withRegion(func(r *server.Region) error {
		err := r.Free() // again does nothing
		fmt.Println(r.Bytes() == nil, err)
		return nil
	})
	// Output:
	// true <nil>
}
