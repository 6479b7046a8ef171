// Package bucket implements the algorithms for rate limits, and a store for the counts.
//
// The package is part of the engine of weir. Its API may change in any release. Import weir
// instead.
//
// The arithmetic is pure: the time is an argument, in int64 nanoseconds since the Unix epoch,
// and no function reads a clock. The arithmetic is exact. All operations use integers with
// 128-bit products and no floating point, so a count does not drift, even after a long time
// or many checks. Durations that do not fit are [math.MaxInt64].
//
// All algorithms of a [Store] share the same rule. An ask of n units is admitted if and only if
//
//	used + n <= capacity
//
// where used is the number of units that count at the time of the ask, and capacity is
// [Limit.Usable]: the Capacity, less the Keep of the ask. A fraction of a unit counts as a
// whole unit in a bucket, and does not count in a SlidingWindow. The algorithms differ in the
// units that still count at a given time. The same rule determines Remaining and RetryAfter.
// Remaining is capacity − used, or zero if used is larger. RetryAfter reaches to the first
// instant at which the rule holds: if no other call is made in between, the same ask is
// admitted at that instant, and denied one nanosecond earlier. If n is above the capacity or
// the Rate is zero, RetryAfter is Per.
//
// A count is never refilled because a clock steps back. If the time of the caller is before
// the time of the count, such as the start of its window, no time has passed for the count.
// RetryAfter and ResetAfter are relative to the time of the caller.
//
// [Store.Lend] lends units that other nodes spend. Lent units are counted so that the rule
// still holds: see [Lease].
package bucket
