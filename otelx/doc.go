// Package otelx makes OpenTelemetry spans of rdmad calls: a client span where a request is
// made, and a server span, its child, where it is handled. What ties them together, a W3C
// trace context and whatever else the propagator knows, goes beside the request and not in
// its payload: handlers without this package do not notice.
//
// On the client's side a Method takes the place of a client.Method:
//
//	m, err := otelx.Lookup(ctx, conn, "b/greeter/hello")
//	answer, err := m.Call(ctx, request)
//
// On the server's side handlers are wrapped:
//
//	err := srv.Handle("greeter", "hello", otelx.Handler("greeter", "hello", hello))
//
// The span of a handler is in the context that the call has, so that what the handler does
// with that belongs to it.
//
// The tracer provider and the propagator are the global ones of OpenTelemetry (package
// otel), unless options say otherwise. Of a global propagator that does nothing nothing is
// sent.
package otelx
