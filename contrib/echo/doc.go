// Package echolimit limits requests of echo by rules or by one limit.
//
//	limit, err := echolimit.ByLimiter(perAddress, echolimit.Options{})
//	...
//	e := echo.New()
//	e.Use(limit)
//
// New does the same by the rules of a rules.Book. Package httplimit decides, and defines
// fields and queues. A denial is an *Error for the application's HTTPErrorHandler.
package echolimit
