package config

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rdmad/rdmad/shm"
)

// kind is how values of one type are read from what the TOML decoder gives,
// checked, and printed.
type kind[T any] struct {
	// allowed describes the accepted values, for the documentation.
	allowed string
	// read converts and checks. Its error is the reason alone, without the key.
	read func(v any) (T, error)
	// show returns the value as TOML and JSON write it.
	show func(T) any
	// withheld: reasons to refuse a value do not quote it, as it may be a secret that was put where its path belongs.
	withheld bool
}

// typeName names the TOML type of a decoded value.
func typeName(v any) string {
	switch v := v.(type) {
	case string:
		return "a string"
	case unreadable:
		return v.String()
	case int64:
		return "an integer"
	case float64:
		return "a float"
	case bool:
		return "a boolean"
	case time.Time:
		return "a date or time"
	case map[string]any:
		return "a table"
	case []map[string]any:
		return "an array of tables"
	default:
		return "an array"
	}
}

// as asserts the TOML type of a value.
func as[T any](v any, want string) (T, error) {
	t, ok := v.(T)
	if !ok {
		return t, fmt.Errorf("must be %s, got %s", want, typeName(v))
	}
	return t, nil
}

// text reads a string for which check returns no error.
func text(allowed string, check func(string) error) kind[string] {
	return kind[string]{
		allowed: allowed,
		read: func(v any) (string, error) {
			s, err := as[string](v, "a string")
			if err == nil {
				err = check(s)
			}
			return s, err
		},
		show: func(s string) any { return s },
	}
}

// pattern reads a string that matches the expression, which must be anchored.
func pattern(expr *regexp.Regexp, allowed string) kind[string] {
	return text(allowed, func(s string) error {
		if !expr.MatchString(s) {
			return fmt.Errorf("must be %s, got %q", allowed, s)
		}
		return nil
	})
}

// oneOf reads one of a few words.
func oneOf(words ...string) kind[string] {
	allowed := quoted(words)
	return text(allowed, func(s string) error {
		if !slices.Contains(words, s) {
			return fmt.Errorf("must be %s, got %q", allowed, s)
		}
		return nil
	})
}

// quoted lists words as `"a", "b" or "c"`.
func quoted(words []string) string {
	last := len(words) - 1
	q := make([]string, len(words))
	for i, w := range words {
		q[i] = strconv.Quote(w)
	}
	return strings.Join(q[:last], ", ") + " or " + q[last]
}

// number reads an integer from low to high that is a multiple of step.
func number(low, high, step int64) kind[int] {
	allowed := fmt.Sprintf("%d to %d", low, high)
	if step != 1 {
		allowed = fmt.Sprintf("a multiple of %d from %d to %d", step, low, high)
	}
	return kind[int]{
		allowed: allowed,
		read: func(v any) (int, error) {
			n, err := as[int64](v, "an integer")
			if err == nil && (n < low || n > high || n%step != 0) {
				err = fmt.Errorf("must be %s, got %d", allowed, n)
			}
			return int(n), err
		},
		show: func(n int) any { return n },
	}
}

// oneOfNumbers reads one of a few integers.
func oneOfNumbers(values ...int) kind[int] {
	last := len(values) - 1
	words := make([]string, len(values))
	for i, n := range values {
		words[i] = strconv.Itoa(n)
	}
	allowed := strings.Join(words[:last], ", ") + " or " + words[last]
	return kind[int]{
		allowed: allowed,
		read: func(v any) (int, error) {
			n, err := as[int64](v, "an integer")
			if err == nil && (int64(int(n)) != n || !slices.Contains(values, int(n))) {
				err = fmt.Errorf("must be %s, got %d", allowed, n)
			}
			return int(n), err
		},
		show: func(n int) any { return n },
	}
}

// boolean reads true or false.
func boolean() kind[bool] {
	return kind[bool]{
		allowed: "true or false",
		read:    func(v any) (bool, error) { return as[bool](v, "true or false") },
		show:    func(b bool) any { return b },
	}
}

// duration reads a string with a unit. A bare number is refused even if it is 0:
// it does not say which unit its writer had in mind.
func duration(low, high time.Duration) kind[time.Duration] {
	return durations(rangeOf(low, high), func(d time.Duration) bool { return low <= d && d <= high })
}

// durationOrNever is duration, but 0 is allowed, too, and means never.
func durationOrNever(low, high time.Duration) kind[time.Duration] {
	return durations("0s for never, or "+rangeOf(low, high), func(d time.Duration) bool { return d == 0 || low <= d && d <= high })
}

// durations are those that are fine, which allowed says for people.
func durations(allowed string, fine func(time.Duration) bool) kind[time.Duration] {
	const form = `a string with a unit such as "10s", "250ms" or "50us"`
	return kind[time.Duration]{
		allowed: allowed,
		read: func(v any) (time.Duration, error) {
			s, err := as[string](v, form)
			if err != nil {
				return 0, err
			}
			d, err := time.ParseDuration(s)
			if err != nil || strings.TrimLeft(s, "+-0123456789.") == "" {
				return 0, fmt.Errorf("must be %s, got %q", form, s)
			}
			if !fine(d) {
				return 0, fmt.Errorf("must be %s, got %s", allowed, s)
			}
			return d, nil
		},
		show: func(d time.Duration) any { return d.String() },
	}
}

// rangeOf prints bounds that are whole hours, minutes or less as people write
// them: "1h", not "1h0m0s".
func rangeOf(low, high time.Duration) string {
	short := strings.NewReplacer("h0m0s", "h", "m0s", "m")
	return short.Replace(low.String()) + " to " + short.Replace(high.String())
}

// fileMode reads permission bits written as an octal string. A TOML integer is
// refused because 660 there would be decimal. The owner, who is the daemon, must
// keep read and write.
func fileMode() kind[os.FileMode] {
	const allowed = `an octal string from "0600" to "0777" with read and write for the owner`
	return kind[os.FileMode]{
		allowed: allowed,
		read: func(v any) (os.FileMode, error) {
			s, err := as[string](v, `an octal string such as "0660"`)
			if err != nil {
				return 0, err
			}
			n, err := strconv.ParseUint(s, 8, 32)
			if err != nil || n > 0o777 || n&0o600 != 0o600 {
				return 0, fmt.Errorf("must be %s, got %q", allowed, s)
			}
			return os.FileMode(n), nil
		},
		show: func(m os.FileMode) any { return fmt.Sprintf("%04o", m) },
	}
}

// hugepageWords are the words for the modes, indexed by them.
var hugepageWords = []string{
	shm.HugepagesOff:     "off",
	shm.HugepagesTry:     "try",
	shm.HugepagesRequire: "require",
}

// hugepages reads a word of hugepageWords.
func hugepages() kind[shm.HugepageMode] {
	words := oneOf(hugepageWords...)
	return kind[shm.HugepageMode]{
		allowed: words.allowed,
		read: func(v any) (shm.HugepageMode, error) {
			word, err := words.read(v)
			return shm.HugepageMode(max(0, slices.Index(hugepageWords, word))), err
		},
		show: func(m shm.HugepageMode) any { return hugepageWords[m] },
	}
}

// idList reads an array of names or numeric ids. Ids may be written as integers
// too, because that is what people do.
func idList(what string) kind[[]string] {
	form := fmt.Sprintf("an array of names or numeric ids of %s", what)
	return kind[[]string]{
		allowed: form,
		read: func(v any) ([]string, error) {
			list, err := as[[]any](v, form)
			if err != nil {
				return nil, err
			}
			ids := make([]string, 0, len(list))
			for _, v := range list {
				switch v := v.(type) {
				case string:
					ids = append(ids, v)
				case int64:
					ids = append(ids, strconv.FormatInt(v, 10))
				default:
					return nil, fmt.Errorf("must be %s, got %s in it", form, typeName(v))
				}
			}
			return ids, nil
		},
		show: func(ids []string) any { return append([]string{}, ids...) },
	}
}

// nameList reads an array of names for each of which check returns no error.
func nameList(what string, check func(string) error) kind[[]string] {
	form := fmt.Sprintf("an array of names of %s", what)
	return kind[[]string]{
		allowed: form,
		read: func(v any) ([]string, error) {
			list, err := as[[]any](v, form)
			if err != nil {
				return nil, err
			}
			names := make([]string, 0, len(list))
			for _, v := range list {
				name, ok := v.(string)
				if !ok {
					return nil, fmt.Errorf("must be %s, got %s in it", form, typeName(v))
				}
				if err := check(name); err != nil {
					return nil, err
				}
				names = append(names, name)
			}
			return names, nil
		},
		show: func(names []string) any { return append([]string{}, names...) },
	}
}
