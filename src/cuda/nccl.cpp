#include "cuda/nccl.h"

#include <fmt/format.h>

#include <type_traits>

#include "core/expect.h"
#include "cuda/library.h"

namespace fathom {
namespace {

// Of nccl.h, version 2, whose ABI keeps them.
constexpr int kMajor = 2, kBytes = 1, kFloat32 = 7, kSum = 0;

static_assert(sizeof(NcclConfig) == 40, "ncclConfig_t up to netName");

Result<Nccl> open_nccl() {
  const auto library = open_cuda_library("nccl", kMajor);
  if (!library) return library.error();
  Nccl table{.path = library->path};
  std::string absent;
  const auto fetch = [&](auto& pointer, const char* symbol) {
    pointer = library->function<std::remove_reference_t<decltype(pointer)>>(symbol);
    if (!pointer && absent.empty()) absent = fmt::format("{} has no {}", library->path, symbol);
  };
  fetch(table.get_unique_id, "ncclGetUniqueId");
  fetch(table.comm_init_rank, "ncclCommInitRank");
  fetch(table.comm_init_rank_config, "ncclCommInitRankConfig");
  fetch(table.comm_destroy, "ncclCommDestroy");
  fetch(table.all_reduce, "ncclAllReduce");
  fetch(table.all_gather, "ncclAllGather");
  fetch(table.group_start, "ncclGroupStart");
  fetch(table.group_end, "ncclGroupEnd");
  fetch(table.get_error_string, "ncclGetErrorString");
  if (!absent.empty()) return Error{absent};
  return table;
}

const Result<Nccl>& opened() {
  static const Result<Nccl> table = open_nccl();
  return table;
}

void check(int status, const char* call) {
  if (status != 0) throw SystemError(fmt::format("{}: {}", call, nccl()->get_error_string(status)));
}

}  // namespace

const Nccl* nccl() { return opened() ? &opened().value() : nullptr; }
std::string why_no_nccl() { return opened() ? "" : opened().error().message; }

NcclId make_nccl_id() {
  NcclId id{};
  check(nccl()->get_unique_id(&id), "ncclGetUniqueId");
  return id;
}

NcclCommunicator::NcclCommunicator(const NcclId& id, int rank, int ranks, const NcclSettings& settings) {
  NcclConfig config;
  if (settings.cga_cluster >= 0) config.cga_cluster = settings.cga_cluster;
  if (settings.max_ctas > 0) config.max_ctas = settings.max_ctas;
  check(nccl()->comm_init_rank_config(&communicator_, ranks, id, rank, &config), "ncclCommInitRankConfig");
}
NcclCommunicator::~NcclCommunicator() { (void)nccl()->comm_destroy(communicator_); }

void NcclCommunicator::all_reduce(const float* from, float* to, int64_t count, StreamRef stream) const {
  check(nccl()->all_reduce(from, to, static_cast<size_t>(count), kFloat32, kSum, communicator_, stream),
        "ncclAllReduce");
}

void NcclCommunicator::all_gather(const void* from, void* to, int64_t bytes, StreamRef stream) const {
  check(nccl()->all_gather(from, to, static_cast<size_t>(bytes), kBytes, communicator_, stream),
        "ncclAllGather");
}

void nccl_group(const std::function<void()>& collectives) {
  check(nccl()->group_start(), "ncclGroupStart");
  collectives();
  check(nccl()->group_end(), "ncclGroupEnd");
}

}  // namespace fathom
