// Package drawn has rapid draw the same examples in each run, so that a test fails because of
// a change and not by chance. The tests of a package that draws examples import it.
//
// WEIR_SEED=7 draws those of another seed, and WEIR_SEED=0 others in each run, which is how the
// search workflow looks for what no example has shown yet. -rapid.seed comes before both.
package drawn

import (
	"flag"
	"fmt"
	"os"

	_ "pgregory.net/rapid" // has the flag
)

// Variable is the environment variable that names the seed.
const Variable = "WEIR_SEED"

func init() {
	seed, named := os.LookupEnv(Variable)
	if !named {
		seed = "1"
	}
	if err := flag.Set("rapid.seed", seed); err != nil {
		panic(fmt.Sprintf("%s=%q: %v", Variable, seed, err))
	}
}
