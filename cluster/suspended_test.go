package cluster

import (
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/cluster/detect"
)

// slept is a connection of a process that is suspended in one of its reads. This read ends by its
// deadline, and the next read returns the bytes that arrived meanwhile.
type slept struct {
	net.Conn
	deadline time.Time
	still    atomic.Int64 // how long the next read is suspended after its deadline
}

func (s *slept) SetReadDeadline(at time.Time) error {
	s.deadline = at
	return s.Conn.SetReadDeadline(at)
}

func (s *slept) Read(b []byte) (int, error) {
	if d := s.still.Swap(0); d > 0 {
		time.Sleep(time.Until(s.deadline) + time.Duration(d))
		return 0, os.ErrDeadlineExceeded
	}
	return s.Conn.Read(b)
}

func TestConnectionSurvivesSuspension(t *testing.T) {
	for name, secret := range map[string]string{"plain": "", "under TLS": "0123456789abcdef"} {
		t.Run(name, func(t *testing.T) {
			inMemory(t, func(t *testing.T, lo *loopback) {
				p := lo.peer(t, "b", nil)
				here, there := net.Pipe()
				conn := &slept{Conn: here}
				member, accepted := net.Conn(there), net.Conn(conn)
				if secret != "" {
					member, accepted = tlsPair(t, there, conn, secret)
				}
				c := newIncoming(p.peers, accepted, hello{Name: "a", Region: "r", To: "r"})
				defer c.out.close()
				done := make(chan error, 1)
				ping := func() {
					_, err := member.Write(appendFrame(nil, kindPing, 1, []byte{4: flagWatches}))
					require.NoError(t, err)
				}
				conn.still.Store(int64(2 * time.Second))
				go func() { done <- c.read() }()
				ping() // the ping stays unread while the process is suspended
				require.Equal(t, kindPong, readFrame(t, member).kind)
				require.Empty(t, done)

				// The member is silent, and has as much time as before.
				begun := time.Now()
				require.ErrorIs(t, <-done, os.ErrDeadlineExceeded)
				require.Equal(t, idleWait, time.Since(begun))
				there.Close()
			})
			inMemory(t, func(t *testing.T, lo *loopback) {
				p := lo.peer(t, "b", nil)
				here, there := net.Pipe()
				defer there.Close()
				conn := &slept{Conn: here}
				conn.still.Store(int64(2 * time.Second))
				begun := time.Now()
				require.ErrorIs(t, newIncoming(p.peers, conn, hello{Name: "a", Region: "r", To: "r"}).read(), os.ErrDeadlineExceeded)
				require.Equal(t, idleWait+2*time.Second+idleWait/secondLook, time.Since(begun), "nothing has come meanwhile")
			})
		})
	}
}

func TestSuspensionDoesNotCountAsSilenceOfNode(t *testing.T) {
	begun := time.Now()
	at := func(s float64) time.Time { return begun.Add(time.Duration(s * float64(time.Second))) }
	var quiet detect.Silence
	require.False(t, hasGone(&quiet, 0, at(1), at(1)))
	require.False(t, hasGone(&quiet, 9*time.Second, at(2), at(10)), "the process was suspended for 8 s")
	require.False(t, hasGone(&quiet, 10*time.Second, at(11), at(11)), "two seconds count")
	require.True(t, hasGone(&quiet, 12*time.Second, at(13), at(13)))
	require.False(t, hasGone(&quiet, time.Second, at(14), at(14)), "it has answered")
}
