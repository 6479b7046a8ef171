package testenv

import (
	"flag"
	"fmt"
	"os"

	_ "pgregory.net/rapid" // defines the flag rapid.seed
)

// SeedVariable is the environment variable that contains the seed.
const SeedVariable = "WEIR_SEED"

func init() {
	seed, named := os.LookupEnv(SeedVariable)
	if !named {
		seed = "1"
	}
	if err := flag.Set("rapid.seed", seed); err != nil {
		panic(fmt.Sprintf("%s=%q: %v", SeedVariable, seed, err))
	}
}
