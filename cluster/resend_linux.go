package cluster

import "syscall"

// Socket options of tcp(7). Linux has the last two since 6.15.
const (
	tcpThinLinearTimeouts = 16
	tcpRTOMinUS           = 45
	tcpDelackMaxUS        = 46

	// Kernels that tick 250 times a second accept no less than 8 ms.
	resendAfterUS      = 10_000
	acknowledgeAfterUS = 8_000
)

// resendSoon makes TCP resend a lost segment 10 ms after its round trip, instead of 200 ms, and again
// at the same pace while few segments are under way. The other side acknowledges within 8 ms, so that
// TCP does not resend segments that have arrived. Kernels that do not support these options ignore
// them.
func resendSoon(_, _ string, c syscall.RawConn) error {
	return c.Control(func(fd uintptr) {
		for _, option := range [][2]int{
			{tcpThinLinearTimeouts, 1}, {tcpRTOMinUS, resendAfterUS}, {tcpDelackMaxUS, acknowledgeAfterUS},
		} {
			_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, option[0], option[1])
		}
	})
}
