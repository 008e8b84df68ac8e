#include "serve/prefill_jobs.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <utility>

#include "transfer/socket_transfer.h"

namespace fathom::serve {
namespace {

// A peer that takes nothing for so long is given up; a lease is renewed so often while the prompt waits.
constexpr std::chrono::milliseconds kPeerTimeout{2'000}, kRenewal{250};

// What the engine's thread hands to the job's thread.
struct PrefillProgress {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::pair<uint32_t, engine::KvBlock>> slices;
  std::optional<engine::FinishReason> finish;
  std::string error;
};

}  // namespace

PrefillJobs::PrefillJobs(engine::Engine& engine, std::string layout,
                         std::chrono::milliseconds iteration_timeout)
    : engine_(engine), layout_(std::move(layout)), iteration_timeout_(iteration_timeout) {
  engine_.with_kv([](engine::KvStore& store) { store.prepare_reads(); });
  for (int64_t i = 0; i < kMaxPrefillJobs; ++i) threads_.emplace_back([this] { work(); });
}

PrefillJobs::~PrefillJobs() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

bool PrefillJobs::stalled() const {
  return std::chrono::duration<double>(engine_.stats().stalled_s) > iteration_timeout_;
}

int64_t PrefillJobs::running() const {
  const std::lock_guard lock(mutex_);
  return running_;
}

std::shared_ptr<PrefillJobs::Job> PrefillJobs::start(PrefillRequest request, std::string host,
                                                     std::function<void(const Status&)> done) {
  if (stalled()) return nullptr;
  auto job      = std::make_shared<Job>();
  job->request_ = std::move(request);
  job->host_    = std::move(host);
  job->done_    = std::move(done);
  {
    const std::lock_guard lock(mutex_);
    if (running_ >= kMaxPrefillJobs) return nullptr;
    ++running_;
    waiting_.push_back(job);
  }
  changed_.notify_one();
  return job;
}

void PrefillJobs::work() {
  for (;;) {
    std::shared_ptr<Job> job;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return ending_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      job = std::move(waiting_.front());
      waiting_.pop_front();
    }
    const Status status = run(*job);
    {
      const std::lock_guard lock(mutex_);
      --running_;
    }
    job->done_(status);
  }
}

Status PrefillJobs::run(Job& job) {
  const PrefillRequest& asked = job.request_;
  if (asked.layout != layout_)
    return Error{
        "the asker has another model or other pages of its KV cache: start both with the same flags"};
  std::map<std::pair<engine::KvKind, int64_t>, uint32_t> wanted;
  for (uint32_t i = 0; i < asked.blocks.size(); ++i) {
    wanted.emplace(std::pair(asked.blocks[i].kind, asked.blocks[i].block), i);
    if (asked.grant.slices[i].bytes != static_cast<uint64_t>(engine_.kv_block_bytes(asked.blocks[i].kind)))
      return Error{"a slice has another size than a block of this engine"};
  }
  auto connected =
      transfer::connect({.host = job.host_, .port = asked.port, .memory = asked.memory}, kPeerTimeout);
  if (!connected) return connected.error();
  transfer::Transfer& way = **connected;

  const auto progress = std::make_shared<PrefillProgress>();
  engine::Request request;
  request.prompt               = asked.prompt;
  request.sampling.temperature = 0;
  request.max_tokens           = 1;
  request.cache_salt           = asked.cache_salt;
  request.on_kv_block          = [progress, wanted](const engine::KvBlock& block) {
    const auto slice = wanted.find({block.kind, block.block});
    if (slice == wanted.end()) return;
    const std::lock_guard lock(progress->mutex);
    progress->slices.emplace_back(slice->second, block);
    progress->changed.notify_one();
  };
  const auto submitted = engine_.submit(std::move(request), [progress](const engine::RequestOutput& output) {
    if (!output.finish) return;
    const std::lock_guard lock(progress->mutex);
    progress->finish = output.finish;
    progress->error  = output.error;
    progress->changed.notify_one();
  });
  if (const auto* refusal = std::get_if<engine::Refusal>(&submitted)) return Error{refusal->message};

  size_t written = 0;
  for (;;) {
    std::pair<uint32_t, engine::KvBlock> slice;
    bool finished = false, got = false;
    {
      std::unique_lock lock(progress->mutex);
      progress->changed.wait_for(lock, kRenewal,
                                 [&] { return !progress->slices.empty() || progress->finish; });
      if (!progress->slices.empty()) {
        slice = std::move(progress->slices.front());
        progress->slices.pop_front();
        got = true;
      }
      finished = progress->finish.has_value();
    }
    Status sent = Ok();
    if (job.cancelled_ || ending_)
      sent = Error{"the asker has left"};
    else if (!got && stalled())
      sent = Error{"the engine of the prefill worker makes no progress"};  // no lease is renewed for that
    else if (got)
      sent =
          transfer::write(way, asked.grant, std::vector<transfer::Slice>{{slice.first, slice.second.bytes}});
    else if (!finished)
      sent = way.renew(asked.grant);
    if (!sent) {
      engine_.cancel(std::get<engine::RequestId>(submitted));
      return sent;
    }
    written += got ? 1 : 0;
    if (written == wanted.size()) {
      engine_.cancel(std::get<engine::RequestId>(submitted));  // the token after the prompt is not needed
      return Ok();
    }
    if (finished && !got) {
      (void)transfer::mark_failed(way, asked.grant, 0);
      return Error{progress->error.empty() ? "the prompt was not computed" : progress->error};
    }
  }
}

}  // namespace fathom::serve
