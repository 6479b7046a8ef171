package main

import (
	"testing"

	"google.golang.org/grpc/credentials/insecure"
)

func TestSwitchCommandSetsListsAndRemoves(t *testing.T) {
	t.Parallel()
	p := begin(t, insecure.NewCredentials(), folder(t))
	p.expect(t, []call{
		{"the switch is in force until ", ok, []string{"switch", "api", "off", "-for", "1h", "-by", "jo", "-reason", "an incident"}},
		{`api +off +until \S+ +jo +\S+ +an incident`, ok, []string{"switch"}},
		{"allowed: 60 of 60 left, by none, the rule is off: nothing is counted", ok, []string{"check", "api/hourly", "ada"}},
		{`api/hourly \(off\)`, ok, []string{"status"}},
		{"the switch is in force without an end", ok, []string{"switch", "api", "10%"}},
		{`api/hourly \(10%\)`, ok, []string{"status"}},
		{"no switch", ok, []string{"switch", "api", "-remove"}},
		{"allowed: 59 of 60 left", ok, []string{"check", "api/hourly", "ada"}},
		{"the mode of api is missing", usage, []string{"switch", "api"}},
		{"-remove is set without a rule", usage, []string{"switch", "-remove"}},
		{"-remove is set with a mode", usage, []string{"switch", "api", "off", "-remove"}},
		{"-for, -by or -reason is set without a rule", usage, []string{"switch", "-for", "1h"}},
		{"-for is -1h", usage, []string{"switch", "api", "off", "-for=-1h"}},
		{`there is no rule "ap": did you mean "api"\?`, bad, []string{"switch", "ap", "off"}},
		{`mode is "on"`, bad, []string{"switch", "api", "on"}},
	})
}
