package s3snapshot_test

import (
	s3snapshot "github.com/weir-go/weir/contrib/s3"
	"github.com/weir-go/weir/snapshot"
)

var _ snapshot.Store = (*s3snapshot.Bucket)(nil)
