// a serving step's allocations: replay.h
//
// idea    the floor, for whoever knows all requests beforehand: the arena's places are worked out once
//         without a GPU, and a call adds offsets to one address
#include "cuda/check.h"
#include "experiments/ch13_training/caching_allocator/growing_arena.h"
#include "replay.h"

namespace fathom::lab::caching_allocator {
namespace {

struct Free {
  void operator()(char* memory) const { (void)cudaFree(memory); }
};

class Plan {
 public:
  explicit Plan(const Trace& trace) {
    char* const nowhere = reinterpret_cast<char*>(GrowingArena::kAlignment);
    GrowingArena arena({.base        = nowhere,
                        .capacity    = int64_t{1} << 46,
                        .granularity = GrowingArena::kAlignment,
                        .map         = [](int64_t, int64_t) { return true; }});
    std::vector<void*> where(trace.bytes.size());
    for (const Trace::Event& event : trace.events) {
      void*& memory = where[static_cast<size_t>(event.allocation)];
      if (event.frees) {
        arena.free(memory);
      } else {
        memory = arena.allocate(trace.bytes[static_cast<size_t>(event.allocation)]);
        offsets_.push_back(static_cast<char*>(memory) - nowhere);
      }
    }
    bytes_ = arena.reserved();
    if (bytes_ == 0) return;
    void* memory = nullptr;
    FATHOM_CUDA(cudaMalloc(&memory, static_cast<size_t>(bytes_)));
    memory_.reset(static_cast<char*>(memory));
  }

  void begin() { next_ = 0; }
  void* allocate(int64_t) { return memory_.get() + offsets_[next_++]; }
  void free(void*) {}
  int64_t reserved() const { return bytes_; }

 private:
  std::vector<int64_t> offsets_;  // of each allocation
  int64_t bytes_ = 0;
  std::unique_ptr<char, Free> memory_;
  size_t next_ = 0;
};

}  // namespace

Call planned(const Replay& of, StreamRef) {
  return [plan  = std::make_shared<Plan>(*of.trace),
          where = std::make_shared<std::vector<void*>>(of.trace->bytes.size())](const Replay& p,
                                                                                StreamRef stream) {
    plan->begin();
    replay(p, *plan, *where, stream);
  };
}

}  // namespace fathom::lab::caching_allocator
