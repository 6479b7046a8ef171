#include "go_asm.h"
#include "textflag.h"

// func prefetchCount(sh *shard, h uint64)
TEXT ·prefetchCount(SB), NOSPLIT, $0-16
	MOVD sh+0(FP), R0
	MOVD h+8(FP), R1
	MOVD shard_slots(R0), R2
	MOVD (shard_slots+8)(R0), R3
	MOVD (shard_numbers+numbers_at)(R0), R4
	MOVD shard_changes(R0), R5
	UMULH R1, R3, R3
	MOVD $slot__size, R6
	MADD R3, R2, R6, R2
	PRFM (R2), PLDL1KEEP
	PRFM 64(R2), PLDL1KEEP
	PRFM 128(R2), PLDL1KEEP
	ADD $(4*slot__size-1), R2
	PRFM (R2), PLDL1KEEP
	ADD $entry__size, R4
	PRFM (R4), PLDL1KEEP
	PRFM 64(R4), PLDL1KEEP
	CBZ R5, done
	PRFM changes_ids(R5), PLDL1KEEP
	MOVD (changes_totals+totals_spent)(R5), R5
	ADD R3<<2, R5, R5
	PRFM (R5), PLDL1KEEP
done:
	RET
