package cluster

import "syscall"

// What Linux's tcp(7) calls these socket options. The last two are there from Linux
// 6.15 on.
const (
	tcpThinLinearTimeouts = 16
	tcpRTOMinUS           = 45
	tcpDelackMaxUS        = 46

	// Kernels that tick 250 times a second take no less than 8 ms.
	resendAfterUS      = 10_000
	acknowledgeAfterUS = 8_000
)

// resendSoon has TCP send a lost segment again 10 ms after its round trip, not 200,
// and again and again at that pace while little is under way. The other side says
// within 8 ms what it has, so that nothing is resent in vain. Where the kernel knows
// none of this, connections are as they were.
func resendSoon(_, _ string, c syscall.RawConn) error {
	return c.Control(func(fd uintptr) {
		for _, option := range [][2]int{
			{tcpThinLinearTimeouts, 1}, {tcpRTOMinUS, resendAfterUS}, {tcpDelackMaxUS, acknowledgeAfterUS},
		} {
			_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, option[0], option[1])
		}
	})
}
