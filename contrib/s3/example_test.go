package s3snapshot_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"strings"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/minio/minio-go/v7/pkg/credentials"

	s3snapshot "github.com/weir-go/weir/contrib/s3"
)

// A node calls Save and Load. This example shows how the node uses the Bucket.
func Example() {
	backend := s3mem.New()
	if err := backend.CreateBucket("backups"); err != nil {
		log.Fatal(err)
	}
	server := httptest.NewServer(gofakes3.New(backend).Server())
	defer server.Close()

	options, err := s3snapshot.ParseURL("s3://backups/weir/production?region=us-east-1&endpoint=" + server.URL)
	if err != nil {
		log.Fatal(err)
	}
	options.Credentials = credentials.NewStaticV4("key", "secret", "") // or from the environment
	bucket, err := s3snapshot.New(options)
	if err != nil {
		log.Fatal(err)
	}
	defer bucket.Close()

	ctx := context.Background()
	err = bucket.Save(ctx, "api-1", func(w io.Writer) error {
		_, err := io.Copy(w, strings.NewReader("counts"))
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	err = bucket.Load(ctx, func(string) bool { return true }, func(node string, r io.Reader) error {
		counts, err := io.ReadAll(r)
		fmt.Printf("%s: %s\n", node, counts)
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: api-1: counts
}
