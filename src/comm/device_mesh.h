// The ranks of a group as a mesh of named axes: dp2_tp2 is two data-parallel replicas, each of two
// tensor-parallel ranks. Code that names the axes it sums over runs on every mesh, where an axis of size 1
// costs nothing (PyTorch's init_device_mesh, JAX's Mesh).
//
//   DeviceMesh mesh(world, parse_mesh("dp2_tp2").value());
//   mesh.group({"tp"}).all_reduce(activations);
//   mesh.group({"dp"}).all_reduce(gradients);
#pragma once

#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "comm/sub_group.h"
#include "core/result.h"

namespace fathom::comm {

struct MeshAxis {
  std::string name;
  int size = 1;

  bool operator==(const MeshAxis&) const = default;
};

// "pp2_dp2_tp4": lower-case names, each with its size.
Result<std::vector<MeshAxis>> parse_mesh(std::string_view text);
std::string to_string(const std::vector<MeshAxis>& axes);

class DeviceMesh {
 public:
  // The product of the sizes is that of the group, which outlives the mesh. Ranks are counted along the last
  // axis first: it belongs where links are fastest.
  DeviceMesh(Group& world, std::vector<MeshAxis> axes);

  const std::vector<MeshAxis>& axes() const { return axes_; }
  int size(std::string_view axis) const { return axes_[index_of(axis)].size; }
  int coordinate(std::string_view axis) const { return coordinates_[index_of(axis)]; }  // of this rank

  // The ranks that differ from this one in these axes alone, in the order of ranks. Of one axis, the rank in
  // the group is the coordinate. The same axes give the same group.
  SubGroup& group(std::initializer_list<std::string_view> axes);

  // What this rank has sent in all of the mesh's groups.
  int64_t sent_bytes() const;

 private:
  size_t index_of(std::string_view axis) const;

  Group& world_;
  std::vector<MeshAxis> axes_;
  std::vector<int> coordinates_;                                   // of this rank, for each axis
  std::map<std::vector<bool>, std::unique_ptr<SubGroup>> groups_;  // by [axis]: whether it is one of them
};

}  // namespace fathom::comm
