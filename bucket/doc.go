// Package bucket is the arithmetic of limits, and the store of counts.
//
// The package belongs to the engine of weir: what it exports may change in any release.
// Import weir instead.
//
// The arithmetic is pure: time is an argument, in int64 nanoseconds since the
// Unix epoch, and nothing reads a clock. It is exact: integers with 128-bit
// products, no floating point, so nothing drifts however long a count lives or
// however often it is asked. Durations that do not fit are [math.MaxInt64].
//
// All algorithms share one rule. An ask of n units is admitted if and only if
//
//	used + n <= capacity
//
// where used is what counts now, in whole units, and capacity is
// [Limit.Capacity]. They differ in what still counts at a given time. From the
// same rule follow Remaining = capacity − used and RetryAfter, the first instant
// at which the rule holds: the ask repeated then is admitted if nothing came in
// between, and one nanosecond earlier it is not.
//
// A clock that steps back never refills: a count is taken as of the latest time
// that it was spent at, and RetryAfter and ResetAfter reach from the caller's
// own, earlier time.
//
// [Store.Lend] lends units for others to spend elsewhere, and counts them so that none
// of this changes: see [Lease].
package bucket
