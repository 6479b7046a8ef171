package fiberlimit

import (
	"github.com/gofiber/fiber/v3"

	"github.com/weir-go/weir/httplimit"
)

// Error is a denial for the ErrorHandler. errors.As finds a *fiber.Error with the status in
// an Error. The default ErrorHandler of fiber responds with this status and the Detail of the
// Problem.
type Error struct {
	Problem httplimit.Problem
	err     error
}

func (e *Error) Error() string { return e.Problem.Detail }

// Unwrap returns Outcome.Err: the reason for which the request could not be decided, or nil.
func (e *Error) Unwrap() error { return e.err }

// As sets target to a *fiber.Error.
func (e *Error) As(target any) bool {
	as, ok := target.(**fiber.Error)
	if ok {
		*as = fiber.NewError(e.Problem.Status, e.Problem.Detail)
	}
	return ok
}

// Write is a function for Options.Denied. It responds with the body that docs/http.md
// describes, in the form that the client accepts. It does not call the ErrorHandler.
func Write(c fiber.Ctx, o *httplimit.Outcome) error {
	var accept []string
	for _, line := range c.Request().Header.PeekAll(fiber.HeaderAccept) {
		accept = append(accept, string(line))
	}
	contentType, body := o.Body(accept)
	c.Set(fiber.HeaderContentType, contentType)
	return c.Status(o.Status).Send(body)
}
