// The problem is experiments/ch03_system/diffusion.h; the variants differ in where its threads may run.
#pragma once

#include "experiments/ch03_system/diffusion.h"

namespace fathom::lab::thread_pinning {

Launch<Diffusion> prepare_unpinned(const Diffusion& p, Context& context);
void pinned(const Diffusion& p, Context& context);

}  // namespace fathom::lab::thread_pinning
