// Package fiberlimit limits requests of fiber by rules or by one limit.
//
//	limit, err := fiberlimit.ByLimiter(perAddress, fiberlimit.Options{})
//	...
//	app := fiber.New()
//	app.Use(limit)
//
// New does so by the rules of a rules.Book. Fields and queues are those of package
// httplimit, which decides; no request is converted to one of net/http. A denial is an
// *Error for the application's ErrorHandler.
package fiberlimit
