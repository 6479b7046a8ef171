package s3snapshot

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/minio/minio-go/v7"
)

// upload is the writer of a snapshot, and holds one part in memory. A snapshot that fits into
// one part is sent with a single request. A larger snapshot is a multipart upload, which begins
// when the data exceeds the first part.
type upload struct {
	*Bucket
	ctx   context.Context
	key   string
	token string // random; distinguishes this object from the objects of other uploads with the same key
	part  []byte // data that is not sent yet, with the capacity of a part
	id    string // id of the multipart upload; empty before the first part is sent
	parts []minio.CompletePart
	left  int64 // bytes that remain of Options.MaxBytes
	err   error // the first error, which all later Writes return
}

// upload creates an object from the data that the function write writes. A failed upload is
// aborted within cleanupTimeout, and before the deadline of the context whole.
func (b *Bucket) upload(ctx, whole context.Context, key string, write func(w io.Writer) error) error {
	u := &upload{Bucket: b, ctx: ctx, key: key, token: rand.Text(), part: make([]byte, 0, b.partBytes), left: b.maxBytes}
	complete := false
	defer func() {
		if !complete { // also if write panics
			u.abort(whole)
		}
	}()
	if err := write(u); err != nil {
		return err
	}
	if u.err != nil { // write may have dropped the error
		return u.err
	}
	err := u.complete()
	complete = err == nil
	return err
}

// Write adds p to the part. When the part is full and more data follows, Write sends the part.
func (u *upload) Write(p []byte) (n int, err error) {
	if int64(len(p)) > u.left && u.err == nil {
		u.err = fmt.Errorf("the snapshot has more than %d bytes: raise Options.MaxBytes", u.maxBytes)
	}
	for u.err == nil && len(p) > 0 {
		if len(u.part) == cap(u.part) {
			if u.err = u.send(); u.err != nil {
				break
			}
		}
		taken := copy(u.part[len(u.part):cap(u.part)], p)
		u.part = u.part[:len(u.part)+taken]
		p, n, u.left = p[taken:], n+taken, u.left-int64(taken)
	}
	return n, u.err
}

// send sends the part, and begins the multipart upload before the first part.
func (u *upload) send() error {
	if u.id == "" {
		err := u.request(u.ctx, func(ctx context.Context, _ *time.Timer) (err error) {
			u.id, err = u.client.NewMultipartUpload(ctx, u.bucket, u.key, minio.PutObjectOptions{UserMetadata: u.metadata()})
			return err
		})
		if err != nil {
			return err
		}
	}
	err := u.put(func(ctx context.Context, body io.Reader) error {
		number := len(u.parts) + 1
		part, err := u.client.PutObjectPart(ctx, u.bucket, u.key, u.id, number, body, int64(len(u.part)),
			minio.PutObjectPartOptions{Sha256Hex: u.sum(), DisableContentSha256: true})
		if err == nil {
			u.parts = append(u.parts, minio.CompletePart{PartNumber: number, ETag: part.ETag})
		}
		return err
	})
	u.part = u.part[:0]
	return err
}

// put sends the part, and retries after a transient error. The library would rewind and
// resend the same reader, while the connection of the first attempt may still read from
// that reader. So the library gets a reader that cannot be rewound, and each attempt has
// its own copy of the bytes.
func (u *upload) put(do func(ctx context.Context, body io.Reader) error) error {
	for attempt := 1; ; attempt++ {
		err := u.request(u.ctx, func(ctx context.Context, _ *time.Timer) error {
			return do(ctx, struct{ io.Reader }{bytes.NewReader(u.part)})
		})
		if err == nil || attempt == attempts || !isTransient(err) {
			return err
		}
		u.part = append(make([]byte, 0, cap(u.part)), u.part...)
		select {
		case <-time.After(time.Duration(attempt) * pauseBetween):
		case <-u.ctx.Done():
			return err
		}
	}
}

// isTransient reports whether another attempt may succeed.
func isTransient(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return false
	}
	switch status := minio.ToErrorResponse(err).StatusCode; status {
	case 0, http.StatusRequestTimeout, http.StatusTooManyRequests:
		return true
	default:
		return status >= 500 && status != http.StatusNotImplemented
	}
}

// sum returns the SHA-256 of the part, which is signed with the request. The sum replaces
// the checksums of the library, which some servers do not know. A server that receives
// different bytes refuses them.
func (u *upload) sum() string {
	sum := sha256.Sum256(u.part)
	return hex.EncodeToString(sum[:])
}

// complete sends the rest of the data and makes the object visible. It returns an error
// if another process has already saved an object with the same key, unless the server has
// no conditional requests.
func (u *upload) complete() error {
	if u.id != "" {
		if err := u.send(); err != nil {
			return err
		}
	}
	var options minio.PutObjectOptions
	options.SetMatchETagExcept("*")
	err := u.publish(options)
	if minio.ToErrorResponse(err).StatusCode == http.StatusNotImplemented { // the server has no conditional requests
		err = u.publish(minio.PutObjectOptions{})
	}
	response := minio.ToErrorResponse(err)
	exists := response.StatusCode == http.StatusPreconditionFailed || response.StatusCode == http.StatusConflict
	switch {
	case !exists && response.Code != minio.NoSuchUpload:
		return err
	case u.isSaved(): // an earlier attempt succeeded, but its response was lost
		return nil
	case exists:
		return fmt.Errorf("another process has saved this object: give each cluster a Prefix of its own: %w", err)
	}
	return err
}

// tokenField is the name of the token in the metadata of an object.
const tokenField = "Weir-Upload"

func (u *upload) metadata() map[string]string { return map[string]string{tokenField: u.token} }

// isSaved reports whether the object of this upload exists.
func (u *upload) isSaved() bool {
	var info minio.ObjectInfo
	err := u.request(u.ctx, func(ctx context.Context, _ *time.Timer) (err error) {
		info, err = u.client.StatObject(ctx, u.bucket, u.key, minio.StatObjectOptions{})
		return err
	})
	return err == nil && info.UserMetadata[tokenField] == u.token
}

// publish makes the object visible.
func (u *upload) publish(options minio.PutObjectOptions) error {
	if u.id == "" {
		options.DisableContentSha256, options.UserMetadata = true, u.metadata()
		return u.put(func(ctx context.Context, body io.Reader) error {
			_, err := u.client.PutObject(ctx, u.bucket, u.key, body, int64(len(u.part)), "", u.sum(), options)
			return err
		})
	}
	return u.request(u.ctx, func(ctx context.Context, _ *time.Timer) error {
		_, err := u.client.CompleteMultipartUpload(ctx, u.bucket, u.key, u.id, u.parts, options)
		return err
	})
}

// abort makes the server discard the parts. If that fails, the next Save of the node
// retries.
func (u *upload) abort(whole context.Context) {
	if u.id == "" {
		return
	}
	until := time.Now().Add(cleanupTimeout)
	if deadline, has := whole.Deadline(); has && deadline.Before(until) {
		until = deadline
	}
	ctx, cancel := context.WithDeadline(context.WithoutCancel(whole), until)
	defer cancel()
	_ = u.client.AbortMultipartUpload(ctx, u.bucket, u.key, u.id)
}
