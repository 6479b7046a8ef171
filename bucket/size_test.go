package bucket

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

func TestHitReadsOneCacheLineOfShard(t *testing.T) {
	if unsafe.Sizeof(uintptr(0)) != 8 {
		t.Skip("the layout is for 64-bit machines")
	}
	require.EqualValues(t, 48, unsafe.Sizeof(slot{}))
	require.EqualValues(t, 128, unsafe.Sizeof(shard{}), "neighbours share a cache line")
	require.EqualValues(t, 64, unsafe.Offsetof(shard{}.logs))
}
