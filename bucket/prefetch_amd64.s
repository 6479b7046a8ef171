#include "go_asm.h"
#include "textflag.h"

// func prefetchCount(sh *shard, h uint64)
TEXT ·prefetchCount(SB), NOSPLIT, $0-16
	MOVQ sh+0(FP), BX
	MOVQ h+8(FP), AX
	MOVQ (shard_numbers+numbers_at)(BX), CX
	MOVQ shard_changes(BX), SI
	MULQ (shard_slots+8)(BX)
	IMULQ $slot__size, DX
	ADDQ shard_slots(BX), DX
	PREFETCHT0 (DX)
	PREFETCHT0 (slot__size-1)(DX)
	PREFETCHT0 entry__size(CX)
	PREFETCHT0 (entry__size+64)(CX)
	PREFETCHT0 changes_ids(SI)
	RET
