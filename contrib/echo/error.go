package echolimit

import (
	"encoding/json"

	"github.com/labstack/echo/v5"

	"github.com/weir-go/weir/httplimit"
)

// Error is a denial for the HTTPErrorHandler. The HTTPErrorHandlers of package echo respond
// with the status, and with the Problem as JSON.
type Error struct {
	Problem httplimit.Problem
	err     error
}

func (e *Error) Error() string { return e.Problem.Detail }

// Unwrap returns Outcome.Err: the reason for which the request could not be decided, or nil.
func (e *Error) Unwrap() error { return e.err }

// StatusCode implements echo.HTTPStatusCoder.
func (e *Error) StatusCode() int { return e.Problem.Status }

// MarshalJSON returns the Problem, for echo.DefaultHTTPErrorHandler.
func (e *Error) MarshalJSON() ([]byte, error) { return json.Marshal(&e.Problem) }

// ProblemError implements echo.ProblemErrorer, for echo.ProblemDetailsHTTPErrorHandler.
func (e *Error) ProblemError() *echo.ProblemError {
	return &echo.ProblemError{Type: e.Problem.Type, Title: e.Problem.Title, Status: e.Problem.Status, Detail: e.Problem.Detail}
}

// Write is a function for Options.Denied. It writes the body of docs/http.md in the form
// that the client accepts, without the HTTPErrorHandler.
func Write(c *echo.Context, o *httplimit.Outcome) error {
	contentType, body := o.Body(c.Request().Header["Accept"])
	return c.Blob(o.Status, contentType, body)
}
