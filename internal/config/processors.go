package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// maxProcessor is the largest number of a processor, and so there are at most one more of
// them: what the kernel's usual mask has room for.
const maxProcessor = 1023

const processorsForm = `numbers of processors as for taskset -c, such as "2,3" or "4-7", each once and none above 1023, or ""`

// processors reads a list of processors.
func processors() kind[[]int] {
	return kind[[]int]{
		allowed: processorsForm,
		read: func(v any) ([]int, error) {
			s, err := as[string](v, "a string")
			if err != nil || s == "" {
				return nil, err
			}
			var list []int
			for part := range strings.SplitSeq(s, ",") {
				first, last, ok := processorRange(part)
				if !ok {
					return nil, fmt.Errorf("must be %s, got %q", processorsForm, s)
				}
				for n := first; n <= last; n++ {
					if slices.Contains(list, n) {
						return nil, fmt.Errorf("must be %s, got %d twice", processorsForm, n)
					}
					list = append(list, n)
				}
			}
			return list, nil
		},
		show: func(list []int) any {
			words := make([]string, len(list))
			for i, n := range list {
				words[i] = strconv.Itoa(n)
			}
			return strings.Join(words, ",")
		},
	}
}

// processorRange reads a number, or two with a dash between them.
func processorRange(s string) (first, last int, ok bool) {
	from, to, several := strings.Cut(s, "-")
	if !several {
		to = from
	}
	a, errA := strconv.ParseUint(from, 10, 16)
	b, errB := strconv.ParseUint(to, 10, 16)
	return int(a), int(b), errA == nil && errB == nil && a <= b && b <= maxProcessor
}
