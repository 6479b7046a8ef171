package ring

// Ring says which member owns a hash. It is immutable: a new one is built when
// the membership changes.
type Ring struct {
	members []string
}

// New builds the ring of these members, whatever their order. Names must be
// distinct.
func New(members []string) *Ring { return &Ring{members: members} }

// Members are the ring's members, sorted by name. Not to be modified.
func (r *Ring) Members() []string { return r.members }

// Owner is the index in Members of the one that owns hash, -1 if there is none.
func (r *Ring) Owner(hash uint64) int { return -1 }

// Order appends to dst the indexes of all members in ring order from hash: the
// owner first, then each next distinct member. It stops after max of them.
func (r *Ring) Order(dst []int, hash uint64, max int) []int { return dst }
