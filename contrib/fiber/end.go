package fiberlimit

import (
	"context"
	"errors"
	"net/http"

	"github.com/gofiber/fiber/v3"

	"github.com/weir-go/weir/httplimit"
)

// end has the handlers that follow answer a request, which ends when they return. The
// ErrorHandler answers an error later, with the status that the error has.
func end(c fiber.Ctx, a *httplimit.Admission) error {
	response := answer(make(http.Header))
	w := a.Wrap(response, requestOf(c))
	e := httplimit.Ended{Status: http.StatusInternalServerError, Aborted: true} // a panic
	defer func() { a.End(e) }()
	err := c.Next()
	e = httplimit.Ended{Status: c.Response().StatusCode()}
	if err != nil {
		e.Status = statusOf(err)
		return err
	}
	for name, value := range c.Response().Header.All() {
		response.Header().Add(string(name), string(value))
	}
	w.WriteHeader(e.Status)
	if !c.Response().IsBodyStream() { // which is sent later
		_, err = w.Write(c.Response().Body())
	}
	return err
}

// ctxKey is the key of fiber's context in that of a request of net/http, which takes its place
// among what Options of httplimit are called with.
type ctxKey struct{}

func requestOf(c fiber.Ctx) *http.Request {
	return new(http.Request).WithContext(context.WithValue(context.Background(), ctxKey{}, c))
}

func ctxOf(r *http.Request) fiber.Ctx { return r.Context().Value(ctxKey{}).(fiber.Ctx) }

// statusOf is that of fiber's ErrorHandler.
func statusOf(err error) int {
	var of *fiber.Error
	if errors.As(err, &of) {
		return of.Code
	}
	return http.StatusInternalServerError
}

// answer has the response that fiber's handlers have written, for an Admission to read.
type answer http.Header

func (a answer) Header() http.Header         { return http.Header(a) }
func (a answer) Write(p []byte) (int, error) { return len(p), nil }
func (a answer) WriteHeader(int)             {}
