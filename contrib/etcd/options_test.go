package etcdrules_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weir-go/weir"
	etcdrules "github.com/weir-go/weir/contrib/etcd"
)

func TestEachInvalidFieldIsReported(t *testing.T) {
	_, err := etcdrules.New(etcdrules.Options{Poll: -1})
	require.ErrorIs(t, err, weir.ErrInvalid)
	for _, part := range []string{"Client.Endpoints is empty", "Key is empty", "Poll is -1ns"} {
		require.ErrorContains(t, err, part)
	}
}

func TestNameOfSourceHasNoCredentials(t *testing.T) {
	source, err := etcdrules.New(etcdrules.Options{
		Client: clientv3.Config{
			Endpoints: []string{"https://root:sup3r-secret@a:2379", "b:2379"}, Username: "root", Password: "sup3r-secret",
		},
		Key: "/weir/production",
	})
	require.NoError(t, err)
	require.Equal(t, "etcd://a:2379,b:2379/weir/production", source.Name())
	require.NoError(t, source.Close())
}
