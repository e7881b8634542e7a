package fabric

// describer is implemented by devices and endpoints that can say, in one line for
// people, what they use: device, port, GID, MTU and so on.
type describer interface{ Describe() string }

// Describe returns what v says of itself, or "".
func Describe(v any) string {
	if d, ok := v.(describer); ok {
		return d.Describe()
	}
	return ""
}
