// Package echolimit limits requests of echo by rules or by a Limiter.
//
//	limit, err := echolimit.ByLimiter(perAddress, echolimit.Options{})
//	...
//	e := echo.New()
//	e.Use(limit)
//
// New limits by the rules of a rules.Book. Package httplimit decides, and defines fields
// and queues. A denial is an *Error for the application's HTTPErrorHandler.
package echolimit
