// The passes of a stage by cuBLAS, and messages by a copy engine on a second stream: a pass does not wait for
// a message that it sends, and waits for one that it needs in the stream (cuda/stream_signal.h).
#include <cuda_runtime.h>

#include <memory>
#include <utility>
#include <vector>

#include "core/expect.h"
#include "cuda/check.h"
#include "cuda/cublas.h"
#include "cuda/event.h"
#include "cuda/side_stream.h"
#include "lab/peer_ranks.h"
#include "stages.h"

namespace fathom::lab::pipeline_parallel_gpu {
namespace {

using pipeline_parallel::Pass;

// A signal for each message that a stage may get in a step, one a micro-batch, and that the other has begun.
constexpr int kBegun = kMostMicroBatches;

// cuBLAS is column-major: to it, all matrices here are transposed.
class Passes {
 public:
  Passes() {
    if (!cublas()) throw Unavailable("needs_library", why_no_cublas());
    handle_ = make_cublas_handle();
  }

  void on(StreamRef stream) const { FATHOM_CUBLAS(cublas()->set_stream(handle_.get(), stream)); }
  void forward(const Stages& p, int64_t first, int64_t rows) const {
    gemm(CUBLAS_OP_T, CUBLAS_OP_N, p.width(), rows, p.width(), p.weight.data(), &p.x()(first, 0), 0,
         &p.y(first, 0), CUDA_R_16BF);
  }
  void input_gradient(const Stages& p, int64_t first, int64_t rows) const {
    gemm(CUBLAS_OP_N, CUBLAS_OP_N, p.width(), rows, p.width(), p.weight.data(), &p.dy()(first, 0), 0,
         &p.dx(first, 0), CUDA_R_16BF);
  }
  void weight_gradient(const Stages& p, int64_t first, int64_t rows, bool add) const {
    gemm(CUBLAS_OP_N, CUBLAS_OP_T, p.width(), p.width(), rows, &p.x()(first, 0), &p.dy()(first, 0),
         add ? 1 : 0, p.dw.data(), CUDA_R_32F);
  }

 private:
  // All rows have as many numbers as c has in one of its own: the width.
  void gemm(cublasOperation_t of_a, cublasOperation_t of_b, int64_t m, int64_t n, int64_t k, const bf16* a,
            const bf16* b, float beta, void* c, cudaDataType type) const {
    const float one = 1;
    const auto ld   = static_cast<int>(m);
    FATHOM_CUBLAS(cublas()->gemm_ex(handle_.get(), of_a, of_b, ld, static_cast<int>(n), static_cast<int>(k),
                                    &one, a, CUDA_R_16BF, ld, b, CUDA_R_16BF, ld, &beta, c, type, ld,
                                    CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
  }

  CublasHandle handle_;
};

class Stage {
 public:
  Stage(const Stages& p, Context& context, std::vector<Pass> passes, int micro_batches)
      : schedule_(std::move(passes)),
        micro_batches_(micro_batches),
        own_(p.stage),
        peers_(*context.rank, {p.arrived.data(), p.nonces.data()}, kBegun + 1) {
    for (int m = 0; m < micro_batches; ++m) computed_.emplace_back(Event::Timing::off);
    // Loads the kernels: CUDA may wait for this GPU before it loads one, and so for the other stage.
    passes_.on(context.stream);
    const int64_t rows = p.rows() / micro_batches;
    passes_.forward(p, 0, rows);
    passes_.input_gradient(p, 0, rows);
    for (const bool add : {false, true}) passes_.weight_gradient(p, 0, rows, add);
    context.rank->device()->synchronize();
    context.rank->barrier();
  }

  void step(const Stages& p, StreamRef main) {
    FATHOM_EXPECT(p.arrived.data() == peers_.address<bf16>(own_, 0),
                  "stages send into the memory that they were told of");
    ++step_;
    const StreamRef side = side_.get();
    passes_.on(main);
    begins_.record(main);
    begins_.wait_on(side);
    // Nobody writes what the other stage still reads in the step before.
    peers_.signal(other(), kBegun, step_, side);
    peers_.wait(other(), kBegun, step_, side);
    bool add             = false;  // a weight gradient to those before it
    const int64_t rows   = p.rows() / micro_batches_;
    const auto weight_of = [&](int64_t first) {
      passes_.weight_gradient(p, first, rows, std::exchange(add, true));
    };
    for (const Pass& pass : schedule_) {
      const int m         = pass.micro_batch;
      const int64_t first = m * rows;
      switch (pass.kind) {
        case Pass::forward:
          if (own_ == 1) peers_.wait(other(), m, step_, main);
          passes_.forward(p, first, rows);
          if (own_ == 0) send(p, View<const bf16, 2>(p.y), m, main);
          break;
        case Pass::backward:
          gradient(p, m, main);
          weight_of(first);
          break;
        case Pass::input_gradient:
          gradient(p, m, main);
          break;
        case Pass::weight_gradient:
          weight_of(first);
          break;
        case Pass::forward_and_backward:
          FATHOM_EXPECT(false, "the stages have no copies of each other's layer, which DualPipe needs");
      }
    }
    ends_.record(side);
    ends_.wait_on(main);
  }

 private:
  int other() const { return 1 - own_; }

  void gradient(const Stages& p, int m, StreamRef main) {
    const int64_t rows = p.rows() / micro_batches_;
    if (own_ == 0) peers_.wait(other(), m, step_, main);
    passes_.input_gradient(p, m * rows, rows);
    if (own_ == 1) send(p, View<const bf16, 2>(p.dx), m, main);
  }

  // The micro-batch's rows, when `main` has computed them.
  void send(const Stages& p, View<const bf16, 2> from, int m, StreamRef main) {
    const StreamRef side   = side_.get();
    const int64_t rows     = p.rows() / micro_batches_;
    const bf16* const data = &from(m * rows, 0);
    const Event& computed  = computed_[static_cast<size_t>(m)];
    computed.record(main);
    computed.wait_on(side);
    copy(peers_.address<bf16>(other(), 0) + (data - from.data()), data,
         rows * p.width() * int64_t{sizeof(bf16)});
    if (m == 0)
      copy(peers_.address<uint64_t>(other(), 1) + 2 * own_, &p.nonces(own_, 0), p.nonces.bytes() / kStages);
    peers_.signal(other(), m, step_, side);
  }
  void copy(void* to, const void* from, int64_t bytes) const {
    FATHOM_CUDA(cudaMemcpyPeerAsync(to, other(), from, own_, static_cast<size_t>(bytes), side_.get()));
  }

  std::vector<Pass> schedule_;
  int micro_batches_, own_;
  Passes passes_;
  PeerRanks peers_;
  SideStream side_;
  Event begins_{Event::Timing::off}, ends_{Event::Timing::off};
  std::vector<Event> computed_;  // [micro-batch]
  uint32_t step_ = 0;
};

}  // namespace

Call step_by(const Stages& p, Context& context, const pipeline_parallel::Schedule& schedule,
             int micro_batches) {
  const auto stage =
      std::make_shared<Stage>(p, context, schedule[static_cast<size_t>(p.stage)], micro_batches);
  return [stage](const Stages& q, Context& c) { stage->step(q, c.stream); };
}

}  // namespace fathom::lab::pipeline_parallel_gpu
