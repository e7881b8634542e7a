// Package greeter is the service of the examples, as protoc-gen-go v1.36.12 and
// protoc-gen-go-grpc v1.6.2 made it of greeter.proto.
package greeter
