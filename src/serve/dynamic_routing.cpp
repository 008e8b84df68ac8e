#include "serve/dynamic_routing.h"

namespace fathom::serve {

void DynamicRouting::update(bool& busy, double utilization) const {
  if (utilization > options_.max_utilization) busy = true;
  if (utilization < options_.min_utilization) busy = false;
}

DynamicRouting::Decision DynamicRouting::decide(int64_t uncached_tokens, const Pools& pools) {
  using enum Decision;
  update(prefill_busy_, pools.prefill);
  update(decode_busy_, pools.decode);
  const bool too_long = uncached_tokens > options_.max_local_prefill_length;
  if (!too_long && (!decode_busy_ || uncached_tokens < options_.min_remote_prefill_length))
    return local_short;
  if (pools.prefill_workers == 0) return local_no_prefill;
  if (prefill_busy_) return local_prefill_busy;
  return too_long ? remote_long : remote_decode_busy;
}

}  // namespace fathom::serve
