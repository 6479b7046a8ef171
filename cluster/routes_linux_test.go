package cluster

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCheapestDefaultRoutesAreFound(t *testing.T) {
	const head = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
	four := func(nic, to, flags, metric, mask string) string {
		return nic + "\t" + to + "\t0102010A\t" + flags + "\t0\t0\t" + metric + "\t" + mask + "\t0\t0\t0\n"
	}
	zero, local := "00000000000000000000000000000000", "26000001000000000000000000000000"
	six := func(nic, to, length, metric, flags string) string {
		return to + " " + length + " " + zero + " 00 " + local + " " + metric + " 00000001 00000000 " + flags + "     " + nic + "\n"
	}
	for _, c := range []struct {
		about string
		found []string
		want  []string
	}{
		{"none", equalDefaultsOf4([]byte(head)), nil},
		{"not a table", equalDefaultsOf4([]byte("\n\x00 a b\n")), nil},
		{"one", equalDefaultsOf4([]byte(head + four("eth0", "00000000", "0003", "0", "00000000") + four("eth0", "0002010A", "0001", "0", "00FFFFFF"))), []string{"eth0"}},
		{"two, one of them cheaper", equalDefaultsOf4([]byte(head + four("eth0", "00000000", "0003", "200", "00000000") + four("eth1", "00000000", "0003", "100", "00000000"))), []string{"eth1"}},
		{"two of one cost", equalDefaultsOf4([]byte(head + four("eth0", "00000000", "0003", "100", "00000000") + four("eth1", "00000000", "0003", "100", "00000000"))), []string{"eth0", "eth1"}},
		{"two of one interface", equalDefaultsOf4([]byte(head + four("eth0", "00000000", "0003", "0", "00000000") + four("eth0", "00000000", "0003", "0", "00000000"))), []string{"eth0"}},
		{"half of the world", equalDefaultsOf4([]byte(head + four("tun0", "00000000", "0003", "0", "00000080"))), nil},
		{"one that refuses", equalDefaultsOf4([]byte(head + four("*", "00000000", "0201", "0", "00000000"))), nil},
		{"IPv6: the one that refuses all", equalDefaultsOf6([]byte(six("lo", zero, "00", "ffffffff", "00200200"))), nil},
		{"IPv6: one", equalDefaultsOf6([]byte(six("eth0", zero, "00", "00000400", "00000003") + six("eth0", local, "40", "00000100", "00000001"))), []string{"eth0"}},
		{"IPv6: two of one cost", equalDefaultsOf6([]byte(six("eth0", zero, "00", "00000400", "00000003") + six("eth1", zero, "00", "00000400", "00000003"))), []string{"eth0", "eth1"}},
		{"IPv6: two, one of them cheaper", equalDefaultsOf6([]byte(six("eth0", zero, "00", "00000400", "00000003") + six("eth1", zero, "00", "00000100", "00000003"))), []string{"eth1"}},
		{"IPv6: two, a router of high preference", equalDefaultsOf6([]byte(six("eth0", zero, "00", "00000400", "00450003") + six("eth1", zero, "00", "00000400", "08450003"))), []string{"eth1"}},
		{"IPv6: two, a router of low preference", equalDefaultsOf6([]byte(six("eth0", zero, "00", "00000400", "18450003") + six("eth1", zero, "00", "00000400", "00450003"))), []string{"eth1"}},
	} {
		require.Equal(t, c.want, c.found, c.about)
	}
}
