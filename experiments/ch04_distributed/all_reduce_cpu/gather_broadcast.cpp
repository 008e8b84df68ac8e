// out(i) = sum over ranks of in(i)                          n fp32 on each of R ranks
//
// bytes   rank 0 reads 4 R n and writes 8 n; the others write 8 n and read 8 n, before and after
// flops   (R - 1) n, on rank 0
// limit   memory bandwidth of one rank; below some 10,000 numbers two waits
// idea    baseline: everybody sends to rank 0, which adds and sends the sum to everybody
#include "all_reduce.h"

namespace fathom::lab::all_reduce {

void gather_broadcast(const AllReduce& p, Context& context) {
  const Rank& me    = *context.rank;
  const int64_t n   = p.in.size();
  const Outbox mine = outbox(me, me.rank());
  if (me.rank() != 0) {
    *mine.nonce = me.nonce();
    copy(p.in.data(), mine.values, n);
  }
  me.barrier();  // all messages lie in the outboxes
  if (me.rank() == 0) {
    uint64_t nonces = me.nonce();
    copy(p.in.data(), p.out.data(), n);
    for (int rank = 1; rank < me.size(); ++rank) {
      nonces += *outbox(me, rank).nonce;
      add(outbox(me, rank).values, p.out.data(), n);
    }
    *mine.nonce = nonces;
    copy(p.out.data(), mine.values, n);
  }
  me.barrier();  // the sum lies in rank 0's outbox
  p.nonces(0) = *outbox(me, 0).nonce;
  if (me.rank() != 0) copy(outbox(me, 0).values, p.out.data(), n);
}

}  // namespace fathom::lab::all_reduce
