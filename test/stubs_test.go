package test

import (
	"context"
	"encoding/json"
)

func attachRole(context.Context, *roleArgs, *json.Encoder) error { return nil }
func hangRole(context.Context, *roleArgs, *json.Encoder) error   { return nil }
