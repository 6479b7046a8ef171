package countsync

// deque is a list that grows at both ends and shrinks at the front, in blocks. Unlike a slice, it
// never moves its elements to make room: moving a million elements would keep the lock of the stream
// for tens of milliseconds. The zero deque is empty.
type deque[T any] struct {
	blocks [][]T
	head   int   // index of the first element in the first block
	n      int   // number of elements
	spare  [][]T // emptied blocks to be used again, at most maxSpares
}

const (
	blockLen  = 1024
	maxSpares = 64
)

func (d *deque[T]) len() int { return d.n }

// element returns the element with index i. The pointer is valid until the element is popped.
func (d *deque[T]) element(i int) *T {
	i += d.head
	return &d.blocks[i/blockLen][i%blockLen]
}

func (d *deque[T]) block() []T {
	if n := len(d.spare); n > 0 {
		b := d.spare[n-1]
		d.spare = d.spare[:n-1]
		return b
	}
	return make([]T, blockLen)
}

func (d *deque[T]) push(x T) *T {
	if d.head+d.n == len(d.blocks)*blockLen {
		d.blocks = append(d.blocks, d.block())
	}
	d.n++
	at := d.element(d.n - 1)
	*at = x
	return at
}

func (d *deque[T]) pushFront(x T) {
	if d.head == 0 {
		d.blocks = append([][]T{d.block()}, d.blocks...)
		d.head = blockLen
	}
	d.head--
	d.n++
	*d.element(0) = x
}

func (d *deque[T]) pop() T {
	x := *d.element(0)
	d.n--
	if d.head++; d.head == blockLen {
		d.head = 0
		if len(d.spare) < maxSpares {
			d.spare = append(d.spare, d.blocks[0])
		}
		d.blocks[0] = nil
		d.blocks = d.blocks[1:]
	}
	return x
}
