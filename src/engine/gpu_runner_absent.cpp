// Replaces gpu_runner.cpp in builds without CUDA.
#include "core/expect.h"
#include "engine/model_runner.h"

namespace fathom::engine {

Status gpu_can_run(const model::Checkpoint&, const EngineConfig&) {
  return Error{"this program was built without CUDA: build it with `cmake --preset cuda`, or run on the CPU"};
}

std::unique_ptr<ModelRunner> make_gpu_runner(const model::Checkpoint&, const EngineConfig&,
                                             const std::array<int64_t, kKvKinds>&) {
  FATHOM_EXPECT(false, "gpu_can_run() says no");
  return nullptr;
}

int64_t gpu_kv_bytes(const model::Config&, const EngineConfig&) { return 0; }
int64_t gpu_page_bytes(const model::Config&, const EngineConfig&, model::Attention) { return 1; }

}  // namespace fathom::engine
