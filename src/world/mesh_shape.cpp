#include "tessera/world/mesh_shape.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <utility>

#include "tessera/base/error.hpp"

namespace tessera {
namespace {

constexpr std::array<std::string_view, 4> kNames{"replicate", "shard", "tensor", "pipe"};

void require_known(std::string_view name) {
  if (std::ranges::find(kNames, name) != kNames.end()) { return; }
  throw ConfigError{
      fmt::format("mesh: '{}' is not a dimension: choose among {}", name, fmt::join(kNames, ", "))};
}

void require_once(const std::vector<std::string_view>& names) {
  for (const std::string_view name : names) {
    require_known(name);
    if (std::ranges::count(names, name) == 1) { continue; }
    throw ConfigError{
        fmt::format("mesh: dimension '{}' is given twice: give each dimension once", name)};
  }
}

}  // namespace

int MeshGroups::ranks_of(const std::vector<Step>& steps) noexcept {
  int ranks = 1;
  for (const Step& step : steps) { ranks *= step.size; }
  return ranks;
}

int MeshGroups::place(const std::vector<Step>& steps, int rank) noexcept {
  int place = 0;
  for (const Step& step : steps) { place = place * step.size + rank / step.stride % step.size; }
  return place;
}

std::vector<int> MeshGroups::groups() const {
  std::vector<std::pair<Step, bool>> dims;  // and whether its places are in different groups
  for (const Step& step : inside_) { dims.emplace_back(step, false); }
  for (const Step& step : outside_) { dims.emplace_back(step, true); }
  std::ranges::stable_sort(dims, std::ranges::greater{},
                           [](const auto& dim) { return dim.first.stride; });
  std::vector<int> groups{0};
  for (const auto& [step, divides] : dims) {
    const std::vector<int> slower = std::exchange(groups, {});
    groups.reserve(slower.size() * static_cast<std::size_t>(step.size));
    for (const int group : slower) {
      for (int i = 0; i < step.size; ++i) {
        groups.push_back(divides ? group * step.size + i : group);
      }
    }
  }
  return groups;
}

std::vector<int> MeshGroups::members(int rank) const {
  for (const Step& step : inside_) { rank -= rank / step.stride % step.size * step.stride; }
  std::vector<int> ranks{rank};
  for (const Step& step : inside_) {
    const std::vector<int> slower = std::exchange(ranks, {});
    for (const int first : slower) {
      for (int i = 0; i < step.size; ++i) { ranks.push_back(first + i * step.stride); }
    }
  }
  return ranks;
}

MeshShape::MeshShape(std::vector<MeshDim> dims) : dims_{std::move(dims)} {
  if (dims_.empty()) {
    throw ConfigError{
        "mesh: no dimension is given: give each one's name and size, such as {\"shard\", 4}"};
  }
  std::vector<std::string_view> names;
  for (const MeshDim& dim : dims_) { names.emplace_back(dim.name); }
  require_once(names);
  std::int64_t ranks = 1;
  for (const auto& [name, size] : dims_) {
    if (size < 1) {
      throw ConfigError{fmt::format(
          "mesh: dimension '{}' has size {}: give the number of ranks along it, 1 or more", name,
          size)};
    }
    ranks *= size;
    if (ranks > std::numeric_limits<int>::max()) {
      throw ConfigError{fmt::format(
          "mesh: {} has more than 2^31 - 1 ranks: choose sizes whose product is that of the job",
          to_string())};
    }
  }
}

int MeshShape::ranks() const noexcept {
  int ranks = 1;
  for (const MeshDim& dim : dims_) { ranks *= dim.size; }
  return ranks;
}

int MeshShape::data_ranks() const {
  return along({"replicate", "shard"}).size();
}

int MeshShape::data_index(int rank) const {
  expects(rank >= 0 && rank < ranks(), "MeshShape: the mesh has no such rank");
  return along({"replicate", "shard"}).index_of(rank);
}

int MeshShape::size(std::string_view name) const {
  return along({name}).size();
}

int MeshShape::index(std::string_view name, int rank) const {
  expects(rank >= 0 && rank < ranks(), "MeshShape: the mesh has no such rank");
  return along({name}).index_of(rank);
}

std::vector<int> MeshShape::coordinates_of(int rank) const {
  std::vector<int> coordinates;
  for (const MeshDim& dim : dims_) { coordinates.push_back(index(dim.name, rank)); }
  return coordinates;
}

MeshGroups MeshShape::along(const std::vector<std::string_view>& names) const {
  require_once(names);
  MeshGroups groups;
  int stride = ranks();
  for (const auto& [name, size] : dims_) {
    stride /= size;
    const bool is_inside = std::ranges::find(names, name) != names.end();
    (is_inside ? groups.inside_ : groups.outside_).push_back({size, stride});
  }
  for (const std::string_view name : kNames) {
    if (std::ranges::find(names, name) == names.end()) { continue; }
    groups.name_ += fmt::format("{}{}", groups.name_.empty() ? "" : " x ", name);
  }
  return groups;
}

std::string MeshShape::to_string() const {
  std::string text;
  for (const auto& [name, size] : dims_) {
    text += fmt::format("{}{} {}", text.empty() ? "" : " x ", name, size);
  }
  return text;
}

void require_ranks(const MeshShape& shape, int ranks) {
  if (shape.ranks() == ranks) { return; }
  throw ConfigError{
      fmt::format("mesh {} has {} ranks, but the job has {}: choose sizes whose product is {}",
                  shape.to_string(), shape.ranks(), ranks, ranks)};
}

}  // namespace tessera
