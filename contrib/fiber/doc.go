// Package fiberlimit limits requests of fiber by rules or by a Limiter.
//
//	limit, err := fiberlimit.ByLimiter(perAddress, fiberlimit.Options{})
//	...
//	app := fiber.New()
//	app.Use(limit)
//
// New limits by the rules of a rules.Book. Package httplimit decides, and defines fields
// and queues; requests are not converted to net/http requests. A denial is an *Error for
// the application's ErrorHandler.
package fiberlimit
