package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/rdmad/rdmad/client"
)

// withRegion runs f with a region of n bytes, and a method that fills the regions of
// its requests.
func withRegion(n int, f func(ctx context.Context, m *client.Method, r *client.Region)) {
	socket, stop := demo()
	defer stop()
	ctx := context.Background()
	conn, err := client.Attach(ctx, socket)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	m, err := conn.Method(ctx, "b/demo/fill")
	if err != nil {
		log.Fatal(err)
	}
	r, err := conn.AllocRegion(ctx, n)
	if err != nil {
		log.Fatal(err)
	}
	f(ctx, m, r)
}

func ExampleConn_AllocRegion() {
	socket, stop := demo()
	defer stop()
	ctx := context.Background()
	conn, err := client.Attach(ctx, socket)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	region, err := conn.AllocRegion(ctx, 1<<20)
	if err != nil {
		log.Fatal(err) // for example client.ErrLimit
	}
	defer region.Free()
	fmt.Println(region.Len(), region.Bytes()[0])
	_, err = conn.AllocRegion(ctx, 1<<40)
	fmt.Println(errors.Is(err, client.ErrLimit))
	// Output:
	// 1048576 0
	// true
}

func ExampleConn_CallRegions() {
	socket, stop := demo()
	defer stop()
	ctx := context.Background()
	conn, err := client.Attach(ctx, socket)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	region, err := conn.AllocRegion(ctx, 4096)
	if err != nil {
		log.Fatal(err)
	}
	ref, err := region.Ref(0, 6, client.MayWrite)
	if err != nil {
		log.Fatal(err)
	}
	answer, err := conn.CallRegions(ctx, "b/demo/fill", []byte("ab"), ref)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s: %q\n", answer, region.Bytes()[:8])
	// Output:
	// done: "ababab\x00\x00"
}

func ExampleMethod_CallRegions() {
	withRegion(4096, func(ctx context.Context, m *client.Method, r *client.Region) {
		first, err := r.Ref(0, 3, client.MayWrite)
		if err != nil {
			log.Fatal(err)
		}
		second, err := r.Ref(5, 3, client.MayWrite)
		if err != nil {
			log.Fatal(err)
		}
		if _, err := m.CallRegions(ctx, []byte("x"), first, second); err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%q\n", r.Bytes()[:8])
	})
	// Output:
	// "xxx\x00\x00xxx"
}

func ExampleMethod_CallRegionsInto() {
	withRegion(4096, func(ctx context.Context, m *client.Method, r *client.Region) {
		ref, err := r.Ref(0, 4, client.MayWrite)
		if err != nil {
			log.Fatal(err)
		}
		buf := make([]byte, 0, 64) // used for every answer: nothing is allocated
		for _, c := range "ab" {
			if buf, err = m.CallRegionsInto(ctx, []byte(string(c)), buf, ref); err != nil {
				log.Fatal(err)
			}
			fmt.Printf("%s: %s\n", buf, r.Bytes()[:4])
		}
	})
	// Output:
	// done: aaaa
	// done: bbbb
}

func ExampleMethod_GoRegions() {
	withRegion(4096, func(ctx context.Context, m *client.Method, r *client.Region) {
		ref, err := r.Ref(0, 4, client.MayWrite)
		if err != nil {
			log.Fatal(err)
		}
		f, err := m.GoRegions(ctx, []byte("z"), ref)
		if err != nil {
			log.Fatal(err)
		}
		if _, err := f.Wait(ctx); err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s\n", r.Bytes()[:4])
	})
	// Output:
	// zzzz
}

func ExampleRegion_Bytes() {
	withRegion(4096, func(_ context.Context, _ *client.Method, r *client.Region) {
		copy(r.Bytes(), "for handlers to read")
		fmt.Printf("%s\n", r.Bytes()[:3])
	})
	// Output:
	// for
}

func ExampleRegion_Len() {
	withRegion(5000, func(_ context.Context, _ *client.Method, r *client.Region) {
		fmt.Println(r.Len())
	})
	// Output:
	// 5000
}

func ExampleRegion_Ref() {
	withRegion(4096, func(ctx context.Context, m *client.Method, r *client.Region) {
		readOnly, err := r.Ref(1024, 1024, client.MayRead)
		if err != nil {
			log.Fatal(err)
		}
		_, err = m.CallRegions(ctx, []byte("x"), readOnly)
		fmt.Println(err)
		_, err = r.Ref(4000, 97, client.MayRead)
		fmt.Println(errors.Is(err, client.ErrInvalid))
	})
	// Output:
	// b/demo/fill: write of 1024 bytes at 0 of a region of 1024 bytes: not permitted
	// true
}

func ExampleRegion_Free() {
	withRegion(4096, func(ctx context.Context, m *client.Method, r *client.Region) {
		ref, err := r.Ref(0, 4096, client.MayWrite)
		if err != nil {
			log.Fatal(err)
		}
		if err := r.Free(); err != nil {
			log.Fatal(err)
		}
		_, err = m.CallRegions(ctx, []byte("x"), ref)
		fmt.Println(r.Bytes() == nil, errors.Is(err, client.ErrInvalid))
	})
	// Output:
	// true true
}
