#include "comm/device_mesh.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "core/expect.h"

namespace fathom::comm {
namespace {

// [axis] of a rank, the last axis counted first.
std::vector<int> coordinates_of(int rank, const std::vector<MeshAxis>& axes) {
  std::vector<int> coordinates(axes.size());
  for (size_t a = axes.size(); a-- > 0; rank /= axes[a].size) coordinates[a] = rank % axes[a].size;
  return coordinates;
}

bool is_lower(char c) { return c >= 'a' && c <= 'z'; }

}  // namespace

Result<std::vector<MeshAxis>> parse_mesh(std::string_view text) {
  std::vector<MeshAxis> axes;
  for (std::string_view rest = text;;) {
    const std::string_view part = rest.substr(0, rest.find('_'));
    const auto digits           = std::find_if_not(part.begin(), part.end(), is_lower);
    MeshAxis axis{.name = std::string(part.begin(), digits), .size = 0};
    const char* const end   = part.data() + part.size();
    const auto [read, code] = std::from_chars(part.data() + axis.name.size(), end, axis.size);
    if (axis.name.empty() || code != std::errc() || read != end || axis.size < 1)
      return Error{fmt::format("mesh \"{}\": \"{}\" is not an axis and its size, like tp2", text, part)};
    for (const MeshAxis& other : axes)
      if (other.name == axis.name) return Error{fmt::format("mesh \"{}\" has {} twice", text, axis.name)};
    axes.push_back(std::move(axis));
    if (part.size() == rest.size()) return axes;
    rest.remove_prefix(part.size() + 1);
  }
}

std::string to_string(const std::vector<MeshAxis>& axes) {
  std::string text;
  for (const MeshAxis& axis : axes)
    text += fmt::format("{}{}{}", text.empty() ? "" : "_", axis.name, axis.size);
  return text;
}

DeviceMesh::DeviceMesh(Group& world, std::vector<MeshAxis> axes) : world_(world), axes_(std::move(axes)) {
  int64_t ranks = 1;
  for (size_t a = 0; a < axes_.size(); ++a) {
    FATHOM_EXPECT(axes_[a].size >= 1,
                  fmt::format("axis {} of a mesh has size {}", axes_[a].name, axes_[a].size));
    FATHOM_EXPECT(index_of(axes_[a].name) == a,
                  fmt::format("the mesh {} has {} twice", to_string(axes_), axes_[a].name));
    ranks *= axes_[a].size;
    FATHOM_EXPECT(ranks <= world.size(), fmt::format("the mesh {} has more ranks than its group, {}",
                                                     to_string(axes_), world.size()));
  }
  FATHOM_EXPECT(ranks == world.size(),
                fmt::format("the mesh {} has {} ranks, its group {}", to_string(axes_), ranks, world.size()));
  coordinates_ = coordinates_of(world.rank(), axes_);
}

size_t DeviceMesh::index_of(std::string_view axis) const {
  const auto found =
      std::find_if(axes_.begin(), axes_.end(), [&](const MeshAxis& a) { return a.name == axis; });
  FATHOM_EXPECT(found != axes_.end(), fmt::format("the mesh {} has no axis {}", to_string(axes_), axis));
  return static_cast<size_t>(found - axes_.begin());
}

SubGroup& DeviceMesh::group(std::initializer_list<std::string_view> axes) {
  std::vector<bool> free(axes_.size(), false);
  for (const std::string_view axis : axes) free[index_of(axis)] = true;
  std::unique_ptr<SubGroup>& group = groups_[free];
  if (group) return *group;
  std::vector<int> ranks;
  for (int rank = 0; rank < world_.size(); ++rank) {
    const std::vector<int> theirs = coordinates_of(rank, axes_);
    bool member                   = true;
    for (size_t a = 0; a < axes_.size(); ++a) member &= free[a] || theirs[a] == coordinates_[a];
    if (member) ranks.push_back(rank);
  }
  group = std::make_unique<SubGroup>(world_, std::move(ranks));
  return *group;
}

int64_t DeviceMesh::sent_bytes() const {
  int64_t sum = 0;
  for (const auto& [axes, group] : groups_) sum += group->sent_bytes();
  return sum;
}

}  // namespace fathom::comm
