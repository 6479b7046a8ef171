// Package echolimit limits requests of echo by rules or by one limit.
//
//	limit, err := echolimit.ByLimiter(perAddress, echolimit.Options{})
//	...
//	e := echo.New()
//	e.Use(limit)
//
// New does so by the rules of a rules.Book. Fields and queues are those of package
// httplimit, which decides. A denial is an *Error for the application's HTTPErrorHandler.
package echolimit
