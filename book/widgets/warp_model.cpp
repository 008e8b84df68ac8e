// What warp_model.js calls: one access under one branch.
#include "book/warp_model.h"

#define WASM_EXPORT(name) extern "C" __attribute__((export_name(#name)))

using namespace fathom::book;

namespace {

WarpAccess access;
Branch branch;
int32_t cases;

uint32_t active(int32_t path) { return lanes_of_path(branch, cases, path); }

}  // namespace

// Whether the access is possible; the getters below tell of the last one that was.
WASM_EXPORT(configure)
int32_t configure(int32_t base, int32_t stride, int32_t element_bytes, int32_t swizzle, int32_t kind,
                  int32_t k) {
  const WarpAccess asked{base, stride, element_bytes, swizzle != 0};
  if (!possible(asked)) return 0;
  access = asked;
  branch = static_cast<Branch>(kind);
  cases  = k;
  return 1;
}

WASM_EXPORT(address) int32_t address(int32_t lane, int32_t shared) {
  return shared ? shared_address(access, lane) : global_address(access, lane);
}
WASM_EXPORT(lane_path) int32_t lane_path(int32_t lane) { return path_of(branch, cases, lane); }
WASM_EXPORT(path_count) int32_t path_count() { return paths(branch, cases); }
WASM_EXPORT(group_size) int32_t group_size() { return group_lanes(access.element_bytes); }
WASM_EXPORT(sectors_of) int32_t sectors_of(int32_t path) { return sectors(access, active(path)); }
WASM_EXPORT(bytes_of) int32_t bytes_of(int32_t path) { return bytes_wanted(access, active(path)); }
WASM_EXPORT(passes_of) int32_t passes_of(int32_t path) { return bank_passes(access, active(path)); }
WASM_EXPORT(degree_of) int32_t degree_of(int32_t path) { return conflict_degree(access, active(path)); }
WASM_EXPORT(lane_pass) int32_t lane_pass(int32_t lane) {
  return bank_pass(access, active(path_of(branch, cases, lane)), lane);
}
