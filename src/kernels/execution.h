// Where an op of the engine runs, and its scratch memory.
#pragma once

#include <cstddef>

#include "core/view.h"
#include "cuda/stream.h"

namespace fathom {

class ThreadPool;

struct Execution {
  ThreadPool* threads = nullptr;  // a CPU op works on all of them and returns when it is done
  StreamRef stream    = nullptr;  // a GPU op enqueues here and returns at once
  // As much as the ops' *_scratch_bytes() say, aligned to 64 bytes. The ops of one Execution run one after
  // another and share it; its contents do not survive an op.
  View<std::byte, 1> scratch = {};
};

}  // namespace fathom
