package objstore

import (
	"context"
	"errors"
	"fmt"
)

func openS3(_ context.Context, c Config, _ Options) (Store, error) {
	return nil, fmt.Errorf("open s3 store %s: %w", c.Bucket, errors.ErrUnsupported)
}
