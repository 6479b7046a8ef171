#include "go_asm.h"
#include "textflag.h"

// func prefetchCount(sh *shard, h uint64)
TEXT ·prefetchCount(SB), NOSPLIT, $0-16
	MOVQ sh+0(FP), BX
	MOVQ h+8(FP), AX
	MOVQ (shard_numbers+numbers_at)(BX), CX
	MOVQ shard_changes(BX), SI
	MULQ (shard_slots+8)(BX)
	MOVQ DX, DI
	IMULQ $slot__size, DX
	ADDQ shard_slots(BX), DX
	PREFETCHT0 (DX)
	PREFETCHT0 64(DX)
	PREFETCHT0 128(DX)
	PREFETCHT0 (4*slot__size-1)(DX)
	PREFETCHT0 entry__size(CX)
	PREFETCHT0 (entry__size+64)(CX)
	TESTQ SI, SI
	JZ done
	PREFETCHT0 changes_ids(SI)
	MOVQ (changes_totals+totals_spent)(SI), SI
	PREFETCHT0 (SI)(DI*4)
done:
	RET
