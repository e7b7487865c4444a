package broker

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// decode reads the request's body into q, whose strings are copies and whose byte slices point into the frame.
func decode(r *request, q kmsg.Request) error {
	if err := checkRequest(r.api.schema, r.version, r.body); err != nil {
		return err
	}
	if err := q.ReadFrom(r.body); err != nil {
		return fmt.Errorf("%w: %s version %d: %w", errBadRequest, r.api.name, r.version, err)
	}
	return nil
}

// decodeUnsafe is decode without copying strings: they too point into the frame and die with it.
func decodeUnsafe(r *request, q interface{ UnsafeReadFrom([]byte) error }) error {
	if err := checkRequest(r.api.schema, r.version, r.body); err != nil {
		return err
	}
	if err := q.UnsafeReadFrom(r.body); err != nil {
		return fmt.Errorf("%w: %s version %d: %w", errBadRequest, r.api.name, r.version, err)
	}
	return nil
}
