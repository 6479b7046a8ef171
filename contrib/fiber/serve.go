package fiberlimit

import (
	"errors"
	"net/http"

	"github.com/gofiber/fiber/v3"

	"github.com/weir-go/weir/httplimit"
)

// serve calls the next handlers. The request ends when they return. The ErrorHandler
// responds to an error later, with the status of the error.
func serve(c fiber.Ctx, a *httplimit.Admission) error {
	response := answer(make(http.Header))
	w := a.Wrap(response, new(http.Request))
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
	if !c.Response().IsBodyStream() { // a stream is sent later
		_, err = w.Write(c.Response().Body())
	}
	return err
}

// statusOf returns the status with which fiber's ErrorHandler responds.
func statusOf(err error) int {
	if of, ok := errors.AsType[*fiber.Error](err); ok {
		return of.Code
	}
	return http.StatusInternalServerError
}

// answer gives an Admission access to the response of fiber's handlers.
type answer http.Header

func (a answer) Header() http.Header         { return http.Header(a) }
func (a answer) Write(p []byte) (int, error) { return len(p), nil }
func (a answer) WriteHeader(int)             {}
